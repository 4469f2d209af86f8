"""Which parameters FSDP1 flattens together."""

from zeroplan.records import dataclass
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.layout import FlatParameter, unique

__all__ = ["FlatUnit", "flat_units"]

ALIGNMENT_BYTES = 16
"""Boundary at which the original parameters start (`_get_aligned_numel`). [B]"""


@dataclass(slots=True, eq=False)
class FlatUnit:
    """One wrapped module, and what of it lives at this point of the step."""

    name: str
    units: tuple[int, ...]
    """Units that use it, in forward order. [index]"""
    flat: FlatParameter
    times: int
    """Equal modules that this one stands for. [count]"""
    is_root: bool = False
    reentrant: bool = False
    """Whether reentrant checkpointing stands around it, so that its hooks run again in backward."""
    unsharded: bool = False
    awaits_backward: bool = False
    """Whether its backward is still to come, so that it may be gathered ahead."""
    has_gradient: bool = False
    """Whether its reduced gradient lives."""
    accumulates: bool = False
    """Whether its unreduced gradient lives on between micro-steps (no_sync)."""

    @property
    def whole(self) -> bool:
        """Whether nothing of it is sharded (NO_SHARD)."""
        return self.flat.ranks == 1


def flat_units(plan: Plan) -> list[FlatUnit]:
    """Form the root and then the wrapped modules in forward order.

    Every block is wrapped, the embedding where `root_wrap` says so and no weight is tied to it;
    what is left is the root's.
    """
    blocks = [
        (index, stretch.times)
        for stretch in plan.stretches
        for index in stretch.units
        if plan.units[index].kind == "block"
    ]
    rest = [i for i, unit in enumerate(plan.units) if unit.kind != "block"]
    tied = any(p.tied_to for i in rest for p in plan.units[i].parameters)
    apart = plan.choice.root_wrap == "separate" and not tied
    embeddings = [i for i in rest if apart and plan.units[i].kind == "embedding"]
    root = _unit(plan, "root", tuple(i for i in rest if i not in embeddings))
    root.is_root = True
    wrapped = sorted([*blocks, *((index, 1) for index in embeddings)])
    return [root, *(_unit(plan, plan.owner(i), (i,), times) for i, times in wrapped)]


def _unit(plan: Plan, name: str, units: tuple[int, ...], times: int = 1) -> FlatUnit:
    groups = plan.groups
    aligns = plan.choice.use_orig_params
    process_group = groups.shard if groups.shard.ranks > 1 else groups.world
    checkpointed = any(plan.checkpointing(i) != "none" for i in units)
    return FlatUnit(
        name=name,
        units=units,
        flat=FlatParameter(
            parameters=unique(p for i in units for p in plan.units[i].parameters),
            ranks=groups.shard.ranks,
            alignment=ALIGNMENT_BYTES // plan.dtypes.compute if aligns else 1,
            multiple=process_group.ranks if aligns else 1,
        ),
        times=times,
        reentrant=checkpointed and plan.training.checkpoint_reentrant,
        has_gradient=plan.keeps_gradients and not plan.offload,
    )
