"""Latent attention: narrow weights, wide activations, an indexer without gradient."""

from dataclasses import replace
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from zeroplan.spec.latent_attention import Indexer, LatentAttention
from zeroplan.workload.batch import Batch
from zeroplan.workload.latent_attention import latent_attention
from zeroplan.workload.tape import Operation, Tape

SMALL: Final = LatentAttention(
    hidden=64, heads=4, query_rank=24, kv_rank=32, nope_dim=16, rope_dim=8, value_dim=12
)
INDEXER: Final = Indexer(heads=2, head_dim=16, keys=32)


def written(part: LatentAttention, sequence_length: int = 128) -> list[Operation]:
    """Return the operations of one layer on bf16 tokens."""
    tape = Tape(Batch(sequence_length=sequence_length))
    latent_attention(tape, tape.tensor("x", sequence_length, part.hidden), part)
    return tape.operations


def shapes(part: LatentAttention) -> dict[str, tuple[int, ...]]:
    """Return the parameters by name."""
    return {p.name: p.shape for operation in written(part) for p in operation.parameters}


def test_weights_are_those_of_deepseek() -> None:
    """Names and shapes of `DeepseekV3Attention` (transformers 5.24)."""
    assert shapes(SMALL) == {
        "q_a_proj.weight": (24, 64),
        "q_a_layernorm.weight": (24,),
        "q_b_proj.weight": (4 * 24, 24),
        "kv_a_proj_with_mqa.weight": (32 + 8, 64),
        "kv_a_layernorm.weight": (32,),
        "kv_b_proj.weight": (4 * (16 + 12), 32),
        "o_proj.weight": (64, 4 * 12),
    }


def test_without_a_query_rank_one_matrix_remains() -> None:
    """DeepSeek-V2-Lite."""
    queries = {name for name in shapes(replace(SMALL, query_rank=None)) if name.startswith("q_")}
    assert queries == {"q_proj.weight"}


def test_only_the_compressing_and_the_last_matrix_have_biases() -> None:
    """`attention_bias` of the configuration."""
    biases = {name for name in shapes(replace(SMALL, bias=True)) if name.endswith("bias")}
    assert biases == {"q_a_proj.bias", "kv_a_proj_with_mqa.bias", "o_proj.bias"}


@given(sequence_length=st.integers(1, 4096))
def test_keys_and_values_are_kept_for_every_head(sequence_length: int) -> None:
    """The kernel keeps expanded queries, keys, values (with the keys they were split from)."""
    (kernel,) = [o for o in written(SMALL, sequence_length) if o.name == "attention"]
    widths = sorted(tensor.storage.width for tensor in kernel.saved)
    assert widths == sorted([4 * 24, 4 * 24, 4 * (16 + 12), 4 * 12, 4])


@given(sequence_length=st.integers(1, 4096))
def test_values_may_be_narrower_than_keys(sequence_length: int) -> None:
    """Scores cost the query's width, their product with the values the value's."""
    (kernel,) = [o for o in written(SMALL, sequence_length) if o.name == "attention"]
    assert kernel.flop == 2 * sequence_length**2 * 4 * (24 + 12)


def test_the_indexer_costs_forward_only() -> None:
    """It runs under no_grad: parameters and FLOPs, nothing kept, no backward."""
    plain = {operation.name for operation in written(SMALL)}
    indexed = written(replace(SMALL, indexer=INDEXER))
    own = [operation for operation in indexed if operation.name not in plain]
    assert {p.shape for operation in own for p in operation.parameters} == {
        (2 * 16, 24),
        (16, 64),
        (16,),
        (2, 64),
    }
    assert sum(operation.flop for operation in own) > 0
    assert all(not operation.saved for operation in own)
    assert all(operation.backward_ratio == 0 for operation in own)


@given(sequence_length=st.integers(32, 4096))
def test_the_indexer_bounds_what_attention_reads(sequence_length: int) -> None:
    """Each query attends to at most so many keys."""
    (kernel,) = [
        operation
        for operation in written(replace(SMALL, indexer=INDEXER), sequence_length)
        if operation.name == "attention"
    ]
    assert kernel.flop == 2 * sequence_length * 32 * 4 * (24 + 12)
