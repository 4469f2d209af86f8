"""What would lower the peak: the changes that apply are tried, each with its price."""

from collections.abc import Iterator
from typing import Final

from zeroplan.estimation.changes import Candidate, remedy, tried_out
from zeroplan.estimation.explain_case import Case
from zeroplan.estimation.explain_record import Remedy
from zeroplan.estimation.record import PeakBreakdown, StrategyEstimate
from zeroplan.rows import plain
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.spec.applies import applies
from zeroplan.spec.reading import flatten
from zeroplan.spec.run import Strategy
from zeroplan.units import DTYPE_BYTES

__all__ = ["CHECKPOINTED", "OFFLOADED", "candidates", "remedies"]

LEAST_SHARE: Final = 0.01
"""Share of the peak that a change must save, and that what it acts on must have."""

MOST: Final = 8

NEXT: Final[dict[Strategy, tuple[Strategy, ...]]] = {
    "ddp": ("zero1", "fsdp2"),
    "torch-zero1": ("fsdp2",),
    "zero0": ("zero1",),
    "zero1": ("zero2", "zero3"),
    "zero2": ("zero3",),
    "zero3": ("fsdp2",),
    "fsdp1": ("fsdp2",),
    "hsdp": ("fsdp2",),
}
"""Strategies that divide more, or keep less beside what they divide."""


ACTIVATIONS: Final = ("activations", "temporaries")
STATES: Final = ("parameters", "gradients", "optimizer", "temporaries")
FROZEN: Final = ("parameters", "unsharded_parameters", "all_gather_buffers")
REDUCTION: Final = ("reduce_scatter_buffers", "unsharded_gradients", "gradients", "temporaries")

CHECKPOINTED: Final = Candidate(
    {"training.activation_checkpointing": "full"}, ACTIVATIONS, "every block runs forward twice"
)

OFFLOADED: Final = (
    Candidate({"sharding.offload_optimizer": "cpu"}, STATES, "the CPU updates, in its own memory"),
    Candidate(
        {"sharding.offload_parameters": "cpu"}, STATES, "shards come over PCIe for each gather"
    ),
)

CANDIDATES: Final = (
    CHECKPOINTED,
    Candidate(
        {"training.activation_checkpointing": "selective"},
        ACTIVATIONS,
        "all but attention and every second matmul run twice",
    ),
    Candidate(
        {"training.activation_checkpointing": "every-2"},
        ACTIVATIONS,
        "every second block runs forward twice",
    ),
    Candidate({"training.checkpoint_reentrant": False}, ACTIVATIONS, "nothing"),
    Candidate({"model.loss": "compiled"}, ("loss",), "compiling at the start"),
    Candidate({"model.loss": "chunked"}, ("loss",), "the head's matmul runs twice"),
    Candidate(
        {"model.loss": "fused-linear"}, ("loss",), "a custom kernel; gradients made in forward"
    ),
    Candidate({"model.loss": "model-dtype-logits"}, ("loss",), "less exact logits"),
    Candidate({"model.attention": "flash"}, ACTIVATIONS, "nothing: it is faster"),
    Candidate({"model.norm": "fused"}, ACTIVATIONS, "nothing: it is faster"),
    Candidate({"model.compile": True}, ACTIVATIONS, "compiling at the start"),
    Candidate({"training.optimizer_implementation": "fused"}, ("temporaries",), "nothing"),
    Candidate({"training.optimizer": "adamw-8bit"}, ("optimizer",), "states in 8 bits"),
    Candidate(
        {"training.offload_activations": True}, ACTIVATIONS, "what is kept crosses PCIe twice"
    ),
    Candidate({"training.reduce_dtype": "bf16"}, REDUCTION, "gradients are summed less exactly"),
    Candidate(
        {"sharding.root_wrap": "separate"}, ("unsharded_parameters",), "one more group to gather"
    ),
    Candidate(
        {"sharding.root_reshard_after_forward": True},
        ("unsharded_parameters",),
        "the root group is gathered twice",
    ),
    Candidate(
        {"sharding.reshard_after_forward": True},
        ("unsharded_parameters",),
        "parameters are gathered again in backward",
    ),
    Candidate(
        {"sharding.reshard_after_backward": True},
        ("unsharded_parameters",),
        "parameters are gathered in every micro-step",
    ),
    Candidate(
        {"sharding.synchronize_gradients": "every"},
        ("unsharded_gradients", "gradients"),
        "gradients are reduced in every micro-step",
    ),
    Candidate({"sharding.gradient_as_bucket_view": True}, ("gradients",), "nothing"),
    Candidate(
        {"sharding.deepspeed.reduce_bucket_size": 50_000_000},
        REDUCTION,
        "more and smaller reductions",
    ),
    Candidate({"sharding.deepspeed.overlap_comm": False}, REDUCTION, "reductions are waited for"),
    *OFFLOADED,
)


def remedies(case: Case) -> tuple[Remedy, ...]:
    """Return the changes that lower the peak, best first."""
    named = case.now.strategy
    tried = [
        remedy(candidate, case.now, then)
        for candidate in candidates(case)
        if (then := tried_out(case.question, named, candidate.keys, case.profiles)) is not None
    ]
    least = LEAST_SHARE * case.now.memory.peak_allocated_bytes
    found = [each for each in tried if each.saved_bytes >= least]
    return tuple(sorted(found, key=lambda each: -each.saved_bytes)[:MOST])


def candidates(case: Case) -> Iterator[Candidate]:
    """Yield the changes that this run has not made and whose target is large at its peak."""
    run = flatten(plain(case.question.run))
    resolved = run | _resolved(case.plan.dtypes)
    for each in (*CANDIDATES, *_of_this_run(case)):
        applying = all(applies(key, [case.now.strategy]) for key in each.keys)
        changes = any(resolved[key] != value for key, value in each.keys.items())
        if applying and changes and _weighs(each, case.now) and not _weaker(each, run):
            yield each


def _resolved(held: Dtypes) -> dict[str, object]:
    """Return the keys that are left to the framework, as it resolves them."""
    words = {size: dtype for dtype, size in DTYPE_BYTES.items() if dtype in ("fp32", "bf16")}
    return {
        "training.optimizer_implementation": held.implementation,
        "training.reduce_dtype": words[held.reduce],
    }


def _of_this_run(case: Case) -> Iterator[Candidate]:
    """Yield the changes whose values depend on the run's own."""
    run, row = case.question.run, case.plan.row
    training, gpus = run.training, run.cluster.gpus
    if training.micro_batch_size % 2 == 0:
        halves: dict[str, object] = {
            "training.micro_batch_size": training.micro_batch_size // 2,
            "training.gradient_accumulation_steps": training.gradient_accumulation_steps * 2,
        }
        why = "twice the micro-steps, smaller matmuls"
        yield Candidate(halves, ("activations", "loss", "temporaries"), why)
    for strategy in NEXT.get(row.strategy, ()):
        yield Candidate({"sharding.strategy": strategy}, STATES, "another wrapper")
    if run.tuning.lora_rank and run.tuning.base_quantization == "none":
        why = "frozen weights in 4 bits, made whole for every use"
        yield Candidate({"tuning.base_quantization": "nf4"}, FROZEN, why)
    if row.divides_optimizer and run.sharding.shard_size is None:
        yield Candidate({"cluster.gpus": 2 * gpus}, STATES, "twice the GPUs, twice the batch")


def _weighs(candidate: Candidate, now: StrategyEstimate) -> bool:
    peak: PeakBreakdown = now.memory.peak_breakdown_bytes
    acted_on = sum(getattr(peak, part) for part in candidate.lowers)
    return bool(acted_on >= LEAST_SHARE * now.memory.peak_allocated_bytes)


def _weaker(candidate: Candidate, run: dict[str, object]) -> bool:
    """Whether blocks are checkpointed whole already, so that any other rule keeps more."""
    key = "training.activation_checkpointing"
    return key in candidate.keys and run[key] == "full"
