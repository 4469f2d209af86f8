"""Every figure that an answer rests on, with its source."""

from collections.abc import Iterable

from zeroplan.compute.offload import offload_guesses
from zeroplan.compute.price import FLOAT8_EFFICIENCY, HALF_RATE_KEYS
from zeroplan.estimation.record import Assumption
from zeroplan.estimation.resolve import Question
from zeroplan.hardware import Quantity
from zeroplan.hardware.profile import Gpu, Link
from zeroplan.memory.device import COMMUNICATOR_BYTES, FRAGMENTATION
from zeroplan.memory.host import PROCESS_BYTES
from zeroplan.sharding.optimizers import update_guesses
from zeroplan.timing.band import FASTER, SLOWER
from zeroplan.timing.host import host_guesses
from zeroplan.units import Guess

__all__ = ["assumptions"]


def assumptions(question: Question) -> tuple[Assumption, ...]:
    """List the hardware's figures, what nobody measured, and what this version cannot say."""
    wires = question.wires
    links = (wires.intra,) if wires.intra.id == wires.inter.id else (wires.intra, wires.inter)
    return (
        *_gpu(question.gpu, question.run.training.compute_dtype),
        *(entry for link in links for entry in _link(link)),
        *(entry for link in links for entry in _gloo(link) if wires.backend == "gloo"),
        Assumption(
            name="NIC bandwidth of a node",
            value=wires.node_bytes_per_second,
            unit="B/s",
            kind="assumed",
            source=f"{wires.inter.id}, {wires.gpus_per_node} GPUs per node",
        ),
        _fragmentation(question.gpu),
        *((_guess(COMMUNICATOR_BYTES),) if wires.backend == "nccl" else ()),
        *(_guess(guess) for guess in update_guesses(question.run.training, question.strategies)),
        *(_guess(guess) for guess in _host(question)),
        _guess(HALF_RATE_KEYS),
        _guess(FASTER),
        *((_guess(FLOAT8_EFFICIENCY),) if question.run.training.fp8 != "none" else ()),
        _guess(SLOWER),
        *_host_memory(question),
        *_offload(question),
    )


def _fragmentation(gpu: Gpu) -> Assumption:
    if gpu.fragmentation is None:
        return _guess(FRAGMENTATION)
    return _quantity(FRAGMENTATION.name, gpu.fragmentation)


def _host(question: Question) -> Iterable[Guess]:
    """List what issuing work costs the host under any of the strategies, each once."""
    compiled = question.run.model.compile
    rows = (host_guesses(row, compiled=compiled).values() for row in question.strategies)
    return {guess.name: guess for guesses in rows for guess in guesses}.values()


def _host_memory(question: Question) -> Iterable[Assumption]:
    """List what the memory of the host rests on."""
    yield _guess(PROCESS_BYTES)
    if question.run.cluster.host_memory_bytes is None:
        yield Assumption(
            name="host memory of a node",
            value=None,
            unit="B",
            kind="assumed",
            source="neither cluster.host_memory_bytes nor the node says: no verdict on the host",
        )
    if question.run.training.load is None:
        yield Assumption(
            name="loading",
            value="every rank reads all weights into host memory",
            unit="1",
            kind="assumed",
            source="training.load is not given: the host's verdict leaves loading out",
        )


def _offload(question: Question) -> Iterable[Assumption]:
    """List what the time of offloading rests on."""
    run, gpu = question.run, question.gpu
    if not run.offloads:
        return
    if gpu.host_link_bytes_per_second is not None:
        yield _quantity(f"{gpu.id}: line rate to the host", gpu.host_link_bytes_per_second)
    yield from (_guess(each) for each in offload_guesses(gpu, run.sharding))


def _gpu(gpu: Gpu, dtype: str) -> Iterable[Assumption]:
    peak = gpu.peak_flop_per_second.get(dtype)
    if peak is not None:
        yield _quantity(f"{gpu.id}: {dtype} peak", peak)
    for name, quantity in (
        ("matmul efficiency", gpu.matmul_efficiency_by_dtype.get(dtype, gpu.matmul_efficiency)),
        ("share of the matmul rate in a step", gpu.load_share),
        ("matmul depth", gpu.matmul_depth_elements),
        ("attention efficiency, forward", gpu.attention_efficiency),
        ("attention efficiency, backward", gpu.attention_backward_efficiency),
        ("slowdown beside a collective", gpu.overlap_slowdown),
        ("shortest kernel", gpu.kernel_seconds),
        ("memory bandwidth", gpu.hbm_bytes_per_second),
        ("memory bandwidth efficiency", gpu.hbm_efficiency),
        ("usable memory", gpu.usable_bytes),
        ("context", gpu.context_bytes),
        ("cuBLAS workspace", gpu.cublas_workspace_bytes),
    ):
        yield _quantity(f"{gpu.id}: {name}", quantity)


def _link(link: Link) -> Iterable[Assumption]:
    for name, quantity in (
        ("line rate", link.bandwidth_bytes_per_second),
        ("share of the line rate", link.bandwidth_efficiency),
        ("latency of a ring step", link.latency_seconds),
        ("start of a collective", link.base_seconds),
        ("small messages: share of the bandwidth", link.small_message_efficiency),
        ("small messages: latency of a step", link.small_message_latency_seconds),
        ("small messages: start", link.small_message_base_seconds),
        ("share of the line rate in the switch", link.switch_efficiency),
        ("start in the switch, per GPU", link.switch_latency_seconds),
        ("share of the bandwidth in a tree", link.tree_efficiency),
        ("most that a host's sockets carry", link.host_bytes_per_second),
    ):
        if quantity is not None:
            yield _quantity(f"{link.id}: {name}", quantity)


def _gloo(link: Link) -> Iterable[Assumption]:
    """List what a link's figures of gloo are, or what stands in for them."""
    for name, quantity in link.gloo_bytes_per_second.items():
        yield _quantity(f"{link.id}: {name.replace('_', '-')} by gloo", quantity)
    for name, quantity in link.gloo_step_seconds.items():
        yield _quantity(f"{link.id}: step of gloo's {name.replace('_', '-')}", quantity)
    if not link.gloo_bytes_per_second:
        yield Assumption(
            name=f"{link.id}: gloo",
            value="as slow as NCCL's ring",
            unit="1",
            kind="assumed",
            source="the profile has no figures of gloo; `zeroplan calibrate` makes them of a table",
        )


def _quantity(name: str, quantity: Quantity) -> Assumption:
    return Assumption(
        name=name,
        value=quantity.value,
        unit=quantity.unit,
        kind=quantity.kind,
        source=quantity.source,
    )


def _guess(guess: Guess) -> Assumption:
    return Assumption(
        name=guess.name, value=guess.value, unit=guess.unit, kind="assumed", source=guess.source
    )
