"""A mixture of experts: a router and the feed-forward layers that it chooses from."""

from typing import Literal

from zeroplan.records import dataclass

__all__ = ["MixtureOfExperts", "Router", "Scoring", "Storage"]

Storage = Literal["stacked", "flat", "modules"]
"""How the experts' weights are kept, which decides what sharding on dim 0 divides and pads.

stacked: one [experts, out, in] tensor for gate and up, one for down (transformers 5);
flat: one [experts x width, hidden] tensor for each projection (DBRX);
modules: three matrices per expert (Grok-1, transformers 4).
"""

Scoring = Literal["softmax", "sigmoid", "chosen", "chosen-fp32"]
"""What makes scores of the router's logits.

softmax, sigmoid: over all experts in fp32, of which the best are kept; chosen: a softmax over the
best logits alone (gpt-oss), in fp32 in Granite.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """How the scores come about that choose a token's experts and weigh what they return."""

    scoring: Scoring = "softmax"
    bias: bool = False
    wide: bool = False
    """Logits are an fp32 product, of fp32 copies of the states and of the weight (DeepSeek)."""
    normalised: bool = True
    """The chosen scores are divided by their sum."""
    scaled: bool = False
    """They are multiplied by a constant."""
    wide_scores: bool = False
    """They stay fp32, and so what they weigh becomes fp32 (Mixtral, DeepSeek)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """A router, the experts that share the tokens, and sometimes one that sees them all."""

    hidden: int
    experts: int
    experts_per_token: int
    width: int
    """Inner width of one expert. [elements]"""
    gated: bool = True
    activation: str = "silu"
    bias: bool = False
    """Of the experts."""
    router: Router = Router()
    storage: Storage = "stacked"
    transposed: bool = False
    """Weights stored [experts, in, out] (gpt-oss, Llama 4)."""
    shared_width: int | None = None
    """Inner width of the shared experts together; None where there are none. [elements]"""
    shared_bias: bool = False
    latent_width: int | None = None
    """Width that tokens are brought to for the experts and back from; None: `hidden`. [elements]"""
    latent_bias: bool = False
    shared_gate: bool = False
    """A sigmoid of one more logit weighs the shared expert (Qwen2-MoE)."""
