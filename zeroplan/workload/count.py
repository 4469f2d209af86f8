"""What a model is: its parameters by role, and its FLOPs per token."""

from collections import Counter
from typing import Final, get_args

from zeroplan.records import dataclass
from zeroplan.spec.architecture import Architecture, Attention, Block, Component, Role
from zeroplan.spec.latent_attention import LatentAttention
from zeroplan.spec.moe import MixtureOfExperts
from zeroplan.units import Size
from zeroplan.workload.batch import Batch
from zeroplan.workload.model import Unit, Workload, workload

__all__ = [
    "FlopCount",
    "ModelCount",
    "count_flop",
    "count_model",
    "model_flop_per_token",
    "parameter_counts",
    "training_flop_per_token",
]

ROLES: Final[tuple[Role, ...]] = get_args(Role)
BACKWARD_RATIO: Final = 2.0
"""A matmul's backward is two of its size: the gradients of its input and of its weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCount:
    """FLOPs per token of the sequence in one forward pass, counted from the matmuls."""

    sequence_length: int
    """[tokens]"""
    matmul_flop: float
    """Projections, chosen experts, convolutions and the head. [FLOP/token]"""
    attention_flop: float
    """Scores and weighted values, masked ones included. [FLOP/token]"""
    visible_attention_flop: float
    """The same without what a causal mask hides (about half). [FLOP/token]"""
    recompute_flop: float
    """What full checkpointing runs again: the blocks, masked scores included. [FLOP/token]"""

    @property
    def forward_flop(self) -> float:
        """Masked scores included [FLOP/token]."""
        return self.matmul_flop + self.attention_flop

    @property
    def visible_forward_flop(self) -> float:
        """Masked scores left out [FLOP/token]."""
        return self.matmul_flop + self.visible_attention_flop

    @property
    def backward_flop(self) -> float:
        """Without the scores that flash attention computes again [FLOP/token]."""
        return BACKWARD_RATIO * self.forward_flop


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCount:
    """Exact parameter counts, tied weights once, as `sum(p.numel() for p in model.parameters())`."""

    name: str
    architecture: str
    """Class of the published checkpoint."""
    total_parameters: int
    trainable_parameters: int
    embedding_parameters: int
    """Token embeddings, also where the head shares them; position tables are `other`."""
    non_embedding_parameters: int
    """Neither token embedding nor vocabulary projection."""
    active_parameters_per_token: int
    """All but the experts that a token's routers do not choose."""
    blocks: int
    """Of the stack that carries the head; `stacks` has the others. [count]"""
    hidden_size: int
    head_parameters: int
    norm_parameters: int
    attention_parameters: int
    mlp_parameters: int
    expert_parameters: int
    router_parameters: int
    mixer_parameters: int
    other_parameters: int
    tied: bool
    """The head shares the token embedding."""
    attention_width: int
    """Heads times their width, summed over the blocks: L d of 12 L d s. [elements]"""
    stacks: tuple[tuple[str, int, int], ...]
    """Name, blocks and hidden size of each tower."""
    max_positions: int | None
    """[tokens]"""
    source: str
    assumptions: tuple[str, ...]
    flop: FlopCount

    def to_dict(self) -> dict[str, object]:
        """Return the record as `inspect --json` shows it."""
        plain = {field: getattr(self, field) for field in self.__dataclass_fields__}
        flop = plain.pop("flop")
        return plain | {
            "stacks": [
                {"name": name, "blocks": blocks, "hidden_size": hidden}
                for name, blocks, hidden in self.stacks
            ],
            "assumptions": list(self.assumptions),
            "parameter_bytes": {
                "fp32": 4 * self.total_parameters,
                "bf16": 2 * self.total_parameters,
            },
            "forward_flop_per_token": {
                "sequence_length": flop.sequence_length,
                "value": flop.forward_flop,
                "causal_value": flop.visible_forward_flop,
            },
            "backward_flop_per_token": flop.backward_flop,
            "recompute_flop_per_token": flop.recompute_flop,
        }


def count_model(architecture: Architecture, sequence_length: int) -> ModelCount:
    """Count a model; the sequence length matters for the FLOPs alone."""
    work = workload(architecture, Batch(sequence_length=sequence_length))
    roles = _elements_by_role(work)
    total = sum(roles.values())
    last, head = architecture.stacks[-1], architecture.head
    tied = head is not None and head.tied
    projection = 0 if head is None or tied else head.hidden * head.rows
    return ModelCount(
        name=architecture.name,
        architecture=architecture.class_name,
        total_parameters=total,
        trainable_parameters=total - _frozen(work),
        embedding_parameters=roles["embedding"],
        non_embedding_parameters=total - roles["embedding"] - projection,
        active_parameters_per_token=total - _idle(architecture, work),
        blocks=len(last.blocks),
        hidden_size=last.hidden,
        head_parameters=roles["head"],
        norm_parameters=roles["norm"],
        attention_parameters=roles["attention"],
        mlp_parameters=roles["mlp"],
        expert_parameters=roles["expert"],
        router_parameters=roles["router"],
        mixer_parameters=roles["mixer"],
        other_parameters=roles["other"],
        tied=tied,
        attention_width=sum(
            _attention_width(part.component) for block in last.blocks for part in block.sublayers
        ),
        stacks=tuple((s.name, len(s.blocks), s.hidden) for s in architecture.stacks),
        max_positions=architecture.max_positions,
        source=architecture.source,
        assumptions=architecture.assumptions,
        flop=count_flop(work),
    )


def count_flop(work: Workload) -> FlopCount:
    """Count a workload's forward FLOPs per token of its sequences."""
    tokens = work.batch.tokens
    matmul = attention = visible = recompute = 0.0
    for unit, repeats in Counter(work.units).items():
        for operation in unit.operations:
            flop = repeats * operation.flop / tokens
            if operation.kernel in ("attention", "scores"):
                attention += flop
                visible += flop * operation.visible_share
            else:
                matmul += flop
            if unit.kind == "block":
                recompute += flop
    return FlopCount(
        sequence_length=work.batch.sequence_length,
        matmul_flop=matmul,
        attention_flop=attention,
        visible_attention_flop=visible,
        recompute_flop=recompute,
    )


def parameter_counts(work: Workload) -> tuple[int, int]:
    """Return all parameters and those that are trained; a packed weight counts as what it was."""
    total = trained = 0
    for unit, repeats in Counter(work.units).items():
        for parameter in unit.parameters:
            if parameter.tied_to is None:
                total += repeats * (parameter.unpacked_elements or parameter.elements)
                trained += repeats * parameter.elements * parameter.trainable
    return total, trained


def training_flop_per_token(work: Workload) -> Size:
    """Return the FLOPs of forward and backward per token, recomputation aside [FLOP/token].

    Backward is two passes where everything is trained; a frozen weight needs no gradient, and
    nothing runs backward before the first thing that is trained.
    """
    if work.batch.tuning is None:
        return 3 * count_flop(work).forward_flop
    flop = sum(
        repeats * operation.flop * (1 + (operation.wanted if operation.runs_backward else 0))
        for unit, repeats in Counter(work.units).items()
        for operation in unit.operations
    )
    return flop / work.batch.tokens


def model_flop_per_token(
    model: ModelCount,
    sequence_length: int,
    *,
    embeddings: bool = True,
    causal: bool = False,
    recompute: bool = False,
) -> float:
    """Return the FLOPs per token that published utilisations are stated in: 6 N + 12 L d s.

    N counts the parameters that a token meets. Chowdhery et al. (PaLM, arXiv 2204.02311, appendix B),
    llm-foundry and KempnerForge include the embedding; torchtitan leaves it out
    (`get_nparams_and_flops`); a causal mask halves the second term (Dao, FlashAttention-2, arXiv
    2307.08691, section 4.1); counting the recomputed forward makes it 8 N + 16 L d s, the numerator of
    hardware utilisation (Narayanan et al., arXiv 2104.04473, section 3).

    Parameters
    ----------
    sequence_length
        s [tokens].
    embeddings
        Whether N has the token embedding.
    causal
        Whether masked scores are left out.
    recompute
        Whether the forward pass is counted twice.
    """
    passes = 8.0 if recompute else 6.0
    parameters = model.active_parameters_per_token
    if not embeddings:
        parameters -= model.embedding_parameters
    scores = 2.0 * passes * model.attention_width * sequence_length
    return passes * parameters + (scores / 2.0 if causal else scores)


def _elements_by_role(work: Workload) -> dict[Role, int]:
    elements = dict.fromkeys(ROLES, 0)
    for unit, repeats in Counter(work.units).items():
        for parameter in unit.parameters:
            if parameter.tied_to is None:
                elements[parameter.role] += repeats * parameter.elements
    return elements


def _frozen(work: Workload) -> int:
    """Return the elements of registered parameters that are never trained."""
    return sum(
        parameter.elements
        for parameter in work.parameters
        if parameter.tied_to is None and not parameter.trainable
    )


def _idle(architecture: Architecture, work: Workload) -> int:
    """Return the elements of experts that one token does not meet."""
    units = (unit for unit in work.units if unit.kind == "block")
    blocks = (block for stack in architecture.stacks for block in stack.blocks)
    return sum(_idle_in_block(unit, block) for unit, block in zip(units, blocks, strict=True))


def _idle_in_block(unit: Unit, block: Block) -> int:
    idle = 0
    for part in block.sublayers:
        if isinstance(part.component, MixtureOfExperts):
            experts = part.component.experts
            elements = sum(
                parameter.elements
                for parameter in unit.parameters
                if parameter.role == "expert" and parameter.name.startswith(f"{part.name}.")
            )
            idle += elements // experts * (experts - part.component.experts_per_token)
    return idle


def _attention_width(component: Component) -> int:
    """Return heads times the mean width of the scores' and the values' products [elements]."""
    match component:
        case Attention():
            return component.heads * component.head_dim
        case LatentAttention():
            return component.heads * (component.query_dim + component.value_dim) // 2
        case _:
            return 0
