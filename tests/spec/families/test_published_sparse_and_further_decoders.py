"""Parameter counts of published mixtures of experts, latent-attention models and further decoders.

Keys are those of each model's config.json on the Hugging Face Hub; totals are the number of
parameters that its page shows there, or what `sum(p.numel() for p in model.parameters())` gives for
the class in transformers 5.24 where a buffer or a quantised checkpoint makes the page differ.
"""

from typing import Any, Final

import pytest

from zeroplan.spec.models import architecture_of
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.workload.batch import Batch
from zeroplan.workload.model import workload

pytestmark = pytest.mark.published


def shape(model_type: str, sizes: tuple[int, ...], **more: object) -> dict[str, object]:
    """Spell out what nearly every file has: hidden, width, layers, heads, vocabulary."""
    names = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    )
    return {"model_type": model_type, **dict(zip(names, sizes, strict=True)), **more}


DEEPSEEK_V3: Final = shape(
    "deepseek_v3",
    (7168, 18_432, 61, 128, 129_280),
    moe_intermediate_size=2048,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    first_k_dense_replace=3,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
DEEPSEEK_V2_LITE: Final = shape(
    "deepseek_v2",
    (2048, 10_944, 27, 16, 102_400),
    moe_intermediate_size=1408,
    n_routed_experts=64,
    n_shared_experts=2,
    num_experts_per_tok=6,
    first_k_dense_replace=1,
    q_lora_rank=None,
)
GLM_5: Final = shape(
    "glm_moe_dsa",
    (6144, 12_288, 78, 64, 154_880),
    moe_intermediate_size=2048,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    q_lora_rank=2048,
    kv_lora_rank=512,
    qk_nope_head_dim=192,
    qk_rope_head_dim=64,
    v_head_dim=256,
    index_head_dim=128,
    index_n_heads=32,
)
PHI_2: Final = {
    "model_type": "phi-msft",
    "n_embd": 2560,
    "n_head": 32,
    "n_head_kv": None,
    "n_inner": None,
    "n_layer": 32,
    "n_positions": 2048,
    "rotary_dim": 32,
    "vocab_size": 51_200,
}
CHATGLM3: Final = {
    "model_type": "chatglm",
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "ffn_hidden_size": 13_696,
    "hidden_size": 4096,
    "kv_channels": 128,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 32,
    "num_layers": 28,
    "padded_vocab_size": 65_024,
    "seq_length": 8192,
}
CHATGLM_6B: Final = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "inner_hidden_size": 16_384,
    "max_sequence_length": 2048,
    "num_attention_heads": 32,
    "num_layers": 28,
    "position_encoding_2d": True,
    "vocab_size": 130_528,
}
DBRX: Final = {
    "model_type": "dbrx",
    "d_model": 6144,
    "n_heads": 48,
    "n_layers": 40,
    "max_seq_len": 32_768,
    "vocab_size": 100_352,
    "attn_config": {"kv_n_heads": 8},
    "ffn_config": {"ffn_hidden_size": 10_752, "moe_num_experts": 16, "moe_top_k": 4},
}
QWEN1_5_MOE: Final = shape(
    "qwen2_moe",
    (2048, 5632, 24, 16, 151_936),
    moe_intermediate_size=1408,
    shared_expert_intermediate_size=5632,
    num_experts=60,
    num_experts_per_tok=4,
)


def nemotron_super_49b() -> dict[str, object]:
    """Build nvidia/Llama-3_3-Nemotron-Super-49B-v1: 49 blocks attend, 31 do not."""

    def blocks(factors: list[float], *, attends: bool) -> list[dict[str, object]]:
        attention = {"no_op": not attends, "n_heads_in_group": 8 if attends else None}
        return [{"attention": attention, "ffn": {"ffn_mult": factor}} for factor in factors]

    first = [1.3125, 2.625, 2.625, 1.3125, 5.25, 1.3125, 2.625, 1.3125, 1.3125, 1.3125]
    then = [1.3125, 1.0, 1.0, 1.3125, 1.0, 1.0, 1.0, 1.3125, 1.3125]
    last = [0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 1.0, 0.5, 0.5]
    configs = [
        *blocks([2.625, *5 * [5.25]], attends=True),
        *blocks([2.625, 2.625], attends=False),
        *blocks(3 * [5.25], attends=True),
        *blocks([3.28125], attends=False),
        *blocks(30 * [5.25], attends=True),
        *blocks(first, attends=False),
        *blocks([5.25], attends=True),
        *blocks([*then, *last], attends=False),
        *blocks(9 * [5.25], attends=True),
    ]
    sizes = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64}
    return {"model_type": "nemotron-nas", "vocab_size": 128_256, **sizes, "block_configs": configs}


PUBLISHED: Final[dict[str, tuple[dict[str, object], int]]] = {
    "chatglm-6b": (CHATGLM_6B, 6_173_286_400),
    "chatglm3-6b": (CHATGLM3, 6_243_584_000),
    "dbrx-base": (DBRX, 131_596_523_520),
    "deepseek-moe-16b": (
        shape(
            "deepseek",
            (2048, 10_944, 28, 16, 102_400),
            moe_intermediate_size=1408,
            n_routed_experts=64,
            n_shared_experts=2,
            num_experts_per_tok=6,
            first_k_dense_replace=1,
        ),
        16_375_728_128,
    ),
    "deepseek-v2-lite": (DEEPSEEK_V2_LITE, 15_706_484_224),
    "deepseek-v3": (DEEPSEEK_V3, 671_026_404_352),
    "deepseek-v3.2": (
        {**DEEPSEEK_V3, "model_type": "deepseek_v32", "index_n_heads": 64},
        671_877_929_216,
    ),
    "glm-4-9b": (
        {**CHATGLM3, "num_layers": 40, "padded_vocab_size": 151_552},
        9_399_951_360,
    ),
    "glm-5": (GLM_5, 743_911_199_232),
    "gpt-oss-120b": (
        shape(
            "gpt_oss",
            (2880, 2880, 36, 64, 201_088),
            head_dim=64,
            num_key_value_heads=8,
            num_local_experts=128,
            num_experts_per_tok=4,
        ),
        116_829_156_672,
    ),
    "internlm2-20b": (
        shape("internlm2", (6144, 16_384, 48, 48, 92_544), num_key_value_heads=8, bias=False),
        19_861_149_696,
    ),
    "internlm2-7b": (
        shape("internlm2", (4096, 14_336, 32, 32, 92_544), num_key_value_heads=8, bias=False),
        7_737_708_544,
    ),
    "mixtral-8x7b": (
        shape("mixtral", (4096, 14_336, 32, 32, 32_000), num_key_value_heads=8),
        46_702_792_704,
    ),
    "nemotron-super-49b": (nemotron_super_49b(), 49_867_145_216),
    "phi-2": (PHI_2, 2_779_683_840),
    "phi-1.5": (
        {**PHI_2, "model_type": "mixformer-sequential", "n_embd": 2048, "n_layer": 24},
        1_418_270_720,
    ),
    "phi-3.5-moe": (
        shape(
            "phimoe",
            (4096, 6400, 32, 32, 32_064),
            num_key_value_heads=8,
            attention_bias=True,
            lm_head_bias=True,
        ),
        41_873_153_344,
    ),
    "qwen1.5-moe-a2.7b": (QWEN1_5_MOE, 14_315_784_192),
    "seed-oss-36b": (
        shape("seed_oss", (5120, 27_648, 64, 80, 155_136), num_key_value_heads=8, head_dim=128),
        36_151_104_512,
    ),
    "stablelm-2-1.6b": (
        shape(
            "stablelm",
            (2048, 5632, 24, 32, 100_352),
            num_key_value_heads=32,
            use_qkv_bias=True,
        ),
        1_644_515_328,
    ),
    "stablelm-3b": (
        shape("stablelm_epoch", (2560, 6912, 32, 32, 50_304), num_key_value_heads=32),
        2_795_443_200,
    ),
}


@pytest.mark.parametrize(("keys", "total"), PUBLISHED.values(), ids=PUBLISHED)
def test_total_is_the_published_one(keys: dict[str, Any], total: int) -> None:
    """Every parameter once, buffers not."""
    assert parameters(keys) == total


def test_grok_1_has_the_314_billion_of_its_announcement() -> None:
    """Weights outside the one table that embedding and head share (github.com/xai-org/grok-1)."""
    keys = shape("grok-1", (6144, 32_768, 64, 48, 131_072), num_key_value_heads=8, num_experts=8)
    blocks = parameters(keys) - 131_072 * 6144
    assert blocks == pytest.approx(314e9, rel=0.005)


def test_kimi_k2_has_the_trillion_of_its_card() -> None:
    """One dense layer, 384 experts, and the names of DeepSeek-V3."""
    keys = {
        **DEEPSEEK_V3,
        "model_type": "kimi_k2",
        "first_k_dense_replace": 1,
        "n_routed_experts": 384,
        "num_attention_heads": 64,
        "vocab_size": 163_840,
    }
    assert parameters(keys) == pytest.approx(1.026e12, rel=0.001)


def test_renamed_experts_are_still_experts() -> None:
    """A copy of DeepSeek-V3 that circulates with a simulator renames two keys."""
    renamed = dict(DEEPSEEK_V3)
    renamed["num_routed_experts"] = renamed.pop("n_routed_experts")
    renamed["num_shared_experts"] = renamed.pop("n_shared_experts")
    assert parameters(renamed) == 671_026_404_352


def test_a_null_rank_is_not_an_absent_one() -> None:
    """An explicit null is one plain query projection; silence is the class's rank of 1536."""
    silent = {key: value for key, value in DEEPSEEK_V2_LITE.items() if key != "q_lora_rank"}
    assert parameters(silent) - parameters(DEEPSEEK_V2_LITE) == 42_508_800


def test_experts_count_once_per_token() -> None:
    """12.9 B of Mixtral's 46.7 B are active (Mixtral of Experts, arXiv 2401.04088, section 1)."""
    keys, total = PUBLISHED["mixtral-8x7b"]
    found = architecture_of(keys, "file", "mixtral")
    counted = workload(found, Batch(sequence_length=8))
    routed = sum(p.elements for p in counted.parameters if p.role == "expert")
    (part,) = {
        sublayer.component
        for block in found.stacks[0].blocks
        for sublayer in block.sublayers
        if isinstance(sublayer.component, MixtureOfExperts)
    }
    idle = routed * (part.experts - part.experts_per_token) // part.experts
    assert total - idle == 12_879_925_248


def parameters(keys: dict[str, Any]) -> int:
    """Count every parameter once."""
    counted = workload(architecture_of(keys, "file", "model"), Batch(sequence_length=8))
    return sum(p.elements for p in counted.parameters if p.tied_to is None)
