"""Parameters and FLOPs of known models, against what others published and counted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.spec.models import load_architecture
from zeroplan.workload.count import count_model, model_flop_per_token
from zeroplan.workload.load import load_model


def test_a_dense_model_meets_all_its_parameters_with_every_token() -> None:
    count = load_model("llama-3.1-8b")
    assert count.active_parameters_per_token == count.total_parameters == 8_030_261_248


@pytest.mark.published
@pytest.mark.parametrize(
    ("name", "active"),
    [("mixtral-8x7b", 12_879_925_248), ("deepseek-v3", 37_552_282_624)],
)
def test_a_mixture_of_experts_meets_the_chosen_ones(name: str, active: int) -> None:
    """12.9B: Jiang et al., arXiv 2401.04088, section 2; 37B: DeepSeek-AI, arXiv 2412.19437."""
    assert load_model(name).active_parameters_per_token == active


def test_the_head_of_a_tied_model_is_its_embedding() -> None:
    count = load_model("gpt2")
    assert count.tied
    assert count.head_parameters == 0
    assert count.embedding_parameters == 50_257 * 768
    assert count.non_embedding_parameters == 124_439_808 - 50_257 * 768


def test_forward_flops_are_two_per_weight_of_a_matmul_and_four_per_score() -> None:
    """Llama-3.1-8B: all but the embedding and the norms are matmuls; 32 layers of 4096."""
    count = load_model("llama-3.1-8b", 8192)
    weights = count.total_parameters - count.embedding_parameters - count.norm_parameters
    assert count.flop.matmul_flop == 2 * weights
    assert count.flop.attention_flop == 4 * 32 * 4096 * 8192
    assert count.flop.backward_flop == 2 * count.flop.forward_flop


def test_checkpointing_runs_the_blocks_again_but_not_the_head() -> None:
    count = load_model("llama-3.1-8b")
    assert count.flop.forward_flop - count.flop.recompute_flop == 2 * count.head_parameters


@given(st.integers(min_value=1, max_value=1 << 20))
def test_a_causal_mask_hides_no_more_than_half(length: int) -> None:
    flop = load_model("smollm-135m", length).flop
    assert flop.attention_flop / 2 <= flop.visible_attention_flop <= flop.attention_flop


@pytest.mark.published
def test_the_conventions_differ_as_their_authors_state() -> None:
    """6 N + 12 L d s of PaLM's appendix B, and what others take off or put on."""
    count = load_model("llama-3.1-8b")
    scores = 12 * 32 * 4096 * 8192
    flop = {
        "llm-foundry": model_flop_per_token(count, 8192),
        "torchtitan": model_flop_per_token(count, 8192, embeddings=False),
        "causal": model_flop_per_token(count, 8192, causal=True),
        "hardware": model_flop_per_token(count, 8192, recompute=True),
    }
    assert flop["llm-foundry"] == 6 * 8_030_261_248 + scores
    assert flop["llm-foundry"] - flop["torchtitan"] == 6 * 128_256 * 4096
    assert flop["llm-foundry"] - flop["causal"] == scores / 2
    assert flop["hardware"] * 3 == flop["llm-foundry"] * 4


def test_the_record_is_what_inspect_shows() -> None:
    shown = load_model("gpt2").to_dict()
    assert shown["total_parameters"] == 124_439_808
    assert shown["architecture"] == "GPT2LMHeadModel"
    assert shown["blocks"] == 12
    assert shown["hidden_size"] == 768
    forward = shown["forward_flop_per_token"]
    assert isinstance(forward, dict)
    assert forward["sequence_length"] == 1024  # all that its position table allows


def test_one_more_block_adds_one_block() -> None:
    architecture = load_architecture("llama-3.2-1b")
    (stack,) = architecture.stacks
    longer = replace(
        architecture, stacks=(replace(stack, blocks=(*stack.blocks, stack.blocks[0])),)
    )
    one = replace(architecture, stacks=(replace(stack, blocks=stack.blocks[:1]),))
    none = replace(architecture, stacks=(replace(stack, blocks=()),))
    total = [count_model(a, 8).total_parameters for a in (architecture, longer, one, none)]
    assert total[1] - total[0] == total[2] - total[3] > 0
