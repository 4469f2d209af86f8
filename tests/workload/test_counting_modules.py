"""A module in memory is counted by its parameter objects, also on the meta device."""

from typing import Any

import pytest

from zeroplan.errors import UsageError
from zeroplan.workload.load import load_model

pytestmark = pytest.mark.torch


def _transformer(torch: Any, *, tied: bool) -> Any:
    """A plain torch model: nothing tells its family."""
    nn = torch.nn
    model = nn.Module()
    model.embedding = nn.Embedding(50, 8)
    model.blocks = nn.ModuleList(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(3)
    )
    model.norm = nn.LayerNorm(8)
    model.head = nn.Linear(8, 50, bias=False)
    if tied:
        model.head.weight = model.embedding.weight
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_weight_counts_once_even_where_it_has_no_address(tied: bool) -> None:
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = _transformer(torch, tied=tied)
    count = load_model(model)
    assert count.total_parameters == sum(p.numel() for p in model.parameters())
    assert count.tied is tied
    assert count.embedding_parameters == 400
    assert count.head_parameters == (0 if tied else 400)
    assert (count.blocks, count.hidden_size) == (3, 8)
    assert count.flop.matmul_flop == 2 * (3 * (4 * 8 * 8 + 2 * 8 * 16) + 400)


def test_frozen_weights_are_not_trainable() -> None:
    torch = pytest.importorskip("torch")
    model = _transformer(torch, tied=False)
    model.embedding.requires_grad_(False)
    count = load_model(model)
    assert count.total_parameters - count.trainable_parameters == 400


def test_a_model_of_transformers_is_counted_by_the_rule_of_its_family() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    count = load_model(model, 128)
    assert count.total_parameters == sum(p.numel() for p in model.parameters())
    assert count.architecture == "LlamaForCausalLM"
    assert count.flop.attention_flop == 4 * 2 * 64 * 128


def test_a_headless_model_is_counted_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100)
    with torch.device("meta"):
        model = transformers.GPT2Model(config)
    count = load_model(model)
    assert count.total_parameters == sum(p.numel() for p in model.parameters())
    assert count.blocks == 2


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(UsageError, match="int is no model"):
        load_model(3)  # type: ignore[arg-type] # the mistake under test
