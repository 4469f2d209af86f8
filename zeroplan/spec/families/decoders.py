"""Further kin of Llama: InternLM, ERNIE, Seed-OSS, Helium, EXAONE, Hunyuan, Arcee, MiniCPM.

Defaults are those of the configuration classes of transformers 5.24; a family whose class is
published beside its weights names it.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import Architecture, Attention, Block, Mlp, Norm, Sublayer
from zeroplan.spec.families.experts import head_norms
from zeroplan.spec.families.shape import (
    Defaults,
    decoder,
    read_shape,
    rms_norm,
    sliding,
    uniform,
    window,
)
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]

LLAMA: Final = Defaults(
    vocabulary=32_000, hidden=4096, width=11_008, layers=32, heads=32, positions=2048
)
INTERNLM: Final = replace(LLAMA, vocabulary=103_168)
INTERNLM3: Final = replace(LLAMA, vocabulary=128_512, positions=32_768)
ERNIE: Final = Defaults(
    vocabulary=103_424,
    hidden=1024,
    width=3072,
    layers=18,
    heads=16,
    kv_heads=2,
    head_dim=128,
    positions=131_072,
    tied=True,
)
SEED_OSS: Final = Defaults(
    vocabulary=155_136,
    hidden=4096,
    width=27_648,
    layers=64,
    heads=80,
    kv_heads=8,
    head_dim=128,
    positions=524_288,
)
HELIUM: Final = Defaults(
    vocabulary=48_000,
    hidden=2560,
    width=7040,
    layers=24,
    heads=20,
    kv_heads=20,
    head_dim=128,
    positions=4096,
)
EXAONE4: Final = Defaults(
    vocabulary=102_400, hidden=4096, width=16_384, layers=32, heads=32, positions=2048
)
HUNYUAN: Final = replace(LLAMA, vocabulary=290_943)
ARCEE: Final = replace(LLAMA, hidden=2560, width=18_432, positions=4096, activation="relu2")
MINISTRAL3: Final = replace(
    LLAMA,
    vocabulary=131_072,
    width=14_336,
    layers=34,
    kv_heads=8,
    head_dim=128,
    positions=262_144,
)


def internlm(keys: Keys, name: str) -> Architecture:
    """InternLM (`InternLMConfig` beside the weights): one switch for the attention's biases."""
    shape = read_shape(keys, INTERNLM)
    bias = keys.flag("bias", default=True)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias)
    return uniform(keys, name, replace(shape, attention=attention))


def internlm2(keys: Keys, name: str) -> Architecture:
    """InternLM 2 (`InternLM2Config` beside the weights): one fused projection."""
    shape = read_shape(keys, INTERNLM)
    bias = keys.flag("bias", default=True)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias, fused_qkv=True)
    return uniform(keys, name, replace(shape, attention=attention))


def internlm3(keys: Keys, name: str) -> Architecture:
    """InternLM 3 (`InternLM3Config`): switches for the QKV biases and for all the others."""
    shape = read_shape(keys, INTERNLM3)
    bias = keys.flag("bias", default=False)
    qkv_bias = keys.flag("qkv_bias", default=False)
    attention = replace(shape.attention, qkv_bias=qkv_bias, output_bias=bias)
    return uniform(
        keys, name, replace(shape, attention=attention, mlp=replace(shape.mlp, bias=bias))
    )


def ernie4_5(keys: Keys, name: str) -> Architecture:
    """ERNIE 4.5, dense (`Ernie4_5Config`)."""
    shape = read_shape(keys, ERNIE)
    bias = keys.flag("use_bias", default=False)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias)
    return uniform(
        keys, name, replace(shape, attention=attention, mlp=replace(shape.mlp, bias=bias))
    )


def seed_oss(keys: Keys, name: str) -> Architecture:
    """Seed-OSS (`SeedOssConfig`): separate switches for the biases."""
    shape = read_shape(keys, SEED_OSS)
    attention = replace(
        shape.attention,
        qkv_bias=keys.flag("attention_bias", default=True),
        output_bias=keys.flag("attention_out_bias", default=False),
    )
    mlp = replace(shape.mlp, bias=keys.flag("mlp_bias", default=False))
    return uniform(keys, name, replace(shape, attention=attention, mlp=mlp))


def helium(keys: Keys, name: str) -> Architecture:
    """Helium (`HeliumConfig`): its output projection has no bias."""
    shape = read_shape(keys, HELIUM)
    attention = replace(shape.attention, qkv_bias=keys.flag("attention_bias", default=False))
    mlp = replace(shape.mlp, bias=keys.flag("mlp_bias", default=False))
    return uniform(keys, name, replace(shape, attention=attention, mlp=mlp))


def exaone(keys: Keys, name: str) -> Architecture:
    """EXAONE 3 and 3.5 (`ExaoneConfig` beside the weights): Llama under a few other names."""
    return uniform(keys, name, read_shape(keys, replace(LLAMA, tied=True)))


def minicpm(keys: Keys, name: str) -> Architecture:
    """MiniCPM 1 and 2 (`MiniCPMConfig` beside the weights): Llama with a tied head."""
    shape = read_shape(keys, replace(LLAMA, tied=True))
    bias = keys.flag("attention_bias", default=False)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias)
    return uniform(keys, name, replace(shape, attention=attention))


def exaone4(keys: Keys, name: str) -> Architecture:
    """EXAONE 4 (`Exaone4Config`): norms behind the branches; layers that see all do not rotate."""
    shape = read_shape(keys, EXAONE4)
    full = head_norms(shape.attention)
    extent = window(keys, 4096)
    if extent is not None:
        full = replace(full, position="none")
    narrow = replace(full, position="rope", window=extent)
    every = keys.integer("sliding_window_pattern", default=4) if extent is not None else 1
    slides = sliding(keys, shape.layers, lambda layer: (layer + 1) % every != 0)
    norm = rms_norm(shape.hidden)
    blocks = tuple(_post_norm(norm, narrow if slid else full, shape.mlp) for slid in slides)
    return decoder(keys, name, shape, blocks, norm)


def hunyuan(keys: Keys, name: str) -> Architecture:
    """Hunyuan, dense (`HunYuanDenseV1Config`): query-key norms per head."""
    shape = read_shape(keys, HUNYUAN)
    bias = keys.flag("attention_bias", default=False)
    attention = replace(head_norms(shape.attention), qkv_bias=bias, output_bias=bias)
    return uniform(keys, name, replace(shape, attention=attention))


def arcee(keys: Keys, name: str) -> Architecture:
    """Arcee (`ArceeConfig`): Llama with a plain squared-ReLU feed-forward layer."""
    shape = read_shape(keys, ARCEE)
    bias = keys.flag("attention_bias", default=False)
    attention = replace(shape.attention, qkv_bias=bias, output_bias=bias)
    mlp = replace(shape.mlp, gated=False, bias=keys.flag("mlp_bias", default=False))
    return uniform(keys, name, replace(shape, attention=attention, mlp=mlp))


def ministral3(keys: Keys, name: str) -> Architecture:
    """Ministral 3, and the text side of Mistral Small 3 (`Ministral3Config`)."""
    shape = read_shape(keys, MINISTRAL3)
    attention = replace(shape.attention, window=window(keys, None))
    return uniform(keys, name, replace(shape, attention=attention))


def _post_norm(norm: Norm, attention: Attention, mlp: Mlp) -> Block:
    return Block(
        sublayers=(
            Sublayer(name="attention", component=attention, norm=None, post_norm=norm),
            Sublayer(name="mlp", component=mlp, norm=None, post_norm=norm),
        )
    )


RULES: Final = {
    "arcee": arcee,
    "ernie4_5": ernie4_5,
    "exaone": exaone,
    "exaone4": exaone4,
    "helium": helium,
    "hunyuan_v1_dense": hunyuan,
    "internlm": internlm,
    "internlm2": internlm2,
    "internlm3": internlm3,
    "minicpm": minicpm,
    "ministral3": ministral3,
    "seed_oss": seed_oss,
}
