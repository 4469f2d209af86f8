"""GPT-2 and its kin: LayerNorms, biases, plain feed-forward layers, learned positions at first.

Defaults and parameters are those of transformers 5.24 unless a rule names another source.
"""

from dataclasses import replace
from typing import Final

from zeroplan.spec.architecture import (
    Architecture,
    Attention,
    Block,
    Embedding,
    Mlp,
    Sublayer,
)
from zeroplan.spec.families.common import causal_lm, layers, own_heads
from zeroplan.spec.families.shape import layer_norm, pre_norm
from zeroplan.spec.keys import Keys

__all__ = ["RULES"]


def gpt2(keys: Keys, name: str) -> Architecture:
    """GPT-2: weights stored [in, out] (`GPT2Config`, `Conv1D`)."""
    return _gpt2(keys, name, kv_heads=None, transposed=True)


def gpt_bigcode(keys: Keys, name: str) -> Architecture:
    """SantaCoder and StarCoder: GPT-2 with one key-value head (`GPTBigCodeConfig`)."""
    single = keys.flag("multi_query", default=True)
    return _gpt2(keys, name, kv_heads=1 if single else None, transposed=False)


def _gpt2(keys: Keys, name: str, *, kv_heads: int | None, transposed: bool) -> Architecture:
    attention = own_heads(keys, keys.integer("n_embd", "hidden_size"), "n_head", position="learned")
    drops = keys.number("resid_pdrop", default=0.1) > 0
    attention = replace(
        attention,
        kv_heads=kv_heads or attention.heads,
        qkv_bias=True,
        output_bias=True,
        fused_qkv=True,
        transposed=transposed,
        dropout=drops,
    )
    hidden = attention.hidden
    mlp = replace(_gpt_mlp(keys, hidden), transposed=transposed, dropout=drops)
    norm = layer_norm(hidden)
    rows = keys.integer("n_positions", "max_position_embeddings", "n_ctx", default=1024)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=layers(keys, "n_layer") * (pre_norm(norm, attention, mlp),),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=True),
        max_positions=rows,
        tables=(_position_table(rows, hidden),),
    )


def openai_gpt(keys: Keys, name: str) -> Architecture:
    """GPT-1: norms after the additions, none at the end (`OpenAIGPTConfig`)."""
    attention = replace(
        own_heads(keys, keys.integer("n_embd", "hidden_size"), "n_head", position="learned"),
        qkv_bias=True,
        output_bias=True,
        fused_qkv=True,
        transposed=True,
        dropout=True,
    )
    hidden = attention.hidden
    norm = layer_norm(hidden)
    mlp = Mlp(
        hidden=hidden,
        width=4 * hidden,
        gated=False,
        activation=keys.text("afn", default="gelu"),
        bias=True,
        transposed=True,
        dropout=True,
    )
    block = Block(
        sublayers=(
            Sublayer(name="attention", component=attention, norm=None, residual_norm=norm),
            Sublayer(name="mlp", component=mlp, norm=None, residual_norm=norm),
        )
    )
    rows = keys.integer("n_positions", "n_ctx", default=512)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=layers(keys, "n_layer") * (block,),
        final_norm=None,
        tied=keys.flag("tie_word_embeddings", default=True),
        max_positions=rows,
        tables=(_position_table(rows, hidden),),
    )


def gpt_neo(keys: Keys, name: str) -> Architecture:
    """GPT-Neo: GPT-2 whose every other layer sees a window (`GPTNeoConfig`).

    `attention_types` repeats ["global", "local"]; no other pattern was published.
    """
    whole = replace(
        own_heads(keys, keys.integer("hidden_size"), "num_heads", position="learned"),
        output_bias=True,
    )
    local = replace(whole, window=keys.integer("window_size", default=256))
    hidden = whole.hidden
    norm = layer_norm(hidden)
    mlp = _gpt_mlp(keys, hidden, "intermediate_size")
    depth = layers(keys, "num_layers")
    rows = keys.integer("max_position_embeddings", default=2048)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=tuple(pre_norm(norm, local if i % 2 else whole, mlp) for i in range(depth)),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=True),
        max_positions=rows,
        tables=(_position_table(rows, hidden),),
    )


def gptj(keys: Keys, name: str) -> Architecture:
    """GPT-J: parallel branches behind one norm, a head with a bias (`GPTJConfig`)."""
    attention = replace(
        own_heads(keys, keys.integer("n_embd", "hidden_size"), "n_head"),
        rotary_dim=keys.integer("rotary_dim", default=64),
    )
    return _gptj(keys, name, attention)


def codegen(keys: Keys, name: str) -> Architecture:
    """CodeGen: GPT-J with one projection for queries, keys and values (`CodeGenConfig`)."""
    attention = replace(
        own_heads(keys, keys.integer("n_embd", "hidden_size"), "n_head"),
        rotary_dim=keys.integer("rotary_dim", default=64),
        fused_qkv=True,
    )
    return _gptj(keys, name, attention)


def _gptj(keys: Keys, name: str, attention: Attention) -> Architecture:
    hidden = attention.hidden
    norm = layer_norm(hidden)
    block = Block(
        sublayers=(
            Sublayer(name="attention", component=attention, norm=norm),
            Sublayer(name="mlp", component=_gpt_mlp(keys, hidden), norm=None),
        ),
        parallel=True,
        shared_norm=True,
    )
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=layers(keys, "n_layer") * (block,),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=False),
        head_bias=True,
        max_positions=keys.integer("n_positions", "n_ctx", default=2048),
    )


def gpt_neox(keys: Keys, name: str) -> Architecture:
    """GPT-NeoX and Pythia: two norms, parallel or not (`GPTNeoXConfig`)."""
    attention = own_heads(keys, keys.integer("hidden_size"))
    bias = keys.flag("attention_bias", default=True)
    share = keys.number("rotary_pct", "partial_rotary_factor", default=0.25)
    attention = replace(
        attention,
        qkv_bias=bias,
        output_bias=bias,
        fused_qkv=True,
        rotary_dim=int(attention.head_dim * share),
    )
    hidden = attention.hidden
    norm = layer_norm(hidden)
    mlp = Mlp(
        hidden=hidden,
        width=keys.integer("intermediate_size"),
        gated=False,
        activation=keys.text("hidden_act", default="gelu"),
        bias=True,
    )
    parallel = keys.flag("use_parallel_residual", default=True)
    block = replace(pre_norm(norm, attention, mlp), parallel=parallel)
    return causal_lm(
        keys,
        name,
        hidden=hidden,
        blocks=layers(keys) * (block,),
        final_norm=norm,
        tied=keys.flag("tie_word_embeddings", default=False),
        max_positions=keys.integer("max_position_embeddings", default=2048),
    )


def _gpt_mlp(keys: Keys, hidden: int, width_name: str = "n_inner") -> Mlp:
    """Return the plain feed-forward layer, four times as wide where no key says otherwise."""
    return Mlp(
        hidden=hidden,
        width=keys.integer(width_name, default=4 * hidden),
        gated=False,
        activation=keys.text("activation_function", default="gelu_new"),
        bias=True,
    )


def _position_table(rows: int, hidden: int) -> Embedding:
    return Embedding(name="positions", rows=rows, width=hidden, kind="position")


RULES: Final = {
    "codegen": codegen,
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "openai-gpt": openai_gpt,
}
