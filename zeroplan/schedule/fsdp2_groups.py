"""Which parameters FSDP2 gathers together."""

from zeroplan.records import dataclass
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
    trained: ParameterGroup
    """Those that are reduced."""
    times: int
    """Equal groups that this one stands for. [count]"""
    after_forward: bool | int
    """Resharded after forward: no, yes, or to this many ranks."""
    in_backward: bool = True
    """Whether backward gathers it again."""
    is_root: bool = False
    gathered_bytes: Size = 0
    """Live all-gather output. [B]"""
    in_flight: bool = False
    """Whether its all-gather has been issued and not been copied out."""
    unsharded: bool = False
    kept_bytes: Size = 0
    """Shard kept after a forward that resharded to fewer ranks. [B]"""
    stale_bytes: Size = 0
    """Such a shard that backward did not gather from: it lives until the next one replaces it. [B]"""
    partial_bytes: Size = 0
    """Reduced gradient that waits for the last micro-step's all-reduce. [B]"""
    has_gradient: bool = False
    """Whether its sharded gradient lives."""
    accumulates: bool = False
    """Whether its unsharded gradient lives on between micro-steps (no_sync)."""


def fsdp_groups(plan: Plan) -> list[FsdpGroup]:
    """Form the groups in forward order: a block each, and the rest as `root_wrap` says.

    Tied weights force embedding, norm and head into one group, however they are wrapped.
    """
    choice = plan.choice
    reshard = choice.reshard_after_forward
    rest = tuple(i for i, unit in enumerate(plan.units) if unit.kind != "block")
    blocks = [
        _group(plan, "block", (index,), reshard=reshard, times=stretch.times)
        for stretch in plan.stretches
        for index in stretch.units
        if plan.units[index].kind == "block"
    ]
    root_reshard = choice.root_reshard_after_forward or False
    tied = any(p.tied_to for i in rest for p in plan.units[i].parameters)
    if choice.root_wrap == "together" or tied:
        root = _group(plan, "root", rest, reshard=root_reshard)
        root.is_root = True
        return [root, *blocks]
    embedding = _group(plan, "embedding", rest[:-1], reshard=reshard)
    embedding.in_backward = choice.unshard_in_backward
    if not embedding.in_backward:
        embedding.stale_bytes = _stale_bytes(plan, embedding)
    return [embedding, *blocks, _group(plan, "norm and head", rest[-1:], reshard=root_reshard)]


def _group(
    plan: Plan, name: str, units: tuple[int, ...], *, reshard: bool | int, times: int = 1
) -> FsdpGroup:
    parameters = ParameterGroup(
        parameters=unique(p for i in units for p in plan.units[i].parameters),
        ranks=plan.groups.shard.ranks,
        float8=plan.choice.fp8_all_gather,
    )
    group = FsdpGroup(
        name=name,
        units=units,
        parameters=parameters,
        trained=parameters.trained,
        times=times,
        after_forward=reshard,
        has_gradient=plan.keeps_gradients,
    )
    if not any(plan.units[i].output.differentiable for i in units):
        group.stale_bytes = _stale_bytes(plan, group)
    return group


def _stale_bytes(plan: Plan, group: FsdpGroup) -> Size:
    """Return what a forward that resharded to fewer ranks leaves where no backward gathers it. [B]"""
    ranks = group.after_forward
    if isinstance(ranks, bool):
        return 0
    return group.parameters.unsharded_bytes(plan.dtypes.used, ranks)
