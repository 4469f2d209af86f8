"""What if: the answers around a question, priced beforehand, which a page looks up."""

import json
from collections.abc import Iterable, Mapping
from math import isnan, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zeroplan.comm.fabric import fabric
from zeroplan.errors import SpecError
from zeroplan.estimation.hypothetical import hypothetical_notes
from zeroplan.estimation.record import Estimate
from zeroplan.hardware import Catalogue, Link, load_catalogue, usual_link
from zeroplan.records import dataclass, replace
from zeroplan.report.page.fit import beyond, chosen
from zeroplan.rows import plain
from zeroplan.sharding.strategies import COMPARED
from zeroplan.spec.models import load_architecture
from zeroplan.spec.reading import flatten
from zeroplan.spec.run import Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AXES", "MOST_PLANS", "Grid", "grid"]

AXES: Final = (
    "sharding.strategy",
    "cluster.gpus",
    "cluster.link",
    "training.micro_batch_size",
    "training.sequence_length",
)
"""What may be changed in the page."""

FIGURES: Final = (
    "device_bytes",
    "half_band_bytes",
    "peak_allocated_bytes",
    "step_seconds",
    "low_seconds",
    "high_seconds",
    "exposed_communication_seconds",
    "tokens_per_second_per_gpu",
    "model_flops_utilization",
)

MOST_PLANS: Final = 12_000
"""Up to which the page stays well below 2 MB. [count]"""

DOUBLINGS: Final = range(-3, 4)
"""GPUs offered, from an eighth of those asked for to eight times as many."""

LENGTHS: Final = range(-1, 3)
"""The same of sequence lengths: half to four times."""

SEQUENCES: Final = (1, 2, 4, 8)
"""Micro-batches offered. [count]"""

LINKS: Final = ("nvlink", "ib", "roce", "ethernet", "ethernet-25g", "ethernet-10g")
"""Links offered, from those that never make GPUs wait to those that mostly do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Figures of every combination of the axes' values."""

    axes: dict[str, tuple[Any, ...]]
    """Values by dotted key, in the order of `AXES`."""
    asked: tuple[int, ...]
    """The place of the question on each axis."""
    names: dict[str, str]
    """What links are called."""
    usable_bytes: int
    gpus_per_node: int
    gradient_accumulation_steps: int
    verdicts: list[str | None]
    """In row-major order of the axes; None where a combination cannot be."""
    figures: dict[str, list[float | None]]
    """By name as in a record, in the same order; floats with nine digits."""

    def place(self, places: Iterable[int]) -> int:
        """Return where a combination stands in the lists, from its place on each axis."""
        found = 0
        for place, values in zip(places, self.axes.values(), strict=True):
            found = found * len(values) + place
        return found

    def beside(self, key: str) -> dict[Any, int]:
        """Return where the question stands for each value of one key, all else being equal."""
        axis = list(self.axes).index(key)
        before, after = self.asked[:axis], self.asked[axis + 1 :]
        places = (self.place((*before, place, *after)) for place in range(len(self.axes[key])))
        return dict(zip(self.axes[key], places, strict=True))

    def to_json(self) -> str:
        """Return the grid as the page embeds it; nothing in it ends a script element."""
        text = json.dumps(plain(self), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        return text.replace("<", "\\u003c")


def grid(
    answer: Estimate,
    values: Mapping[str, object],
    varied: Mapping[str, list[Any]],
    profiles: Path | None = None,
) -> Grid:
    """Price everything around a question.

    Parameters
    ----------
    answer
        The answer to the question.
    values
        Checked values of the question by dotted key.
    varied
        Values of the axes that the user chose, the question's first.
    profiles
        Folder whose hardware profiles come before the shipped ones.

    Raises
    ------
    SpecError
        There are more than `MOST_PLANS` combinations.

    """
    from zeroplan.search.sweep import sweep  # noqa: PLC0415  # numpy and pandas, for a page only

    catalogue = load_catalogue(profiles)
    axes = {key: _values(key, answer, varied, catalogue) for key in AXES}
    plans = prod(map(len, axes.values()))
    if plans > MOST_PLANS:
        raise SpecError(
            f"{plans:,} plans are too many for one page: name fewer values of "
            f"{', '.join(varied)}, at most {MOST_PLANS:,} combinations."
        )
    asked = flatten(plain(answer.inputs))
    strategy = asked[AXES[0]] or chosen(answer).strategy
    at = {**asked, AXES[0]: strategy}
    fixed = {key: value for key, value in values.items() if key not in AXES}
    keys: dict[str, Any] = fixed | {key: list(each) for key, each in axes.items()}
    table = sweep(profiles=profiles, **keys)
    gpu = catalogue.gpu(answer.inputs.cluster.gpu or "")
    peak, reserved, device = (
        table[name] for name in ("peak_allocated_bytes", "reserved_bytes", "device_bytes")
    )
    parts = beyond(peak, reserved, device, gpu)
    verdicts, figures = _dense(table.assign(half_band_bytes=parts.half_band_bytes.round()), axes)
    return Grid(
        axes=axes,
        asked=tuple(axes[key].index(at[key]) for key in AXES),
        names={
            link: _name(catalogue.link(link), axes["cluster.gpus"], answer, catalogue)
            for link in axes["cluster.link"]
        },
        usable_bytes=answer.estimates[0].memory.usable_bytes or 0,
        gpus_per_node=answer.inputs.cluster.gpus_per_node or answer.inputs.cluster.gpus,
        gradient_accumulation_steps=answer.inputs.training.gradient_accumulation_steps,
        verdicts=verdicts,
        figures=figures,
    )


def _values(
    key: str, answer: Estimate, varied: Mapping[str, list[Any]], catalogue: Catalogue
) -> tuple[Any, ...]:
    """Return what an axis offers: what the user named, else what lies around the question."""
    if key == "cluster.link":
        return _links(answer, varied.get(key), catalogue)
    if key == "sharding.strategy":
        named = answer.inputs.sharding.strategy
        others = COMPARED if named is None or named in COMPARED else (named, *COMPARED)
        return tuple(varied.get(key, others))
    return tuple(sorted(varied.get(key) or _around(key, answer.inputs)))


def _around(key: str, run: Run) -> Iterable[int]:
    """Return numbers around the one asked for that can be."""
    if key == "cluster.gpus":
        gpus, per_node = run.cluster.gpus, run.cluster.gpus_per_node or run.cluster.gpus
        around = {int(gpus * 2.0**doubling) for doubling in DOUBLINGS}
        return (n for n in around if n % per_node == 0 < n or 0 < n < per_node)
    if key == "training.micro_batch_size":
        return {*SEQUENCES, run.training.micro_batch_size}
    length = run.training.sequence_length or 1
    longest = load_architecture(run.model.source).max_positions or length << LENGTHS[-1]
    around = {int(length * 2.0**doubling) for doubling in LENGTHS}
    return {n for n in around if 0 < n <= longest} | {length}


def _links(answer: Estimate, named: list[object] | None, catalogue: Catalogue) -> tuple[str, ...]:
    """Return ids of links, the widest first: words such as ib become what the GPU has."""
    gpu = catalogue.gpu(answer.inputs.cluster.gpu or "")
    words = map(str, named) if named else (word for word in LINKS if _has(gpu.usual_links, word))
    links = [usual_link(word, gpu, catalogue) for word in words]
    if not named:
        cluster = answer.inputs.cluster
        size = max(cluster.gpus, 2 * (cluster.gpus_per_node or 1))
        links = [link for link in links if not _unreal(link, (size,), answer, catalogue)]
    links.append(catalogue.link(answer.inputs.cluster.link or ""))
    links.sort(key=lambda link: -link.bandwidth_bytes_per_second.value)
    return tuple(dict.fromkeys(link.id for link in links))


def _unreal(link: Link, gpus: Iterable[int], answer: Estimate, catalogue: Catalogue) -> list[int]:
    """Return at which numbers of GPUs no machine has such a link between its nodes."""
    cluster = answer.inputs.cluster
    gpu, inside = catalogue.gpu(cluster.gpu or ""), catalogue.link(cluster.intra_link or "")
    node = cluster.gpus_per_node or cluster.gpus
    wires = fabric(intra=inside, inter=link, gpus_per_node=node, node=None, gpu=gpu)
    return [
        count
        for count in gpus
        if link.scope == "node"
        and count > node
        and hypothetical_notes(replace(cluster, gpus=count), gpu, wires, catalogue)
    ]


def _name(link: Link, gpus: Iterable[int], answer: Estimate, catalogue: Catalogue) -> str:
    """Return what a link is called, with the size from which it is hypothetical."""
    unreal = _unreal(link, gpus, answer, catalogue)
    return f"{link.name}, hypothetical from {min(unreal):,} GPUs" if unreal else link.name


def _has(usual: Mapping[str, object], word: str) -> bool:
    return word in usual or "-" in word


def _dense(
    table: "pd.DataFrame", axes: Mapping[str, tuple[Any, ...]]
) -> tuple[list[str | None], dict[str, list[float | None]]]:
    """Lay the rows of a sweep out in row-major order of the axes."""
    places = [0] * len(table)
    for key, values in axes.items():
        at = {value: place for place, value in enumerate(values)}
        column = table[key.rpartition(".")[2]]
        places = [done * len(values) + at[each] for done, each in zip(places, column, strict=True)]
    size = prod(map(len, axes.values()))
    verdicts: list[str | None] = [None] * size
    figures: dict[str, list[float | None]] = {name: [None] * size for name in FIGURES}
    for name, whole in figures.items():
        for place, value in zip(places, table[name].tolist(), strict=True):
            whole[place] = _short(value)
    for place, verdict in zip(places, table["verdict"], strict=True):
        verdicts[place] = verdict
    return verdicts, figures


def _short(value: float) -> float | None:
    """Return a figure with nine digits, whole numbers whole."""
    if isnan(value):
        return None
    return int(value) if float(value).is_integer() else float(f"{value:.9g}")
