"""FSDP1's two halves: flat parameters in (all-gather), flat gradients out (reduce-scatter).

Source: `_unshard`, `_post_backward_hook`, `_reduce_grad` and `_reduce_grad_no_shard` in
torch/distributed/fsdp/_runtime_utils.py, `FlatParamHandle` in _flat_param.py beside it, torch 2.13.
"""

from collections.abc import Iterable

from zeroplan.records import dataclass
from zeroplan.schedule.events import Collective, Recorder, collective
from zeroplan.schedule.fsdp1_units import FlatUnit
from zeroplan.schedule.offload import copied
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.groups import Group
from zeroplan.units import Size, round_up
from zeroplan.workload.changes import Change

__all__ = ["Reduce", "Unshard"]

UNIT_BEGINS = "unit begins"
"""Mark of the compute stream's newest unit. An all-gather waits for the one before its own, so at
most two run ahead of compute (`limit_all_gathers`, _limiter_utils.py)."""


def begins(unit: FlatUnit) -> str:
    """Return what a unit's all-gather waits for."""
    return "compute" if unit.is_root else UNIT_BEGINS


@dataclass(slots=True)
class Unshard:
    """Gathers flat parameters and frees them."""

    plan: Plan
    recorder: Recorder

    def run(self, unit: FlatUnit) -> None:
        """Make a unit's parameters ready for use, unless they are.

        A shard is cast, and the cast goes once it is gathered, straight into the storage that the
        parameters view. NO_SHARD has the cast only, in which it computes.
        """
        if unit.unsharded:
            return
        unit.unsharded = True
        flat = unit.flat
        size = flat.shard_elements * unit.used
        made = self._from_host(unit) if self.plan.offload else [self._cast(unit)]
        gone = Change("temporaries", f"{unit.name} cast", -sum(each.bytes for each in made))
        collective = Collective(
            name="all_gather",
            group=self.plan.groups.shard,
            input_bytes=size,
            output_bytes=size * flat.ranks,
        )
        parameters = self._parameters(unit)
        self.recorder.emit(
            "cast" if unit.whole else "all-gather",
            unit.name,
            stream="all-gather",
            changes=self._whole(unit, parameters, made)
            if unit.whole
            else (*made, parameters, gone),
            collective=None if unit.whole else collective,
            traffic_bytes=flat.shard_elements * (unit.stored + unit.used) * unit.casts,
            waits=(*(("host to device",) if self.plan.offload else ()), begins(unit)),
        )

    def _cast(self, unit: FlatUnit) -> Change:
        """Return a shard in the compute dtype."""
        size = round_up(unit.flat.shard_elements * unit.used) * unit.casts
        return Change("temporaries", f"{unit.name} cast", size)

    def _from_host(self, unit: FlatUnit) -> list[Change]:
        """Copy a shard to the GPU in the stored dtype, return what that leaves there.

        It comes beside its cast, and goes when it has been cast (`_use_low_precision_shard`).
        """
        size = unit.flat.shard_elements * unit.stored
        self.recorder.emit(
            "copy from host",
            unit.name,
            stream="host to device",
            transfer=copied(self.plan.offload, size),
            waits=(begins(unit),),
        )
        wide = Change("temporaries", f"{unit.name} cast", round_up(size))
        return [self._cast(unit), wide, -wide] if unit.casts else [wide]

    @staticmethod
    def _whole(unit: FlatUnit, parameters: Change, made: list[Change]) -> tuple[Change, ...]:
        """List what NO_SHARD needs: its parameters, in the place of a cast."""
        return (parameters, *made[1:]) if unit.casts else (parameters,)

    def wait(self, unit: FlatUnit) -> None:
        """Let the compute stream wait for the parameters that were gathered."""
        self.recorder.emit("begin", unit.name, waits=("all-gather",), mark=UNIT_BEGINS)

    def reshard(self, unit: FlatUnit) -> None:
        """Free a unit's parameters."""
        if unit.unsharded:
            unit.unsharded = False
            self.recorder.emit("reshard", unit.name, changes=(-self._parameters(unit),))

    def _parameters(self, unit: FlatUnit) -> Change:
        """Return the storage that parameters in use view; NO_SHARD needs one for a cast only."""
        exists = unit.casts or not unit.whole or bool(self.plan.offload)
        elements = unit.flat.shard_elements * unit.flat.ranks * exists
        return Change("unsharded_parameters", unit.name, round_up(elements * unit.used))


@dataclass(slots=True)
class Reduce:
    """Flattens gradients and reduces them."""

    plan: Plan
    recorder: Recorder

    def flatten(self, unit: FlatUnit) -> None:
        """Concatenate the gradients of the original parameters: the split's backward does so.

        It makes zeros for those without a gradient, as packed weights (`split_with_sizes_backward` in
        torch/csrc/autograd/FunctionsManual.cpp, 2.13).
        """
        if not unit.trained:
            return
        size = self.plan.dtypes.compute
        zeros = [
            Change("unsharded_gradients", p.name, round_up(p.elements * size))
            for p in unit.flat.parameters
            if not p.gets_gradient
        ]
        original = [
            Change("unsharded_gradients", p.name, -round_up(p.elements * size))
            for p in unit.flat.parameters
            if p.gets_gradient
        ]
        self.recorder.emit(
            "flatten gradients",
            unit.name,
            changes=(*zeros, self._flat(unit), *(-each for each in zeros), *original),
            traffic_bytes=2 * unit.flat.elements * size,
        )

    def accumulate(self, unit: FlatUnit) -> None:
        """Keep a flat gradient unreduced, added to that of earlier micro-steps (no_sync)."""
        if unit.accumulates:
            self.recorder.emit("accumulate", unit.name, changes=(-self._flat(unit),))
        unit.accumulates = True

    def run(self, unit: FlatUnit) -> None:
        """Reduce a flat gradient, cast it to the parameters' dtype, add it to an earlier one.

        What autograd computed, what it was added to, its copy in the reduce dtype and its padding
        live until the hook returns (`autograd_computed_grad`, `padded_unsharded_grad`).
        """
        if unit.whole:
            self._reduce_whole(unit)
        else:
            self._reduce_scatter(unit)
        unit.has_gradient = True
        unit.accumulates = False

    def finish(self) -> None:
        """End a backward: wait for every reduction."""
        waits = ("reduce-scatter", "all-reduce")
        self.recorder.emit("end of backward", "root", waits=waits)

    def gradient_bytes(self, unit: FlatUnit) -> Size:
        """Size of a reduced gradient. [B]"""
        return round_up(unit.flat.shard_elements * self.plan.dtypes.gradient)

    def _flat(self, unit: FlatUnit) -> Change:
        size = round_up(unit.flat.elements * self.plan.dtypes.compute)
        return Change("unsharded_gradients", unit.name, size)

    def _spent(self, unit: FlatUnit) -> list[Change]:
        """List flat gradients that end here: the fresh one, and the one it was added to."""
        return [self._flat(unit)] * (1 + unit.accumulates)

    def _reduce_scatter(self, unit: FlatUnit) -> None:
        held, flat, name = self.plan.dtypes, unit.flat, unit.name
        padded = flat.shard_elements * flat.ranks
        inputs = []
        if held.reduce != held.compute:
            size = round_up(flat.elements * held.reduce)
            inputs.append(Change("reduce_scatter_buffers", name, size))
        if padded != flat.elements:
            inputs.append(Change("reduce_scatter_buffers", name, round_up(padded * held.reduce)))
        out = Change("gradients", name, round_up(flat.shard_elements * held.reduce))
        self.recorder.emit(
            "reduce-scatter",
            name,
            stream="reduce-scatter",
            changes=(*inputs, out),
            collective=Collective(
                name="reduce_scatter",
                group=self.plan.groups.shard,
                input_bytes=padded * held.reduce,
                output_bytes=flat.shard_elements * held.reduce,
            ),
            traffic_bytes=flat.elements * (held.compute + held.reduce) * len(inputs),
            waits=("compute",),
        )
        replicate = self.plan.groups.replicate
        if replicate.ranks > 1:
            self._all_reduce(unit, replicate, flat.shard_elements)
        gradient = Change("gradients", name, self.gradient_bytes(unit))
        made = [gradient] if held.reduce != held.gradient else []
        gone = [*inputs, *self._spent(unit)]
        gone += [out] if made else []
        gone += [gradient] if unit.has_gradient else []
        self.recorder.emit("assign gradient", name, changes=(*made, *(-each for each in gone)))
        self._to_host(unit)

    def _to_host(self, unit: FlatUnit) -> None:
        """Copy a reduced gradient to the host; it also stays until the end of backward.

        `_saved_grad_shard` goes in `prepare_gradient_for_optim`.
        """
        if self.plan.offload:
            size = unit.flat.shard_elements * self.plan.dtypes.gradient
            self.recorder.emit(
                "copy to host",
                unit.name,
                stream="reduce-scatter",
                transfer=copied(self.plan.offload, size),
            )

    def _reduce_whole(self, unit: FlatUnit) -> None:
        """All-reduce a gradient that is not sharded (NO_SHARD).

        Autograd has added the fresh one to one that was reduced before, which is reduced again.
        """
        held, name = self.plan.dtypes, unit.name
        before = held.gradient if unit.has_gradient else held.compute
        wire = Change("reduce_scatter_buffers", name, round_up(unit.flat.elements * held.reduce))
        sent = [] if held.reduce in (before, held.gradient) else [wire]
        self._all_reduce(unit, self.plan.groups.world, unit.flat.elements, sent)
        gradient = Change("gradients", name, self.gradient_bytes(unit))
        gone = [-each for each in (*sent, *self._spent(unit))]
        if before == held.reduce == held.gradient:
            changes = gone if unit.has_gradient else [*gone, gradient]
        else:
            changes = [gradient, *gone, *([-gradient] if unit.has_gradient else [])]
        self.recorder.emit("assign gradient", name, changes=tuple(changes))
        self._to_host(unit)

    def _all_reduce(
        self, unit: FlatUnit, group: Group, elements: int, changes: Iterable[Change] = ()
    ) -> None:
        size = elements * self.plan.dtypes.reduce
        self.recorder.emit(
            "all-reduce",
            unit.name,
            stream="all-reduce",
            changes=tuple(changes),
            collective=collective("all_reduce", group, size),
            waits=("compute", "reduce-scatter"),
        )
