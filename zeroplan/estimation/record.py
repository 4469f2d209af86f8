"""The answer: what `estimate` returns and what its JSON holds, field for field and in this order.

A field is None, and null in JSON, where the figure is not known; an assumption then says why.
"""

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from zeroplan import __version__
from zeroplan.estimation.hypothetical import HYPOTHETICAL
from zeroplan.records import dataclass
from zeroplan.rows import frame, html, plain, significant
from zeroplan.spec.run import Run, Strategy
from zeroplan.spec.toml import to_dict
from zeroplan.units import GIB

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Assumption",
    "Budget",
    "Collective",
    "Communication",
    "Estimate",
    "Memory",
    "PeakBreakdown",
    "PhasePeaks",
    "StrategyEstimate",
    "Time",
    "Verdict",
]

SCHEMA_VERSION: Final = 1

Bound = Literal["compute", "communication", "memory_bandwidth", "offload"]
Group = Literal["shard", "secondary", "replicate", "world", "intra", "inter"]
Kind = Literal["datasheet", "measured", "fitted", "assumed"]
Phase = Literal["forward", "backward", "optimizer"]
Verdict = Literal["fits", "tight", "does_not_fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A figure that the answer rests on, and where it comes from."""

    name: str
    value: float | str | None
    unit: str
    kind: Kind
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakBreakdown:
    """What is live at the moment of the peak; its sum is `peak_allocated_bytes` [B]."""

    parameters: int
    unsharded_parameters: int
    gradients: int
    unsharded_gradients: int
    optimizer: int
    activations: int
    loss: int
    all_gather_buffers: int
    reduce_scatter_buffers: int
    temporaries: int
    workspaces: int
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeaks:
    """The highest tensor bytes of each phase [B]."""

    forward: int
    backward: int
    optimizer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of the fullest GPU in steady state [B]."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    peak_tensor_bytes: int
    peak_allocated_bytes: int
    peak_moment: str
    peak_breakdown_bytes: PeakBreakdown
    peak_by_phase_bytes: PhasePeaks
    reserved_bytes: int | None
    device_bytes: int | None
    usable_bytes: int | None
    headroom_bytes: int | None
    host_bytes: int
    """Host memory of a node: what is offloaded, and the processes."""
    host_load_bytes: int
    """The same while the weights are read, as `training.load` says."""
    host_save_bytes: int
    """The same while a full state dict is gathered by one rank, where parameters are sharded."""
    nvme_bytes: int
    """What a node keeps on its drives."""
    checkpoint_bytes: int
    """Parameters and optimizer states on disk, of the whole job."""
    host_memory_bytes: int | None
    """What a node has."""
    host_verdict: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """All calls of one collective in one phase and group of a step, on one rank."""

    name: Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all"]
    phase: Phase
    group: Group
    count: int
    input_bytes: int
    output_bytes: int
    wire_bytes: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """What a step sends, per GPU [B]."""

    collectives: tuple[Collective, ...]
    wire_bytes: int
    inter_node_wire_bytes: int

    def seconds(self, name: str) -> float | None:
        """Return the time of all collectives of one name [s]."""
        times = [each.seconds for each in self.collectives if each.name == name]
        known = [seconds for seconds in times if seconds is not None]
        return sum(known) if len(known) == len(times) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """How long a step takes, and what that makes of the GPU."""

    step_seconds: float | None
    compute_seconds: float | None
    optimizer_seconds: float | None
    communication_seconds: float | None
    exposed_communication_seconds: float | None
    offload_seconds: float | None
    """Copies to and from the host, what the CPU computes, what a drive reads and writes."""
    exposed_offload_seconds: float | None
    """By how much longer the compute stream waits for that."""
    low_seconds: float | None
    high_seconds: float | None
    bound_by: Bound | None
    tokens_per_second_per_gpu: float | None
    model_flops_utilization: float | None
    hardware_flops_utilization: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a number of tokens takes, each figure with the ends of the step time's band."""

    tokens: int
    steps: int
    """Whole steps; the last one goes a little beyond."""
    run_seconds: float
    low_run_seconds: float
    high_run_seconds: float
    gpu_seconds: float
    """Of all GPUs together."""
    low_gpu_seconds: float
    high_gpu_seconds: float
    price_usd_per_gpu_hour: float | None
    price_source: str | None
    cost_usd: float | None
    low_cost_usd: float | None
    high_cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyEstimate:
    """The answer for one strategy."""

    strategy: Strategy
    verdict: Verdict
    memory: Memory
    communication: Communication
    time: Time
    budget: Budget | None = None
    """Where a number of tokens is asked for."""

    @property
    def fits(self) -> bool:
        """Whether GPU and host hold it at all; a tight one does, an unknown host too."""
        return "does_not_fit" not in (self.verdict, self.memory.host_verdict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Estimate:
    """The whole answer: the question as it was understood, and every strategy side by side."""

    inputs: Run
    """The run with every default in its place that does not depend on the strategy."""
    total_parameters: int
    """Adapters included, weights that are quantised at their full number."""
    trainable_parameters: int
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]
    """What was ignored or chosen, in words."""
    estimates: tuple[StrategyEstimate, ...]

    @property
    def fits(self) -> bool:
        """Whether at least one strategy fits."""
        return any(each.fits for each in self.estimates)

    @property
    def fastest(self) -> StrategyEstimate | None:
        """The strategy that fits with the shortest step, the first of equals."""
        timed = [each for each in self.estimates if each.fits and each.time.step_seconds]
        return min(timed, key=lambda each: each.time.step_seconds or 0.0, default=None)

    @property
    def hypothetical(self) -> tuple[str, ...]:
        """What cannot be bought at this size, in words."""
        return tuple(note for note in self.notes if note.startswith(HYPOTHETICAL))

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, in the order of the JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "zeroplan_version": __version__,
            "inputs": to_dict(self.inputs),
            "total_parameters": self.total_parameters,
            "trainable_parameters": self.trainable_parameters,
            "assumptions": plain(self.assumptions),
            "notes": plain(self.notes),
            "estimates": plain(self.estimates),
        }

    def to_json(self) -> str:
        """Return the answer as one JSON document; a figure that is not a number is a bug."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per strategy and one column per figure, in SI base units."""
        return frame(plain(self.estimates), index="strategy")

    def __repr__(self) -> str:
        return f"Estimate({self.inputs.model.source}: {'; '.join(map(_line, self.estimates))})"

    def _repr_html_(self) -> str:
        from zeroplan.estimation.tables import tables  # noqa: PLC0415  # a cycle

        shown = tables(self)
        return "".join(map(html, shown))


def _line(each: StrategyEstimate) -> str:
    verdict = each.verdict.replace("_", " ")
    return f"{each.strategy} {verdict}, {significant(each.memory.peak_allocated_bytes / GIB)} GiB"
