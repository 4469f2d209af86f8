"""Which parameters FSDP2 gathers together."""

from dataclasses import dataclass

from zeroplan.schedule.plan import Plan
from zeroplan.sharding.layout import ParameterGroup, unique
from zeroplan.units import Size

__all__ = ["FsdpGroup", "fsdp_groups"]


@dataclass(slots=True, eq=False)
class FsdpGroup:
    """One `fully_shard` call, and what of it lives at this point of the step."""

    name: str
    units: tuple[int, ...]
    """Units that use it, in forward order. [index]"""
    parameters: ParameterGroup
    after_forward: bool | int
    """Resharded after forward: no, yes, or to this many ranks."""
    in_backward: bool = True
    """Whether backward gathers it again."""
    is_root: bool = False
    gathered_bytes: Size = 0
    """Live all-gather output. [B]"""
    gather_event: int | None = None
    unsharded: bool = False
    kept_bytes: Size = 0
    """Shard kept after a forward that resharded to fewer ranks. [B]"""
    partial_bytes: Size = 0
    """Reduced gradient that waits for the last micro-step's all-reduce. [B]"""
    has_gradient: bool = False
    """Whether its sharded gradient lives."""
    accumulates: bool = False
    """Whether its unsharded gradient lives on between micro-steps (no_sync)."""

    @property
    def in_flight(self) -> bool:
        """Whether its all-gather has been issued and not been copied out."""
        return self.gather_event is not None


def fsdp_groups(plan: Plan) -> list[FsdpGroup]:
    """Form the groups in forward order: a block each, and the rest as `root_wrap` says.

    Tied weights force embedding, norm and head into one group, however they are wrapped.
    """
    choice, units = plan.choice, range(len(plan.units))
    blocks = [i for i in units if plan.units[i].kind == "block"]
    rest = tuple(i for i in units if plan.units[i].kind != "block")
    reshard = choice.reshard_after_forward
    block_groups = [_group(plan, plan.owner(i), (i,), reshard) for i in blocks]
    tied = any(p.tied_to for p in plan.workload.parameters)
    if choice.root_wrap == "together" or tied:
        root = _group(plan, "root", rest, choice.root_reshard_after_forward or False)
        root.is_root = True
        return [root, *block_groups]
    embedding = _group(plan, "embedding", rest[:-1], reshard)
    embedding.in_backward = choice.unshard_in_backward
    head = _group(plan, "norm and head", rest[-1:], choice.root_reshard_after_forward or False)
    return [embedding, *block_groups, head]


def _group(plan: Plan, name: str, units: tuple[int, ...], reshard: bool | int) -> FsdpGroup:  # noqa: FBT001 - the contract's own three-way key
    parameters = unique(p for i in units for p in plan.units[i].parameters)
    return FsdpGroup(
        name=name,
        units=units,
        parameters=ParameterGroup(parameters=parameters, ranks=plan.groups.shard.ranks),
        after_forward=reshard,
    )
