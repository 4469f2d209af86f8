"""What a shell offers where a value is typed: nothing is imported before it asks."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import typer

from zeroplan.errors import ZeroplanError

__all__ = [
    "OFFERED",
    "Known",
    "formats",
    "gpu_ids",
    "link_names",
    "node_ids",
    "offer",
    "presets",
    "profile_ids",
    "words",
    "written_formats",
]

Known = Callable[[typer.Context], Iterable[str]]
"""Returns all values of an option; not called before a shell asks."""

Offer = Callable[[typer.Context, str], list[str]]
"""Takes the line so far and what is typed of a value; returns whole values."""


def offer(known: Known, *, several: bool = False) -> Offer:
    """Return what completes a value.

    Parameters
    ----------
    known
        Returns all values.
    several
        Whether there may be several with commas between them.

    """

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        taken, found = before.split(","), []
        with suppress(ZeroplanError):  # a wrong folder of profiles is told when the line is run
            found = [word for word in known(context) if word.startswith(last)]
        return [f"{before}{comma}{word}" for word in found if word not in taken]

    return complete


def words(*known: str) -> Known:
    """Return what returns these words."""
    return lambda _: known


def presets(_: typer.Context) -> Iterable[str]:
    """Return the names of presets."""
    from zeroplan.spec.presets import list_presets  # noqa: PLC0415

    return list_presets()


def formats(_: typer.Context) -> Iterable[str]:
    """Return the formats of files that are read."""
    from zeroplan.foreign.formats import FORMATS  # noqa: PLC0415

    return FORMATS


def written_formats(_: typer.Context) -> Iterable[str]:
    """Return the formats of files that are written."""
    from zeroplan.foreign.writing import WRITTEN  # noqa: PLC0415

    return WRITTEN


def profile_ids(context: typer.Context) -> Iterable[str]:
    """Return the ids of all GPUs, links and node types."""
    return [each for kind in ("gpu", "link", "node") for each in _ids(context, kind)]


def gpu_ids(context: typer.Context) -> Iterable[str]:
    """Return the ids of all GPUs."""
    return _ids(context, "gpu")


def node_ids(context: typer.Context) -> Iterable[str]:
    """Return the ids of all node types."""
    return _ids(context, "node")


def link_names(context: typer.Context) -> Iterable[str]:
    """Return what links are called, and their ids."""
    from zeroplan.hardware.profile import MAPPING_KEYS  # noqa: PLC0415

    return (*MAPPING_KEYS["usual_links"], *_ids(context, "link"))


def _ids(context: typer.Context, kind: str) -> tuple[str, ...]:
    from zeroplan.hardware.catalogue import load_catalogue  # noqa: PLC0415

    named = context.params.get("profiles")
    catalogue = load_catalogue(Path(named) if named else None)
    found: tuple[str, ...] = getattr(catalogue, f"{kind}_ids")()
    return found


OFFERED: Final[dict[str, Known]] = {
    "model.source": presets,
    "cluster.gpu": gpu_ids,
    "cluster.node": node_ids,
    "cluster.link": link_names,
    "cluster.intra_link": link_names,
    "training.activation_checkpointing": words("none", "full", "selective", "every-2"),
}
"""Values by dotted key, of keys whose type does not name them."""
