"""Why a step is slow: what its seconds are spent on, what goes through each NIC, what would help."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from zeroplan.estimation.break_even import Enough, enough_bandwidth, enough_tokens
from zeroplan.estimation.changes import Candidate, remedy, tried_out
from zeroplan.estimation.choice import Chosen, choose
from zeroplan.estimation.explain_case import Case, case_of
from zeroplan.estimation.explain_record import Remedy, document
from zeroplan.estimation.record import Group, StrategyEstimate
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.records import dataclass
from zeroplan.rows import html, plain
from zeroplan.sharding.strategies import COMPARED, STRATEGIES
from zeroplan.spec.applies import applies
from zeroplan.spec.reading import flatten
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec
from zeroplan.timing.walk import Timing

__all__ = ["Nics", "Part", "Waiting", "WhySlow", "parts_of", "reasons", "why_slow"]

Cause = Literal["compute", "memory_bandwidth", "host", "communication", "offload"]

LEAST_GAIN: Final = 0.01
"""Share of the tokens per second that a change must add."""

MOST: Final = 8

NOISE: Final = 1e-6
"""Seconds below which a difference is that of floating point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the step; together they are the step."""

    name: str
    cause: Cause
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """All calls of a collective in a group, and what they cost the step."""

    name: str
    group: Group
    wire_bytes: int
    seconds: float
    exposed_seconds: float
    """By how much the step would be shorter if they took no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nics:
    """What leaves a node."""

    link: str
    nics: float
    """Of a node."""
    bytes_per_nic: float
    """Sent in a step."""
    line_bytes_per_second: float
    """Of a NIC in one direction."""
    line_seconds: float
    """What they take at the line rate."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhySlow:
    """Why a step takes as long as it does."""

    inputs: Run
    chosen: str
    estimate: StrategyEstimate
    cause: Cause
    """What most of the step goes to."""
    parts: tuple[Part, ...]
    collectives: tuple[Waiting, ...]
    """Those that are waited for first."""
    nics: Nics | None
    """None on a single node."""
    tokens: Enough | None
    """Tokens of a GPU and micro-step that hide the communication; None where there is none."""
    bandwidth: Enough | None
    """Bandwidth of a node's NICs that does; of a GPU's link on a single node. [B/s]"""
    changes: tuple[Remedy, ...]
    """What would be faster, best first."""
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """Return the answer as one JSON document; a figure that is not a number is a bug."""
        return document(self)

    def _repr_html_(self) -> str:
        from zeroplan.estimation.advice_tables import slow_tables  # noqa: PLC0415  # a cycle

        return "".join(html(table) for table in slow_tables(self))


def why_slow(run: Run | None = None, *, profiles: Path | None = None, **keys: object) -> WhySlow:
    """Say what a step's seconds are spent on, and what would be faster.

    Parameters and errors are those of `explain`.

    Examples
    --------
    >>> why_slow(model="8b", gpus=16, link="ethernet-10g", strategy="fsdp2").cause
    'communication'

    """
    return reasons(resolve(load_spec(**keys) if run is None else run, profiles), profiles)


def reasons(question: Question, profiles: Path | None = None) -> WhySlow:
    """Do the same for a question whose model and hardware are there already."""
    chosen = choose(question)
    case = case_of(chosen.question, chosen.estimate, profiles)
    timing = case.walked(case.price, chosen.question.wires)
    parts = tuple(parts_of(timing, chosen.estimate))
    communicates = bool(chosen.estimate.communication.wire_bytes)
    return WhySlow(
        inputs=chosen.inputs,
        chosen=chosen.why,
        estimate=chosen.estimate,
        cause=_cause(parts),
        parts=parts,
        collectives=_collectives(case, timing),
        nics=_nics(case),
        tokens=enough_tokens(chosen.question, case.now, profiles) if communicates else None,
        bandwidth=enough_bandwidth(chosen.question, case.plan.row) if communicates else None,
        changes=_faster(chosen, profiles),
        notes=chosen.notes,
    )


def parts_of(timing: Timing, now: StrategyEstimate) -> Iterator[Part]:
    """Yield what the seconds of a step go to."""
    products = timing.matmul_seconds + timing.attention_seconds
    rest = timing.compute_seconds - products - timing.host_seconds
    waits = now.time.exposed_communication_seconds or 0.0
    yield Part(name="matmuls and attention", cause="compute", seconds=products)
    yield Part(name="other kernels and copies", cause="memory_bandwidth", seconds=rest)
    yield Part(name="gaps until the host issues", cause="host", seconds=timing.host_seconds)
    yield Part(name="waiting for communication", cause="communication", seconds=waits)
    offload = now.time.exposed_offload_seconds or 0.0
    yield Part(name="waiting for the host's memory", cause="offload", seconds=offload)


def _cause(parts: tuple[Part, ...]) -> Cause:
    return max(parts, key=lambda part: part.seconds).cause


def _collectives(case: Case, timing: Timing) -> tuple[Waiting, ...]:
    """Replay the step without the time of each collective in turn."""
    calls = case.now.communication.collectives
    found = []
    for name, group in dict.fromkeys((call.name, call.group) for call in calls):
        alike = [call for call in calls if (call.name, call.group) == (name, group)]
        without = case.walked(case.price, case.question.wires, frozenset({(name, group)}))
        saved = timing.step_seconds - without.step_seconds
        found.append(
            Waiting(
                name=name,
                group=group,
                wire_bytes=sum(call.wire_bytes for call in alike),
                seconds=sum(call.seconds or 0.0 for call in alike),
                exposed_seconds=saved if saved > NOISE else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.exposed_seconds, -each.seconds)))


def _nics(case: Case) -> Nics | None:
    cluster, wires = case.question.run.cluster, case.question.wires
    if cluster.gpus <= wires.gpus_per_node:
        return None
    line = wires.node_bytes_per_second / wires.nics
    node = case.now.communication.inter_node_wire_bytes * wires.gpus_per_node
    return Nics(
        link=wires.inter.id,
        nics=wires.nics,
        bytes_per_nic=node / wires.nics,
        line_bytes_per_second=line,
        line_seconds=node / wires.nics / line,
    )


def _faster(chosen: Chosen, profiles: Path | None) -> tuple[Remedy, ...]:
    """Try what may be faster; what fits comes first, then what gains most."""
    now = chosen.estimate
    rate = now.time.tokens_per_second_per_gpu or 0.0
    tried = (
        remedy(candidate, now, then)
        for candidate in _candidates(chosen)
        if (then := tried_out(chosen.question, now.strategy, candidate.keys, profiles)) is not None
    )
    better = [each for each in tried if each.tokens_per_second_per_gpu > (1 + LEAST_GAIN) * rate]
    better.sort(key=lambda each: (each.verdict == "does_not_fit", -each.tokens_per_second_per_gpu))
    return tuple(better[:MOST])


KEYS: Final[tuple[tuple[dict[str, object], str], ...]] = (
    ({"sharding.reshard_after_forward": False}, "parameters stay gathered until backward"),
    ({"sharding.synchronize_gradients": "last"}, "no_sync: gradients pile up whole"),
    ({"sharding.all_reduce": "last"}, "copies are summed in the last micro-step alone"),
    ({"sharding.deepspeed.overlap_comm": True}, "reductions beside backward, a second bucket"),
    ({"sharding.deepspeed.zero_quantized_weights": True}, "qwZ: parameters gathered as int8"),
    ({"sharding.deepspeed.zero_quantized_gradients": True}, "qgZ: gradients reduced as int4"),
    ({"training.activation_checkpointing": "none"}, "blocks run forward once"),
    ({"training.activation_checkpointing": "selective"}, "matmuls are not all run twice"),
    ({"training.optimizer_implementation": "fused"}, "one kernel for the update"),
    ({"training.reduce_dtype": "bf16"}, "gradients are summed less exactly"),
    ({"model.compile": True}, "compiling at the start"),
    ({"model.attention": "flash"}, "nothing"),
    ({"model.norm": "fused"}, "nothing"),
    ({"model.loss": "compiled"}, "compiling at the start"),
    (
        {"sharding.offload_parameters": "none", "sharding.offload_optimizer": "none"},
        "all on the GPU",
    ),
    ({"training.offload_activations": False}, "what is kept stays on the GPU"),
    ({"cluster.backend": "nccl"}, "nothing"),
)


def _candidates(chosen: Chosen) -> Iterator[Candidate]:
    """Yield the changes that this run has not made."""
    named, run = chosen.estimate.strategy, flatten(plain(chosen.question.run))
    for keys, why in (*KEYS, *_of_this_run(chosen)):
        strategy = keys.get("sharding.strategy", named)
        applying = all(applies(key, [strategy]) for key in keys)  # type: ignore[list-item]  # a word of the table
        if applying and any(run[key] != value for key, value in keys.items()):
            yield Candidate(keys, (), why)


def _of_this_run(chosen: Chosen) -> Iterator[tuple[dict[str, object], str]]:
    run, named = chosen.question.run, chosen.estimate.strategy
    training, per_node = run.training, chosen.question.wires.gpus_per_node
    batch, steps = training.micro_batch_size, training.gradient_accumulation_steps
    for strategy in COMPARED:
        several = run.cluster.gpus > per_node
        if strategy != named and (several or not STRATEGIES[strategy].replicates):
            yield {"sharding.strategy": strategy}, "another wrapper"
    if run.cluster.gpus > per_node and run.sharding.deepspeed.zero_hpz_partition_size == 1:
        hpz = "hpZ: a second copy of the parameters, divided inside the node"
        yield {"sharding.deepspeed.zero_hpz_partition_size": per_node}, hpz
    for factor in dict.fromkeys((2, steps)):
        if factor > 1 and steps % factor == 0:
            keys: dict[str, object] = {
                "training.micro_batch_size": batch * factor,
                "training.gradient_accumulation_steps": steps // factor,
            }
            yield keys, "fewer micro-steps, the same batch"
    if steps == 1:
        yield {"training.micro_batch_size": 2 * batch}, "twice the batch"
        accumulated = {"training.gradient_accumulation_steps": 4}
        last: dict[str, object] = {**accumulated, "sharding.synchronize_gradients": "last"}
        yield last, "four times the batch, reduced once (no_sync)"
