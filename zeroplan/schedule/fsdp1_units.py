"""Which parameters FSDP1 flattens together."""

from collections.abc import Callable

from zeroplan.records import dataclass
from zeroplan.schedule.events import Segment, segment
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.layout import FlatParameter, unique
from zeroplan.workload.tape import Parameter

__all__ = ["FlatUnit", "checkpoint_parts", "flat_units"]

ALIGNMENT_BYTES = 16
"""Boundary at which the original parameters start (`_get_aligned_numel`). [B]"""


@dataclass(slots=True, eq=False)
class FlatUnit:
    """One wrapped module, and what of it lives at this point of the step."""

    name: str
    units: tuple[int, ...]
    """Units that use it, in forward order. [index]"""
    flat: FlatParameter
    stored: int
    """Bytes per element of its shard. [B]"""
    used: int
    """Bytes per element of what is gathered. [B]"""
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
    within: tuple["FlatUnit", ...] = ()
    """Trained parameters that are wrapped by themselves, so that the rest can be frozen."""
    asks: bool = True
    """Whether a gradient of what it reads is wanted; if not it stays to the end of backward."""
    answers: bool = True
    """Whether a gradient of what it makes is wanted: the sign for its backward."""

    @property
    def casts(self) -> bool:
        """Whether its shard is cast before it is gathered."""
        return self.used != self.stored

    @property
    def trained(self) -> bool:
        """Whether it has a gradient."""
        return any(p.trainable for p in self.flat.parameters)

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
    """Wrap units together; frozen and trained parameters are flattened together or not at all.

    They are where the original parameters are kept. Else peft's `fsdp_auto_wrap_policy` wraps each
    layer that is trained by itself (peft/utils/other.py, 0.21).
    """
    checkpointed = any(plan.checkpointing(i) != "none" for i in units)
    owned = unique(p for i in units for p in plan.units[i].parameters)
    trained = tuple(p for p in owned if p.trainable)
    apart = not plan.choice.use_orig_params and 0 < len(trained) < len(owned)
    entering = plan.units[units[0]].input
    return FlatUnit(
        name=name,
        units=units,
        flat=_flat(plan, tuple(p for p in owned if not p.trainable) if apart else owned),
        stored=_itemsize(plan.dtypes.stored, owned, apart=apart),
        used=_itemsize(plan.dtypes.used, owned, apart=apart),
        times=times,
        reentrant=checkpointed and plan.training.checkpoint_reentrant,
        has_gradient=plan.keeps_gradients and not plan.offload and (bool(trained) and not apart),
        within=tuple(_alone(plan, p, times) for p in trained) if apart else (),
        asks=entering is None or entering.differentiable,
        answers=plan.units[units[-1]].output.differentiable,
    )


def _itemsize(of: Callable[[Parameter], int], owned: tuple[Parameter, ...], *, apart: bool) -> int:
    """Return the bytes per element of what is flattened together, which is of one dtype. [B]"""
    return next((of(p) for p in owned if not (apart and p.trainable)), 0)


def _alone(plan: Plan, parameter: Parameter, times: int) -> FlatUnit:
    return FlatUnit(
        name=parameter.name,
        units=(),
        flat=_flat(plan, (parameter,)),
        stored=plan.dtypes.stored(parameter),
        used=plan.dtypes.used(parameter),
        times=times,
        has_gradient=plan.keeps_gradients and not plan.offload,
    )


def _flat(plan: Plan, parameters: tuple[Parameter, ...]) -> FlatParameter:
    groups = plan.groups
    aligns = plan.choice.use_orig_params
    process_group = groups.shard if groups.shard.ranks > 1 else groups.world
    return FlatParameter(
        parameters=parameters,
        ranks=groups.shard.ranks,
        alignment=ALIGNMENT_BYTES // plan.dtypes.compute if aligns else 1,
        multiple=process_group.ranks if aligns else 1,
    )


def checkpoint_parts(unit: FlatUnit, part: Segment) -> tuple[Segment, Segment, Segment]:
    """Cut a backward where a reentrant checkpoint stands around the unit.

    Its recomputation comes before the hooks; what it holds is released after them.
    """
    if not unit.reentrant:
        return segment(()), part, segment(())
    cut = next(i for i, step in enumerate(part.steps) if step.direction == "backward")
    return segment(part.steps[:cut]), segment(part.steps[cut:-1]), segment(part.steps[-1:])
