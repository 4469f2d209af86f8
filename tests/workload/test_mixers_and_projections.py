"""State-space layers, linear attention, cross-attention and projections on the tape."""

from collections import Counter

import pytest

from zeroplan.spec.architecture import Attention, Component, Norm, Projection
from zeroplan.spec.mixers import GatedDeltaNet, Mamba, Mamba2
from zeroplan.workload.autograd import backward
from zeroplan.workload.batch import Batch
from zeroplan.workload.components import component
from zeroplan.workload.liveness import forward
from zeroplan.workload.model import Unit
from zeroplan.workload.projection import projection
from zeroplan.workload.tape import Operation, Tape, Tensor

BATCH = Batch(sequences=2, sequence_length=128)
MAMBA = Mamba(hidden=32, inner=64, state=8, kernel=4, time_step_rank=2, inner_norms=True)
MAMBA2 = Mamba2(hidden=32, inner=64, heads=4, groups=2, state=8, kernel=4, chunk=16)
DELTA = GatedDeltaNet(hidden=32, key_heads=2, value_heads=4, key_dim=8, value_dim=16, kernel=4)
CROSS = Attention(
    hidden=32,
    heads=4,
    kv_heads=4,
    head_dim=8,
    position="none",
    causal=False,
    memory_width=48,
    memory_positions=10,
)
COMPONENTS = [MAMBA, MAMBA2, DELTA, CROSS]


def written(part: Component) -> Unit:
    """Return a unit that holds one component."""
    tape = Tape(BATCH)
    x = tape.tensor("x", BATCH.tokens, 32)
    out = component(tape, x, part)
    tape.hold(x)
    return Unit(
        name="unit",
        kind="block",
        operations=tuple(tape.operations),
        input=x,
        output=out,
        gradient_itemsize=BATCH.parameter_itemsize,
    )


def named(unit: Unit, name: str) -> Operation:
    """Return the one operation of that name."""
    (found,) = (operation for operation in unit.operations if operation.name == name)
    return found


@pytest.mark.parametrize("part", COMPONENTS, ids=lambda part: type(part).__name__)
def test_what_forward_allocates_backward_frees(part: Component) -> None:
    """Nothing is left of a layer after its backward, and nothing is freed that never was."""
    unit = written(part)
    net: Counter[str] = Counter()
    for step in (*forward(unit), *backward(unit)):
        for change in step.changes:
            if change.category != "unsharded_gradients":
                net[change.category] += change.bytes
    # the input goes with the last that reads it, its gradient stays; so do output and gradient
    assert sum(net.values()) == 0


@pytest.mark.parametrize("part", COMPONENTS, ids=lambda part: type(part).__name__)
def test_a_matmul_costs_two_flop_per_weight_and_row(part: Component) -> None:
    """Holds for every projection of every mixer."""
    for operation in written(part).operations:
        if operation.kernel == "matmul":
            rows = operation.inputs[0].rows
            assert operation.flop == 2 * rows * operation.parameters[0].elements


def test_the_mamba2_scan_costs_its_chunked_products() -> None:
    """Dao and Gu, arXiv 2405.21060, section 6: within chunks by quadratic, between by states."""
    scores = 2 * 256 * 16 * (2 * 8)
    mixed = 2 * 256 * 16 * 64
    states = 2 * (2 * 256 * 8 * 64)
    assert named(written(MAMBA2), "scan").flop == scores + mixed + states


def test_the_delta_rule_costs_eight_products_a_head() -> None:
    """Three of a chunk with keys, two with values, three of keys with values."""
    each = 3 * 64 * 8 + 2 * 64 * 16 + 3 * 8 * 16
    assert named(written(DELTA), "scan").flop == 2 * 256 * each * 4


def test_cross_attention_reads_the_memory_alone() -> None:
    """Ten positions of each of two sequences, whatever the length of the decoder's own."""
    unit = written(CROSS)
    assert named(unit, "k_proj").inputs[0].rows == 20
    scores, _ = named(unit, "attention").matmuls
    assert (scores.m * scores.count, scores.n, scores.k) == (256 * 4, 10, 8)


def test_a_gated_attention_multiplies_its_output() -> None:
    """The query projection is twice as wide; queries and keys are normalised without the gate."""
    norm = Norm(kind="rms", width=8)
    part = Attention(
        hidden=32, heads=4, kv_heads=2, head_dim=8, gated=True, query_norm=norm, key_norm=norm
    )
    unit = written(part)
    assert named(unit, "q_proj").outputs[0].width == 64
    assert named(unit, "q_norm").inputs[0].width == 32
    assert named(unit, "gated attention").outputs[0].width == 32


def test_a_merger_lays_four_tokens_side_by_side() -> None:
    """The norm still sees each token by itself (Qwen2-VL's PatchMerger)."""
    part = Projection(
        name="merger",
        widths=(128, 128, 48),
        rate=(1, 4),
        activation="gelu",
        norm=Norm(kind="layer", width=32, bias=True),
    )
    tape = Tape(BATCH)
    out = projection(tape, tape.tensor("x", 64, 32), part, 64)
    assert (out.rows, out.width) == (16, 48)
    shapes = [p.shape for operation in tape.operations for p in operation.parameters]
    assert shapes == [(32,), (32,), (128, 128), (128,), (48, 128), (48,)]


def test_a_patch_embedding_is_a_product_of_unfolded_patches() -> None:
    """A convolution whose stride is its kernel: 3 x 14 x 14 values a patch."""
    part = Projection(name="patches", widths=(3, 32), kernel=(14, 14), bias=False)
    tape = Tape(BATCH)
    out: Tensor = projection(tape, None, part, 9)
    product = tape.operations[-1]
    assert (out.rows, out.width) == (9, 32)
    assert product.parameters[0].shape == (32, 3, 14, 14)
    assert product.flop == 2 * 9 * 32 * 588
