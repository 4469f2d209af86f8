"""The record of one run: what ran, where, how it ended, and every figure that it showed.

A figure has the name that it has in an estimate, so that comparing is laying the two side by side.
None is what a backend cannot show: real memory on a CPU, collectives' times on fake tensors.
"""

import json
from collections.abc import Iterable
from statistics import median
from typing import Any, Final, Literal

from zeroplan import __version__
from zeroplan.records import dataclass
from zeroplan.rows import plain
from zeroplan.spec.run import Run
from zeroplan.spec.toml import to_dict
from zeroplan.validate.record import Backend, ModelClass, Observation

__all__ = [
    "SCHEMA_VERSION",
    "BusTime",
    "CollectivePoint",
    "CopyPoint",
    "Machine",
    "Measured",
    "MeasuredMemory",
    "MeasuredTime",
    "MicroBenches",
    "Outcome",
    "ProductPoint",
    "RunRecord",
    "Spread",
    "spread",
]

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One figure, measured several times."""

    median: float
    low: float
    high: float
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the run was on; nothing that names its owner."""

    gpu: str | None
    """As its driver calls it; None where there was none."""
    gpu_memory_bytes: int | None
    driver: str | None
    cpu: str
    cores: int
    system: str
    """Kernel and architecture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    kind: Literal["ok", "oom", "failed"]
    reason: str = ""
    """Why it failed, or which allocation did, in the framework's words."""
    requested_bytes: int | None = None
    """The allocation that failed. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Memory of one GPU over steady steps, as the allocator and the driver state it. [B]"""

    peak_allocated_bytes: Spread | None = None
    reserved_bytes: Spread | None = None
    device_bytes: Spread | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTime:
    """Steady steps on the clock. [s]"""

    step_seconds: Spread | None = None
    compute_seconds: Spread | None = None
    """Step less exposed communication."""
    optimizer_seconds: Spread | None = None
    communication_seconds: Spread | None = None
    exposed_communication_seconds: Spread | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BusTime:
    """Calls of one collective with one size in a step, on one rank."""

    name: str
    ranks: int
    count: int
    """In one step."""
    input_bytes: int
    """Of one call. [B]"""
    output_bytes: int
    seconds: Spread
    """Of one call, on its stream. [s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePoint:
    """One collective by itself, in the terms of the table of collectives."""

    collective: str
    n_gpus: int
    gpus_per_node: int
    n_nodes: int
    message_bytes: int
    """In nccl-tests' convention: the whole that is gathered or reduced. [B]"""
    in_place: bool
    seconds: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductPoint:
    """A matrix product of the model, [rows, inner] times [inner, columns]."""

    rows: int
    inner: int
    columns: int
    dtype: str
    seconds: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPoint:
    """A copy within the device's memory: so many bytes are read, and as many written."""

    bytes: int
    seconds: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBenches:
    """Kernels by themselves; empty where they were not asked for."""

    collectives: tuple[CollectivePoint, ...] = ()
    products: tuple[ProductPoint, ...] = ()
    copies: tuple[CopyPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run showed."""

    step: Observation
    memory: MeasuredMemory = MeasuredMemory()
    time: MeasuredTime = MeasuredTime()
    collectives: tuple[BusTime, ...] = ()
    micro_benches: MicroBenches = MicroBenches()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, whole."""

    inputs: Run
    """The run with every default in its place."""
    model_file: dict[str, Any] | None
    """Keys of the model file where the run names one by its path, which may be elsewhere later."""
    backend: Backend
    pretended: bool
    """Whether one rank ran and the others were pretended: then no collective took its real time."""
    model_class: ModelClass
    machine: Machine
    versions: dict[str, str]
    """Of python, torch, CUDA, NCCL and zeroplan, as far as they took part."""
    date: str
    """Day of the run, ISO 8601."""
    notes: tuple[str, ...]
    outcome: Outcome
    measured: Measured | None
    """None where the run did not end well."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values, in the order of the JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "zeroplan_version": __version__,
            **plain(self),
            "inputs": to_dict(self.inputs),
        }

    def to_json(self) -> str:
        """Return the record as one JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)


def spread(values: Iterable[float]) -> Spread:
    """Return median, lowest and highest of at least one value."""
    known = sorted(values)
    return Spread(median=median(known), low=known[0], high=known[-1], repeats=len(known))
