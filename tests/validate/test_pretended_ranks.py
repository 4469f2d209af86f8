"""One rank whose others are pretended: the real framework on real tensors, at any world size.

On a GPU the same lines run with its allocator and its clock; here a ledger stands for the first.
"""

from collections.abc import Callable
from typing import Any

import pytest

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule import script
from zeroplan.spec.toml import load_spec
from zeroplan.validate.differences import differences
from zeroplan.validate.measurement import Measured
from zeroplan.validate.prediction import predicted
from zeroplan.validate.quiet import quiet
from zeroplan.validate.record import PHASES

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # PyTorch's own, when its parts are imported
]

torch = pytest.importorskip("torch")

SMALL: dict[str, Any] = {"sequence_length": 64, "activation_checkpointing": "none"}
TOLERANCE = 0.001
SCALARS_BYTES = 4 * 512
"""What the loss leaves for a step on the CPU: a few scalars, each rounded up."""

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "8 ranks, checkpointed": (8, {"activation_checkpointing": "full"}),
    "64 ranks, fused": (64, {"optimizer_implementation": "fused"}),
    "512 ranks, selective": (512, {"activation_checkpointing": "selective"}),
    "kept after forward": (64, {"reshard_after_forward": False}),
    "two micro-steps, clipped": (
        8,
        {"gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "root_wrap": "separate"},
    ),
    "hsdp": (16, {"strategy": "hsdp", "shard_size": 8}),
    "ddp": (8, {"strategy": "ddp"}),
    "torch-zero1": (3, {"strategy": "torch-zero1", "precision": "fp32", "gpus_per_node": 3}),
    "fsdp1": (8, {"strategy": "fsdp1"}),
}


def _pretend(model: str, ranks: int, keys: dict[str, Any], *, benches: bool = False) -> Any:
    """Run in this process; return prediction and figures."""
    from zeroplan.validate.pytorch.environment import fake_group  # noqa: PLC0415  # imports torch
    from zeroplan.validate.pytorch.job import Job, measured, pretended_rank  # noqa: PLC0415

    question = resolve(load_spec(model=model, gpus=ranks, **{"strategy": "fsdp2", **SMALL, **keys}))
    plan = plan_for(question, question.strategies[0], {})
    job = Job(
        run=question.run,
        backend="cpu",
        model_class="own",
        profiles=None,
        limit_seconds=60,
        pretended=True,
        micro_benches=benches,
    )
    with quiet(), fake_group(ranks, pretended_rank(job, ranks)):
        found = measured(job, torch.device("cpu"))
    return predicted(script(plan), updates=plan.runs_before_update), found


@pytest.mark.parametrize(("ranks", "keys"), CASES.values(), ids=CASES)
def test_a_pretended_job_shows_what_was_predicted(
    llama: str, ranks: int, keys: dict[str, Any]
) -> None:
    expected, found = _pretend(llama, ranks, keys)
    lines = differences(expected, found.step)
    calls = [each for each in lines if each.kind in ("calls", "message")]
    assert calls
    assert [each for each in calls if each.predicted != each.measured] == []
    for phase in PHASES:
        seen = getattr(found.step.peak_by_phase_bytes, phase)
        off = abs(getattr(expected.peak_by_phase_bytes, phase) - seen)
        assert off <= max(SCALARS_BYTES, TOLERANCE * seen), phase


def test_a_gather_is_one_copy_and_a_reduction_takes_this_rank_s_part() -> None:
    from zeroplan.validate.pytorch import pretend  # noqa: PLC0415  # imports torch

    whole = torch.zeros(12)
    whole[:3] = torch.tensor([1.0, 2.0, 3.0])
    torch.ops.zeroplan.all_gather(whole, whole[:3])
    assert whole.tolist() == [1.0, 2.0, 3.0] * 4
    part = torch.empty(4)
    torch.ops.zeroplan.reduce_scatter(part, torch.arange(12.0), 2)
    assert part.tolist() == [8.0, 9.0, 10.0, 11.0]
    assert pretend.NAMESPACE == "zeroplan"


def test_micro_benches_time_products_and_copies(llama: str) -> None:
    """Of 64 tokens: 256 to 256 and 128 (k and v), 704 and back, and the vocabulary."""
    _, found = _pretend(llama, 8, {}, benches=True)
    assert isinstance(found, Measured)
    benches = found.micro_benches
    forward = {(x.rows, x.inner, x.columns) for x in benches.products if x.rows == 64}
    widths = {(256, 256), (256, 128), (256, 704), (704, 256), (256, 1000)}
    assert {(64, inner, columns) for inner, columns in widths} <= forward
    assert {(256, 64, 704), (704, 64, 256)} & {
        (x.rows, x.inner, x.columns) for x in benches.products
    }
    assert benches.copies
    assert min(x.seconds.low for x in benches.products) > 0
    assert min(x.seconds.low for x in benches.copies) > 0
    assert benches.collectives == ()


def test_cycles_of_references_hold_no_memory_while_steps_are_timed(
    model_file: Callable[[str], str],
) -> None:
    """A GPU's timed steps look for none, so that none may grow."""
    from zeroplan.validate.pytorch.environment import (  # noqa: PLC0415  # imports torch
        by_reference_counts,
        fake_group,
    )
    from zeroplan.validate.pytorch.ledger import Ledger  # noqa: PLC0415
    from zeroplan.validate.pytorch.meters import Clock  # noqa: PLC0415
    from zeroplan.validate.pytorch.pretend import with_single_copies  # noqa: PLC0415
    from zeroplan.validate.pytorch.setup import make_setup, make_subject  # noqa: PLC0415
    from zeroplan.validate.pytorch.step import run_steps  # noqa: PLC0415

    asked = load_spec(
        model=model_file("llama"),
        gpus=8,
        strategy="fsdp2",
        sequence_length=64,
        activation_checkpointing="selective",
    )
    question = resolve(asked)
    plan = plan_for(question, question.strategies[0], {})
    ledger, clock = Ledger(), Clock(torch.device("cpu"))
    with quiet(), fake_group(8, 0), by_reference_counts(), ledger, ledger.following_resizes():
        setup = make_setup(make_subject(question, plan, "own"), plan, None, ledger)
        with_single_copies(setup.module)
        run_steps(setup, 2)
        before = ledger.total
        clock.mark()
        run_steps(setup, 3, clock)
        assert ledger.total - before < 3 * SCALARS_BYTES
    steps, updates = clock.seconds()
    assert len(steps) == len(updates) == 3
    assert all(0 < update < step for step, update in zip(steps, updates, strict=True))
