"""Find profiles by id; only the file that is asked for is read."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from zeroplan.errors import SpecError, perhaps
from zeroplan.hardware.profile import MAPPING_KEYS, Gpu, Link, Node, Profile
from zeroplan.hardware.read import P, Source, read_profile, read_sources
from zeroplan.records import dataclass

__all__ = [
    "FOLDERS",
    "PROFILES_VARIABLE",
    "Catalogue",
    "load_catalogue",
    "suggestion",
    "usual_link",
]

PROFILES_VARIABLE: Final = "ZEROPLAN_PROFILES"
"""Environment variable that names a folder of one's own profiles."""

FOLDERS: Final[dict[type[Profile], str]] = {Gpu: "gpus", Link: "links", Node: "nodes"}
"""Where the profiles of each record lie."""


NAMED: Final = 4
"""Ids that a message suggests. [count]"""

SPOKEN: Final = (
    (re.compile("infiniband"), "ib"),
    (re.compile(r"(?<!\d)(\d+)[- ]?g(?:bit|bps|ig|b)?(?:/s|e)?(?![a-z0-9])"), r"\1g"),
)
"""How people write what an id has in short: InfiniBand is ib, 100GbE and 100 Gbit/s are 100g."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The profiles of one or more folders, of which the first that has an id wins."""

    folders: tuple[Path, ...]
    """Folders with `gpus`, `links`, `nodes` and `sources.toml`; any of them may be absent."""

    def gpu(self, profile_id: str) -> Gpu:
        """Read the profile of a GPU."""
        return self._read(Gpu, profile_id)

    def link(self, profile_id: str) -> Link:
        """Read the profile of a link."""
        return self._read(Link, profile_id)

    def node(self, profile_id: str) -> Node:
        """Read the profile of a node type."""
        return self._read(Node, profile_id)

    def gpu_ids(self) -> tuple[str, ...]:
        """List the known GPUs."""
        return self._ids(Gpu)

    def link_ids(self) -> tuple[str, ...]:
        """List the known links."""
        return self._ids(Link)

    def node_ids(self) -> tuple[str, ...]:
        """List the known node types."""
        return self._ids(Node)

    def parts(self) -> tuple["Catalogue", ...]:
        """Return a catalogue of each folder by itself, in the order in which they are looked into."""
        return tuple(Catalogue(folders=(folder,)) for folder in self.folders)

    def counted(self) -> str:
        """Count the profiles in words."""
        counts = {"GPU": self.gpu_ids(), "link": self.link_ids(), "node": self.node_ids()}
        return ", ".join(f"{len(ids)} {one}{'s' * (len(ids) != 1)}" for one, ids in counts.items())

    def changed(self) -> str | None:
        """Return the day of the last change that the first folder's changelog lists, if it has one."""
        changes = self.folders[0] / "CHANGELOG.md"
        text = changes.read_text(encoding="utf-8") if changes.is_file() else ""
        newest = re.search(r"^## .*?(\d{4}-\d\d-\d\d)", text, re.MULTILINE)
        return newest[1] if newest else None

    def sources(self) -> dict[str, Source]:
        """Read the sources of all folders."""
        return _sources(self.folders)

    def _read(self, record: type[P], profile_id: str) -> P:
        if Path(profile_id).name == profile_id:  # an id is no path out of the folder
            for folder in self.folders:
                path = folder / FOLDERS[record] / f"{profile_id}.toml"
                if path.is_file():
                    profile = _profile(path, path.stat().st_mtime_ns, self.folders)
                    if isinstance(profile, record):
                        return profile
        kind = record.__name__.lower()
        known = self.usual_gpu_ids() if kind == "gpu" else self._ids(record)
        raise SpecError(f"{kind} {profile_id!r} is not known.{suggestion(profile_id, known)}")

    def usual_gpu_ids(self) -> tuple[str, ...]:
        """List the known GPUs, those first that most node types have; it reads all of those."""
        having = Counter[str]()
        for node_id in self.node_ids():
            with suppress(SpecError):  # another profile's fault is not what is asked
                having[self.node(node_id).gpu.value] += 1
        return tuple(sorted(self.gpu_ids(), key=lambda gpu_id: -having[gpu_id]))

    def _ids(self, record: type[Profile]) -> tuple[str, ...]:
        paths = (
            path for folder in self.folders for path in (folder / FOLDERS[record]).glob("*.toml")
        )
        return tuple(sorted({path.stem for path in paths}))


def load_catalogue(profiles: Path | None = None) -> Catalogue:
    """Return the shipped profiles, under a folder of one's own if there is one.

    Parameters
    ----------
    profiles
        Folder whose profiles come before the shipped ones, by default what the environment
        variable `ZEROPLAN_PROFILES` names; it may hold a single file.

    """
    named = os.environ.get(PROFILES_VARIABLE, "")
    own = profiles or (Path(named) if named else None)
    if own is None:
        return Catalogue(folders=(_shipped(),))
    if not own.is_dir():
        message = f"{own}: there is no such folder of profiles."
        raise SpecError(message)
    return Catalogue(folders=(own, _shipped()))


def usual_link(alias: str, gpu: Gpu, catalogue: Catalogue) -> Link:
    """Return the link that a name means for a GPU.

    Parameters
    ----------
    alias
        `ib`, `roce`, `efa`, `ethernet` or `nvlink` (the generation usual for the GPU), or the id
        of a link.
    gpu
        The GPU at both ends.
    catalogue
        Where the link is read from.

    """
    if alias in gpu.usual_links:
        return catalogue.link(gpu.usual_links[alias].value)
    aliases = MAPPING_KEYS["usual_links"]
    if alias in aliases:
        message = f"link {alias!r}: {gpu.id} has none; it has {', '.join(gpu.usual_links)}."
        raise SpecError(message)
    try:
        return catalogue.link(alias)
    except SpecError:
        if alias in catalogue.link_ids():
            raise
        known = (*aliases, *catalogue.link_ids())
        choices = f"{', '.join(aliases)} name the GPU's usual one."
        message = f"link {alias!r} is not known.{suggestion(alias, known)} {choices}"
        raise SpecError(message) from None


def suggestion(word: str, ids: Iterable[str]) -> str:
    """Suggest the ids that begin with the word, or a part of which does, else the closest one."""
    known, plain = tuple(ids), word.lower()
    written = plain
    for pattern, short in SPOKEN:
        written = pattern.sub(short, written)
    every = "`zeroplan hardware list` shows all."
    likely = _beginning(plain, known) or _beginning(written, known)
    if likely:
        others = f" {every}" if len(likely) > NAMED else ""
        return f" Perhaps you meant {' or '.join(map(repr, likely[:NAMED]))}?{others}"
    return perhaps(plain, known) or perhaps(written, known) or f" {every}"


def _beginning(word: str, ids: tuple[str, ...]) -> list[str]:
    """Return the id itself, else those that begin with a word, else those a part of which does."""
    if len(word) <= 1 or word in ids:
        return [word] if word in ids else []
    whole = [each for each in ids if each.startswith(word)]
    return whole or [each for each in ids if any(p.startswith(word) for p in each.split("-"))]


def _shipped() -> Path:
    """Return the profiles of the wheel, or those beside the package in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "hardware_profiles"
    return inside if inside.is_dir() else package.parent / "hardware_profiles"


@cache
def _sources(folders: tuple[Path, ...]) -> dict[str, Source]:
    merged: dict[str, Source] = {}
    for folder in reversed(folders):
        merged |= read_sources(folder / "sources.toml")
    return merged


@lru_cache(maxsize=256)
def _profile(path: Path, _modified: int, folders: tuple[Path, ...]) -> Profile:
    """Read a profile once for every version of its file; its folder says what it is."""
    sources = _sources(folders)
    if path.parent.name == FOLDERS[Gpu]:
        return read_profile(path, Gpu, sources)
    if path.parent.name == FOLDERS[Link]:
        return read_profile(path, Link, sources)
    return read_profile(path, Node, sources)
