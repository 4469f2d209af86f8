"""Which builder writes which component: a new kind of layer is one entry here."""

from zeroplan.spec.architecture import Attention, Component, Mlp, Projection
from zeroplan.spec.latent_attention import LatentAttention
from zeroplan.spec.mixers import GatedDeltaNet, Mamba, Mamba2
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.workload.attention import attention
from zeroplan.workload.latent_attention import latent_attention
from zeroplan.workload.mlp import mlp
from zeroplan.workload.moe import mixture_of_experts
from zeroplan.workload.projection import projection
from zeroplan.workload.state_space import gated_delta_net, mamba, mamba2
from zeroplan.workload.tape import Tape, Tensor

__all__ = ["component"]


def component(tape: Tape, x: Tensor, part: Component) -> Tensor:  # noqa: PLR0911 - one per kind
    """Write one component down; x and the result are [tokens, hidden]."""
    match part:
        case Attention():
            return attention(tape, x, part)
        case Mlp():
            return mlp(tape, x, part)
        case Mamba():
            return mamba(tape, x, part)
        case Mamba2():
            return mamba2(tape, x, part)
        case GatedDeltaNet():
            return gated_delta_net(tape, x, part)
        case MixtureOfExperts():
            return mixture_of_experts(tape, x, part)
        case LatentAttention():
            return latent_attention(tape, x, part)
        case Projection():
            return projection(tape, x, part, tape.batch.tokens)
