"""A mixture of experts keeps what transformers' grouped path keeps, in the shapes it keeps it."""

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.spec.moe import MixtureOfExperts, Router, Storage
from zeroplan.workload.batch import Batch
from zeroplan.workload.expert_loop import shares
from zeroplan.workload.moe import mixture_of_experts
from zeroplan.workload.tape import Tape

TOKENS: Final = 128
SMALL: Final = MixtureOfExperts(hidden=256, experts=8, experts_per_token=2, width=384)


def written(part: MixtureOfExperts, tokens: int = TOKENS, **keys: Any) -> Tape:
    """Return the tape of one mixture on bf16 tokens."""
    tape = Tape(Batch(**keys))
    mixture_of_experts(tape, tape.tensor("x", tokens, part.hidden), part)
    return tape


def saved_bytes(tape: Tape) -> int:
    """Sum the storages that autograd keeps, each once."""
    storages = {tensor.storage for operation in tape.operations for tensor in operation.saved}
    return sum(storage.bytes for storage in storages)


def shapes(part: MixtureOfExperts, role: str = "expert") -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of a role."""
    parameters = [p for operation in written(part).operations for p in operation.parameters]
    return [p.shape for p in parameters if p.role == role]


@pytest.mark.torch
@pytest.mark.parametrize(("experts", "chosen", "width"), [(8, 2, 384), (4, 1, 128), (16, 4, 64)])
@pytest.mark.parametrize(("form", "name"), [("grouped", "grouped_mm"), ("loop", "eager")])
def test_saved_tensors_are_those_of_transformers(
    experts: int, chosen: int, width: int, form: str, name: str
) -> None:
    """Equal to the byte for a real block of Qwen3-MoE, whatever experts the tokens chose."""
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("transformers.models.qwen3_moe.modeling_qwen3_moe")
    config = pytest.importorskip("transformers").Qwen3MoeConfig(
        hidden_size=256,
        moe_intermediate_size=width,
        num_experts=experts,
        num_experts_per_tok=chosen,
        norm_topk_prob=True,
    )
    config._experts_implementation = name  # noqa: SLF001 no public switch
    block = module.Qwen3MoeSparseMoeBlock(config).to(torch.bfloat16)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    own = {parameter.untyped_storage().data_ptr() for parameter in block.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(2, TOKENS // 2, 256, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(x)
    part = replace(SMALL, experts=experts, experts_per_token=chosen, width=width)
    assert saved_bytes(written(part, experts=form)) == sum(kept.values())


@given(
    routed=st.integers(1, 5000),
    experts=st.integers(1, 64),
    imbalance=st.floats(1, 100, allow_nan=False),
)
def test_the_loop_gives_every_routed_token_an_expert(
    routed: int, experts: int, imbalance: float
) -> None:
    rows = list(shares(routed, experts, imbalance))
    assert len(rows) == experts
    assert sum(rows) == routed
    assert min(rows) >= 0


def test_an_uneven_loop_keeps_as_much_and_its_fullest_expert_more() -> None:
    """Without expert parallelism the routed tokens are as many as ever."""
    even, uneven = (written(SMALL, experts="loop", expert_imbalance=each) for each in (1.0, 2.5))
    assert saved_bytes(even) == saved_bytes(uneven)
    gathered = [
        max(op.outputs[0].rows for op in tape.operations if op.name == "gathered tokens")
        for tape in (even, uneven)
    ]
    assert gathered == [TOKENS * 2 // 8, TOKENS * 2 // 8 * 2.5]


@pytest.mark.parametrize("step", [8, 16, 32])
def test_aligned_experts_have_room_for_the_worst_case(step: int) -> None:
    """torchtitan rounds n + E a up to a, whatever the experts get."""
    (rows,) = {
        op.outputs[0].rows
        for op in written(SMALL, expert_alignment=step).operations
        if op.name == "experts up"
    }
    assert rows == TOKENS * 2 + 8 * step


@given(
    tokens=st.integers(1, 4096),
    experts=st.integers(2, 64),
    width=st.integers(1, 512),
    data=st.data(),
)
def test_a_routed_token_keeps_four_hidden_and_eight_widths(
    tokens: int, experts: int, width: int, data: st.DataObject
) -> None:
    """One more expert per token adds n (4 h + 8 f) bytes, and a few small indices and scores."""
    chosen = data.draw(st.integers(1, experts - 1))
    less = replace(SMALL, experts=experts, experts_per_token=chosen, width=width)
    more = replace(less, experts_per_token=chosen + 1)
    added = saved_bytes(written(more, tokens)) - saved_bytes(written(less, tokens))
    indices_and_scores = 4 * 8 + 4 + 2
    assert added == tokens * (4 * 256 + 8 * width + indices_and_scores)


@given(tokens=st.integers(1, 4096), chosen=st.integers(1, 8))
def test_matmuls_run_over_routed_tokens_only(tokens: int, chosen: int) -> None:
    """Six multiply-adds' FLOPs per routed token and weight column, and the router's."""
    part = replace(SMALL, experts_per_token=chosen)
    flop = sum(operation.flop for operation in written(part, tokens).operations)
    assert flop == tokens * (chosen * 2 * 3 * 256 * 384 + 2 * 256 * 8)


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ("stacked", [(8, 768, 256), (8, 256, 384)]),
        ("flat", 3 * [(8 * 384, 256)]),
        ("modules", 16 * [(384, 256)] + 8 * [(256, 384)]),
    ],
)
def test_storage_decides_what_dim_0_is(storage: Storage, expected: list[tuple[int, ...]]) -> None:
    """Sharding divides the first extent: the experts, their rows, or one matrix at a time."""
    assert shapes(replace(SMALL, storage=storage)) == expected


def test_transposed_and_biased_experts_are_those_of_gpt_oss() -> None:
    """Weights [experts, in, out]; biases [experts, out], in the order in which they are read."""
    part = replace(SMALL, transposed=True, bias=True, router=Router(bias=True))
    assert shapes(part) == [(8, 256, 768), (8, 768), (8, 384, 256), (8, 256)]
    assert shapes(part, "router") == [(8, 256), (8,)]


def test_a_shared_expert_sees_every_token() -> None:
    """It costs like a dense layer, and its gate one logit."""
    shared = replace(SMALL, shared_width=512, shared_gate=True)
    assert shapes(shared, "mlp") == [(512, 256), (512, 256), (256, 512)]
    assert shapes(shared, "router") == [(8, 256), (1, 256)]
    flop = [sum(o.flop for o in written(part).operations) for part in (shared, SMALL)]
    assert flop[0] - flop[1] == TOKENS * (2 * 3 * 256 * 512 + 2 * 256)
