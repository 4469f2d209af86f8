"""A node's profile from `nvidia-smi topo -m`: GPUs, the link that joins them, and their NICs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from zeroplan.calibration.inside import TOPOLOGY, Inside, inside
from zeroplan.calibration.nics import nic_words, nics_for_gpus
from zeroplan.calibration.topology import Topology, read_topology
from zeroplan.errors import SpecError
from zeroplan.hardware import Catalogue, Choice, Gpu, Node, Quantity, load_catalogue, usual_link
from zeroplan.hardware.naming import gpu_of
from zeroplan.hardware.profile import Profile, entries
from zeroplan.hardware.quantity import unit_of
from zeroplan.records import dataclass
from zeroplan.rows import Column, Table, html, plain, readable
from zeroplan.units import GIGABIT

__all__ = ["NodeProfile", "Told", "describe_node"]

TOLD: Final = "told"
"""Key of the source: whoever called the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the matrix cannot tell."""

    gpu: str = ""
    """Profile of the GPUs; by default that of the names in the text."""
    intra_link: str = ""
    """Link inside the node; by default what the matrix shows."""
    node_link: str = ""
    """Link between nodes; by default the usual one of the GPU."""
    nic_gbps: float | None = None
    """Line rate of one NIC. [Gbit/s]"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NodeProfile:
    """A new profile of a node, with what its reader should check."""

    node: Node
    notes: tuple[str, ...]

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The new profile, as every answer of a calibration has them."""
        return (self.node,)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, in the order of the JSON."""
        return {"node": plain(self.node), "notes": list(self.notes)}

    def to_json(self) -> str:
        """Return the answer as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def remarks(self) -> Iterator[str]:
        """Yield what a reader should know beside the tables."""
        yield from (f"- {note}" for note in self.notes)

    def to_tables(self) -> tuple[Table, ...]:
        """Return the entries of the profile."""
        columns = ("quantity", "value", "kind", "note")
        rows = tuple(
            (key, _cell(entry), entry.kind, entry.note) for key, entry in entries(self.node)
        )
        return (
            Table(
                title=f"{self.node.id}: {self.node.topology}",
                columns=tuple(Column(name=name, is_text=True) for name in columns),
                rows=rows,
            ),
        )

    def __repr__(self) -> str:
        return f"NodeProfile({self.node.id})"

    def _repr_html_(self) -> str:
        return "".join(html(table) for table in self.to_tables())


def describe_node(
    path: str | Path, *, told: Told | None = None, name: str = "", profiles: Path | None = None
) -> NodeProfile:
    """Return the profile of the node that a pasted matrix is of.

    Parameters
    ----------
    path
        Text with the output of `nvidia-smi topo -m`; that of `nvidia-smi -L` and of `nvidia-smi
        topo -p2p r` may stand beside it.
    told
        What the matrix cannot tell.
    name
        Id of the new profile, by default the number and the kind of GPUs.
    profiles
        Folder whose hardware profiles come before the shipped ones.

    Raises
    ------
    SpecError
        There is no whole matrix in the file, or nobody says which GPUs they are.

    """
    told = told or Told()
    catalogue = load_catalogue(profiles)
    seen = read_topology(Path(path))
    gpu, gpu_choice = _gpu(seen, told, catalogue)
    joined = _joined(seen, told, gpu, catalogue)
    nics = nics_for_gpus(seen)
    profile_id = name or f"{len(seen.gpus)}x-{gpu.id}"
    node = Node(
        id=profile_id,
        revision=1,
        name=profile_id,
        provider="own",
        topology=f"{joined.words}; {nic_words(seen, nics)}",
        gpu=gpu_choice,
        gpus=_counted("gpus", len(seen.gpus)),
        intra_link=joined.link,
        node_link=_node_link(told, gpu, catalogue),
        nics=_counted("nics", len(nics)) if nics else None,
        nic_bytes_per_second=_nic_rate(told) if nics else None,
    )
    return NodeProfile(node=node, notes=(*joined.notes, *_notes(seen, nics, told, node)))


def _gpu(seen: Topology, told: Told, catalogue: Catalogue) -> tuple[Gpu, Choice]:
    """Return the GPU and who says so."""
    if told.gpu:
        gpu = catalogue.gpu(told.gpu)
        return gpu, Choice(value=gpu.id, kind="measured", source=TOLD)
    names = sorted(set(seen.gpu_names))
    if not names:
        raise SpecError(
            "`nvidia-smi topo -m` does not name the GPUs: give --gpu, or paste `nvidia-smi -L` too."
        )
    if len(names) > 1:
        raise SpecError(f"GPUs of several kinds ({', '.join(names)}): a node profile has one.")
    gpu = gpu_of(names[0], catalogue)
    return gpu, Choice(value=gpu.id, kind="measured", source=TOPOLOGY, note=names[0])


def _joined(seen: Topology, told: Told, gpu: Gpu, catalogue: Catalogue) -> Inside:
    """Return the link inside, the one that was told before what the matrix shows."""
    shown = inside(seen, gpu, catalogue)
    if not told.intra_link:
        return shown
    link = catalogue.link(told.intra_link)
    if link.scope != "node":
        raise SpecError(f"--intra-link {link.id}: it joins nodes, not the GPUs of one.")
    choice = Choice(value=link.id, kind="measured", source=TOLD)
    return Inside(link=choice, words=shown.words)


def _node_link(told: Told, gpu: Gpu, catalogue: Catalogue) -> Choice:
    if not told.node_link:
        note = "the usual one of the GPU; the matrix does not tell"
        value = gpu.node_link.value
        return Choice(value=value, kind="assumed", source="judgement", note=note)
    link = usual_link(told.node_link, gpu, catalogue)
    if link.scope != "cluster":
        raise SpecError(f"--node-link {link.id}: it joins the GPUs of a node, not nodes.")
    return Choice(value=link.id, kind="measured", source=TOLD)


def _nic_rate(told: Told) -> Quantity | None:
    if told.nic_gbps is None:
        return None
    key = "nic_bytes_per_second"
    rate = told.nic_gbps * GIGABIT
    return Quantity(value=rate, unit=unit_of(key), kind="measured", source=TOLD)


def _counted(key: str, count: int) -> Quantity:
    return Quantity(value=count, unit=unit_of(key), kind="measured", source=TOPOLOGY)


def _notes(seen: Topology, nics: tuple[str, ...], told: Told, node: Node) -> Iterator[str]:
    """Yield what the matrix left open."""
    if not told.node_link:
        yield (
            f"Which network the NICs are on is not in the matrix: {node.node_link.value} is taken; "
            "--node-link names another."
        )
    if not nics:
        yield "No NIC is shown: as many as the link between nodes usually has are taken."
    elif told.nic_gbps is None:
        yield (
            f"How fast a NIC is, is not in the matrix: the line rate of {node.node_link.value} is "
            "taken; --nic-gbps states another."
        )
    left = [seen.nic_names.get(nic, nic) for nic in seen.nics if nic not in nics]
    if nics and left:
        yield f"Farther from every GPU than others, so not counted: {', '.join(left)}."


def _cell(entry: Quantity | Choice) -> str:
    if isinstance(entry, Choice):
        return entry.value
    return readable(entry.value, entry.unit) if entry.unit != "1" else f"{entry.value:g}"
