"""What lives after a forward pass, to the byte, and the laws of coming and going."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.spec.models import architecture_of, load_architecture
from zeroplan.units import round_up
from zeroplan.workload.autograd import backward
from zeroplan.workload.batch import Batch
from zeroplan.workload.changes import Change, Checkpointing, Step
from zeroplan.workload.liveness import forward, recompute, saved_bytes, selected_storages
from zeroplan.workload.model import Unit, Workload, workload

MODES: tuple[Checkpointing, ...] = ("none", "selective", "full")
HOW: list[tuple[Checkpointing, bool]] = [
    ("none", False),
    ("selective", False),  # torch.utils.checkpoint refuses a reentrant one
    ("full", False),
    ("full", True),
]
"""Checkpointing, and whether it is reentrant."""


@pytest.mark.parametrize(
    ("model", "batch", "checkpointing", "measured"),
    [
        ("llama-3.1-8b", Batch(sequence_length=8192), "none", 48_396_010_496),
        ("llama-3.1-8b", Batch(sequence_length=8192), "full", 6_484_427_776),
        ("llama-3.1-8b", Batch(sequence_length=8192), "selective", 21_013_496_832),
        ("llama-3.1-8b", Batch(sequences=4, sequence_length=4096), "full", 12_968_854_528),
        ("llama-3.1-8b", Batch(sequence_length=4096, dtype="fp32"), "none", 46_276_822_016),
        (
            "llama-3.1-8b",
            Batch(sequence_length=4096, loss="model-dtype-logits"),
            "none",
            23_147_332_608,
        ),
        ("llama-3.1-8b", Batch(sequence_length=4096, norm="eager"), "none", 28_560_081_920),
        ("llama-3.1-8b", Batch(sequence_length=4096, attention="math"), "none", 60_688_450_560),
        (
            "llama-3.1-8b",
            Batch(
                sequences=2,
                sequence_length=8192,
                norm="eager",
                rope="complex",
                attention="flash-expanded-kv",
            ),
            "selective",
            42_295_428_096,
        ),
        ("llama-3.2-1b", Batch(sequences=4, sequence_length=2048), "none", 16_367_256_576),
        ("llama-2-7b", Batch(sequence_length=4096), "full", 1_665_156_096),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_forward_leaves_what_autograd_holds(
    model: str, batch: Batch, checkpointing: Checkpointing, measured: int
) -> None:
    """Measured by torch 2.13's FSDPMemTracker after a forward with its loss, on fake tensors."""
    work = workload(load_architecture(model), batch)
    kept = sum(_net(_forward(unit, _mode(unit, checkpointing))) for unit in work.units)
    assert kept == measured


@pytest.mark.parametrize(("compiled", "last_projection"), [(False, 65_536), (True, 0)])
def test_a_compiled_block_drops_a_kept_product_that_backward_never_reads(
    compiled: bool, last_projection: int
) -> None:
    """Saved tensors of the block under torch 2.13's Inductor, torchtitan's rule per operation.

    Query and value projections, attention with its log-sum-exp, the gate: those and nothing else.
    """
    config: dict[str, object] = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 704,
        "vocab_size": 512,
    }
    block = _workload(config, Batch(sequences=2, sequence_length=64, compile=compiled)).units[1]
    kept = sum(t.bytes for t in selected_storages(block))
    assert kept == 65_536 + 16_384 + 65_536 + 4_096 + 180_224 + last_projection


@st.composite
def configs(draw: st.DrawFn) -> dict[str, object]:
    """A small Llama-like model."""
    heads = draw(st.sampled_from([2, 4, 6]))
    return {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 8 * heads,
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([1, 2, heads])),
        "intermediate_size": draw(st.integers(min_value=1, max_value=99)),
        "vocab_size": draw(st.integers(min_value=1, max_value=999)),
        "tie_word_embeddings": draw(st.booleans()),
    }


BATCHES = st.builds(
    Batch,
    sequences=st.integers(min_value=1, max_value=3),
    sequence_length=st.integers(min_value=1, max_value=64),
    dtype=st.sampled_from(["bf16", "fp32"]),
    attention=st.sampled_from(["flash", "flash-expanded-kv", "math"]),
    norm=st.sampled_from(["fused", "eager"]),
    rope=st.sampled_from(["half", "complex"]),
    loss=st.sampled_from(
        ["fp32-logits", "model-dtype-logits", "compiled", "chunked", "fused-linear"]
    ),
)


@given(configs(), BATCHES)
def test_a_block_keeps_what_its_operations_save(config: dict[str, object], batch: Batch) -> None:
    """And its output, less the input: that was there before, and counts where it is saved."""
    block = _workload(config, batch).units[1]
    assert _net(_forward(block, "none")) == saved_bytes(block)  # output and input weigh the same


@given(configs(), BATCHES)
def test_checkpointing_never_raises_what_is_held(config: dict[str, object], batch: Batch) -> None:
    for unit in _workload(config, batch).units:
        kept = [_net(_forward(unit, mode)) for mode in MODES]
        assert kept == sorted(kept, reverse=True)


@given(configs(), BATCHES, st.sampled_from(HOW))
def test_backward_ends_where_forward_began_but_for_the_gradients(
    config: dict[str, object], batch: Batch, how: tuple[Checkpointing, bool]
) -> None:
    work = _workload(config, batch)
    net: Counter[str] = Counter()
    for change in _whole_pass(work, *how):
        net[change.category] += change.bytes
    gradients = sum(
        round_up(p.elements * work.batch.itemsize) for p in work.parameters if p.tied_to is None
    )
    assert net.pop("unsharded_gradients") == gradients
    assert not any(net.values())


@given(configs(), BATCHES, st.sampled_from(HOW))
def test_no_category_ever_holds_less_than_nothing(
    config: dict[str, object], batch: Batch, how: tuple[Checkpointing, bool]
) -> None:
    work = _workload(config, batch)
    live: Counter[str] = Counter()
    for change in _whole_pass(work, *how):
        live[change.category] += change.bytes
        assert live[change.category] >= 0


def _whole_pass(work: Workload, mode: Checkpointing, reentrant: bool) -> list[Change]:
    """Forward, then backward; what is no block is never checkpointed."""
    changes = [c for unit in work.units for c in _forward(unit, _mode(unit, mode))]
    for unit in reversed(work.units):
        how = _mode(unit, mode)
        if how != "none":
            changes += _changes(recompute(unit, how, reentrant=reentrant))
        changes += _changes(backward(unit, how, reentrant=reentrant))
    return changes


def _mode(unit: Unit, mode: Checkpointing) -> Checkpointing:
    return mode if unit.kind == "block" else "none"


def _workload(config: dict[str, object], batch: Batch) -> Workload:
    return workload(architecture_of(config, "test", "test"), batch)


def _forward(unit: Unit, mode: Checkpointing) -> list[Change]:
    return _changes(forward(unit, mode))


def _changes(steps: Iterable[Step]) -> list[Change]:
    return [change for step in steps for change in step.changes]


def _net(changes: Iterable[Change]) -> int:
    return sum(change.bytes for change in changes)
