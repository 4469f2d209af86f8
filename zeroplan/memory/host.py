"""Host memory of a node: what is offloaded, and what loading and saving take for a while."""

from collections import Counter
from typing import Final

from zeroplan.memory.device import Verdict, verdict_on
from zeroplan.records import dataclass
from zeroplan.schedule.events import Script
from zeroplan.schedule.offload import host_states
from zeroplan.schedule.plan import Plan
from zeroplan.sharding.dtypes import Dtypes
from zeroplan.sharding.offload import HostBuffer
from zeroplan.spec.run import Loading
from zeroplan.units import DTYPE_BYTES, GB, Guess, Size, floor
from zeroplan.workload.tape import Parameter

__all__ = ["PROCESS_BYTES", "HostMemory", "host_memory", "offloaded_activations"]

PROCESS_BYTES: Final = Guess(
    name="host memory of a training process without tensors",
    value=4.0 * GB,
    rel_uncertainty=0.5,
    unit="B",
    source="judgement: interpreter, PyTorch, CUDA, NCCL and the data loader's workers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Of one node. [B]"""

    held_bytes: Size
    """Between steps and at its peak in one."""
    load_bytes: Size
    """While the weights are read."""
    save_bytes: Size
    """While one rank gathers parameters and optimizer states to write them."""
    checkpoint_bytes: Size
    """What is written for the whole job."""
    nvme_bytes: Size
    """On the node's drives."""
    half_band_bytes: Size
    available_bytes: Size | None
    """None where it is not known."""
    checks_loading: bool
    """Whether the verdict counts loading, too: it was said how that is done."""

    @property
    def verdict(self) -> Verdict | None:
        """Whether the node holds it; None where its memory is not known."""
        if self.available_bytes is None:
            return None
        highest = max(self.held_bytes, self.load_bytes * self.checks_loading)
        return verdict_on(highest, self.half_band_bytes, self.available_bytes)


def host_memory(
    plan: Plan, step: Script, ranks_per_node: int, available_bytes: Size | None
) -> HostMemory:
    """Add up a node's host memory.

    Weights are read once by each rank, by one of a node, or by all in parts
    (`training.load`). Where parameters are sharded a full state dict is gathered by one rank
    (FSDP's FULL_STATE_DICT, DeepSpeed's 16-bit weights); otherwise tensors are written one by one.
    """
    held, training = plan.dtypes, plan.training
    sizes = [(_stored_bytes(p, held), times) for p, times in plan.parameters]
    parameters = sum(size * times for size, times in sizes)
    processes = ranks_per_node * PROCESS_BYTES.value
    held_off = (*step.host, *offloaded_activations(plan))
    offloaded = ranks_per_node * sum(each.held_bytes for each in held_off)
    loading: Loading = training.load or "every-rank"
    world = int(plan.groups.world.ranks)
    readers = {
        "every-rank": float(ranks_per_node),
        "rank0": 1.0,
        "sharded": ranks_per_node / world,
    }[loading]
    states = host_states(plan.pieces, held).bytes
    gathered = parameters + (0 if plan.row.framework == "deepspeed" else states)
    saved = gathered if plan.row.divides_parameters else max(sizes)[0]
    return HostMemory(
        held_bytes=floor(offloaded + processes),
        load_bytes=floor(readers * _read_bytes(plan) + processes),
        save_bytes=floor(offloaded + processes + saved),
        checkpoint_bytes=floor(parameters + states),
        nvme_bytes=floor(ranks_per_node * step.nvme_bytes),
        half_band_bytes=int(processes * PROCESS_BYTES.rel_uncertainty),
        available_bytes=available_bytes,
        checks_loading=training.load is not None,
    )


def _stored_bytes(parameter: Parameter, held: Dtypes) -> Size:
    """Return what a parameter takes in a checkpoint: its scales too, where it is quantised. [B]"""
    return parameter.elements * held.stored(parameter) + parameter.constants_bytes


def _read_bytes(plan: Plan) -> Size:
    """Sum the weights as they are read: packed only once they are there, a base in its own dtype.

    Adapters count too: the host makes them beside the base. [B]
    """
    asked = plan.training.load_dtype
    trained = DTYPE_BYTES[asked or plan.training.parameter_dtype]
    frozen = trained if asked else plan.dtypes.frozen or trained
    return sum(
        (p.unpacked_elements or p.elements) * (trained if p.trainable else frozen) * times
        for p, times in plan.parameters
    )


def offloaded_activations(plan: Plan) -> tuple[HostBuffer, ...]:
    """List what checkpoints keep in host memory: the inputs of their blocks, one by one."""
    inputs = Counter(
        unit.input
        for index, unit in enumerate(plan.units)
        if plan.checkpointing(index) == "offloaded" and unit.input is not None
    )
    return tuple(
        HostBuffer(name="activations", bytes=each.bytes, times=times, pinned=True)
        for each, times in inputs.items()
    )
