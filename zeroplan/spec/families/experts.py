"""What the rules for mixtures of experts share: how many experts, how wide, in which layers."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from zeroplan.spec.architecture import Architecture, Attention
from zeroplan.spec.families.shape import Shape, decoder, pre_norm, rms_norm
from zeroplan.spec.keys import Keys
from zeroplan.spec.moe import MixtureOfExperts, Router

__all__ = [
    "EXPERT_COUNT_NAMES",
    "head_norms",
    "leading_dense",
    "mixture",
    "per_layer",
    "refuse_unread_experts",
    "shared_width",
    "sigmoid_router",
    "sparse_decoder",
    "whole_head_norms",
]

Value = TypeVar("Value")

EXPERT_COUNT_NAMES: Final = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "num_routed_experts",
    "moe_num_experts",
)
"""Under which a file may say how many routed experts a layer has; all are read everywhere."""

EXPERT_COUNT: Final = re.compile(
    r"^(moe_)?(num|n|nb)_((?!shared)\w+_)?experts?$|^experts?_(num|count)$"
)
"""Any other name that may count routed experts."""


def refuse_unread_experts(keys: Keys) -> None:
    """Raise where a file counts experts and the rule did not look: never dense by silence."""
    for name, value in keys.mapping.items():
        unread = EXPERT_COUNT.search(name) and name not in keys.used
        if unread and isinstance(value, int) and value > 1:
            raise keys.fault(
                name,
                value,
                f"the rule for {keys.model_type!r} counts no experts under this name; correct"
                f" model_type, or name the key {EXPERT_COUNT_NAMES[0]!r}",
            )


def mixture(keys: Keys, shape: Shape, width: int, *, experts: int, chosen: int) -> MixtureOfExperts:
    """Read a router and experts of a width; `experts` and `chosen` are the class's defaults."""
    count = keys.integer(*EXPERT_COUNT_NAMES, default=experts)
    return MixtureOfExperts(
        hidden=shape.hidden,
        experts=count,
        experts_per_token=keys.integer(
            "num_experts_per_tok", "experts_per_token", "moe_k", default=chosen, maximum=count
        ),
        width=width,
        activation=shape.mlp.activation,
    )


def sigmoid_router(keys: Keys, *, normalised: bool) -> Router:
    """Return the router of DeepSeek-V3: sigmoids of fp32 logits; `normalised` is a default."""
    return Router(
        scoring="sigmoid",
        wide=True,
        normalised=keys.flag("norm_topk_prob", default=normalised),
        scaled=True,
        wide_scores=True,
    )


def shared_width(keys: Keys, width: int, default: int = 1) -> int | None:
    """Return the width of the shared experts together; None for none [elements]."""
    names = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    if any(keys.mentions(name) and not keys.has(name) for name in names):
        return None
    return keys.integer(*names, default=default, minimum=0) * width or None


def sparse_decoder(
    keys: Keys,
    name: str,
    shape: Shape,
    experts: MixtureOfExperts,
    sparse: Callable[[int], bool] = lambda _: True,
) -> Architecture:
    """Frame pre-norm blocks of which those that `sparse` names have experts, the others an MLP."""
    norm = rms_norm(shape.hidden)
    blocks = tuple(
        pre_norm(norm, shape.attention, experts if sparse(layer) else shape.mlp)
        for layer in range(shape.layers)
    )
    return decoder(keys, name, shape, blocks, norm)


def leading_dense(keys: Keys, layers: int, default: int) -> Callable[[int], bool]:
    """Return which layers are sparse: all but the first few, and of those every n-th.

    `mlp_layer_types` spells the same out layer by layer. The published DeepSeek code reads
    `moe_layer_freq` (`DeepseekV3DecoderLayer`), transformers does not; every known file has 1.
    """
    dense = keys.integer("first_k_dense_replace", default=default, minimum=0)
    step = keys.integer("moe_layer_freq", default=1)
    kinds = keys.texts("mlp_layer_types", default=None)
    if kinds is None:
        return lambda layer: layer >= dense and layer % step == 0
    each = per_layer(keys, "mlp_layer_types", kinds, layers)
    return lambda layer: each[layer] == "sparse"


def per_layer(keys: Keys, name: str, values: Sequence[Value], layers: int) -> Sequence[Value]:
    """Return a list that has an entry for every layer; a shorter one is an error."""
    if len(values) < layers:
        count = f"{len(values)} entries"
        raise keys.fault(name, count, f"it needs one for each of the {layers} layers")
    return values[:layers]


def head_norms(attention: Attention) -> Attention:
    """Normalise the query and the key of every head."""
    norm = rms_norm(attention.head_dim)
    return replace(attention, query_norm=norm, key_norm=norm)


def whole_head_norms(attention: Attention) -> Attention:
    """Normalise queries, and keys, over all their heads together."""
    return replace(
        attention,
        query_norm=rms_norm(attention.heads * attention.head_dim),
        key_norm=rms_norm(attention.kv_heads * attention.head_dim),
    )
