"""Where the seconds come from: kernels by what bounds them, copies, the optimizer, collectives."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from zeroplan.compute.gpu import GpuPrice
from zeroplan.compute.price import work
from zeroplan.estimation.explain_case import Case
from zeroplan.estimation.explain_record import Term
from zeroplan.estimation.record import Collective, Time
from zeroplan.records import dataclass
from zeroplan.rows import readable, significant
from zeroplan.schedule.events import Script
from zeroplan.units import GB, MIB, TERA
from zeroplan.workload.changes import Step

__all__ = ["time_terms"]

NAMES: Final = {"matmul": "matmuls", "scores": "matmuls", "attention": "attention"}
REST: Final = "memory-bound kernels"
COPIES: Final = "copies in and out"
LONGER: Final = "gaps until the host issues kernels, and kernels slowed by collectives beside them"


@dataclass(slots=True)
class _Work:
    """What kernels of one kind do in a step."""

    forward_seconds: float = 0.0
    again_seconds: float = 0.0
    backward_seconds: float = 0.0
    flop: float = 0.0

    @property
    def seconds(self) -> float:
        """[s]"""
        return self.forward_seconds + self.again_seconds + self.backward_seconds


def time_terms(case: Case) -> tuple[Term, ...]:
    """List the terms of the step time, each with its formula."""
    time, step, price = case.now.time, case.step, case.price
    kernels = _kernels(step, price, fuses=case.question.run.model.compile)
    copies = _copies_bytes(step)
    terms = [_kernel_term(name, each, price) for name, each in kernels.items() if each.seconds]
    for name, moved in copies.items():
        if moved:
            at = f"{readable(moved, 'B')} at {significant(price.bytes_per_second / GB)} GB/s"
            terms.append(_seconds(name, moved / price.bytes_per_second, at))
    terms += [_collective_term(each) for each in case.now.communication.collectives]
    if time.exposed_communication_seconds is not None and time.step_seconds is not None:
        waits = time.exposed_communication_seconds
        alone = sum(each.seconds for each in kernels.values())
        alone += sum(copies.values()) / price.bytes_per_second
        slower = max(0.0, (time.compute_seconds or 0.0) - alone)
        terms.append(_seconds("launches and contention", slower, LONGER))
        terms.append(_seconds("waiting", waits, "communication that compute does not hide"))
        off = tuple(_offload(case.step, time))
        but = "the collectives and what is off the GPU" if off else "the collectives"
        terms += [*off, _seconds("step", time.step_seconds, f"all of these but {but}")]
    return tuple(terms)


def _offload(step: Script, time: Time) -> Iterator[Term]:
    """State what leaves the GPU by its way, and what of that the step waits for."""
    if not time.offload_seconds:
        return
    moved = Counter[str]()
    for event, times in step.calls():
        if event.transfer is not None:
            moved[event.transfer.route] += times * event.transfer.bytes
        moved["activations"] += times * sum(each.moved_bytes for each in event.steps)
    ways = ", ".join(f"{route} {readable(size, 'B')}" for route, size in moved.items() if size)
    yield _seconds("off the GPU", time.offload_seconds, f"per GPU: {ways}")
    longer = time.exposed_offload_seconds or 0.0
    yield _seconds("of that not hidden", longer, "the compute stream waits so much longer")


def _seconds(name: str, value: float, formula: str) -> Term:
    return Term(name=name, value=value, unit="s", formula=formula)


def _kernels(step: Script, price: GpuPrice, *, fuses: bool) -> dict[str, _Work]:
    """Share each run of operations out among its kernels, in proportion to their time alone."""
    kinds = {name: _Work() for name in (*dict.fromkeys(NAMES.values()), REST)}
    known: dict[int, list[float]] = {}
    for event, times in step.calls():
        if id(event.steps) not in known:
            known[id(event.steps)] = _shares(event.steps, price, fuses=fuses)
        for each, seconds in zip(event.steps, known[id(event.steps)], strict=True):
            kind = kinds[NAMES.get(each.operation.kernel, REST)]
            if each.direction == "backward":
                kind.backward_seconds += times * seconds
            elif event.phase == "backward":
                kind.again_seconds += times * seconds
            else:
                kind.forward_seconds += times * seconds
            kind.flop += times * _flop(each)
    return kinds


def _shares(steps: tuple[Step, ...], price: GpuPrice, *, fuses: bool) -> list[float]:
    alone = [float(work((each,), price).seconds) for each in steps]
    total = float(work(steps, price, fuses=fuses).seconds)
    scale = total / (sum(alone) or 1.0)
    return [seconds * scale for seconds in alone]


def _flop(step: Step) -> float:
    operation = step.operation
    if step.direction == "cached":
        return 0.0
    ratio = operation.backward_ratio if step.direction == "backward" else 1.0
    return float(operation.flop * operation.visible_share * ratio)


def _kernel_term(name: str, done: _Work, price: GpuPrice) -> Term:
    parts = [f"fwd {significant(done.forward_seconds)}"]
    if done.again_seconds:
        parts.append(f"again {significant(done.again_seconds)}")
    parts.append(f"bwd {significant(done.backward_seconds)}")
    words = ", ".join(parts)
    if done.flop and name != REST:
        share = 100 * done.flop / done.seconds / price.peak_flop_per_second
        words = f"{significant(done.flop / TERA)} TFLOP at {share:.0f} % of peak; {words}"
    return _seconds(name, done.seconds, words)


def _copies_bytes(step: Script) -> dict[str, float]:
    """HBM bytes of copies of the compute stream, those of the optimizer apart. [B]"""
    moved = {COPIES: 0.0, "optimizer": 0.0}
    for event, times in step.calls():
        if event.stream == "compute":
            name = "optimizer" if event.phase == "optimizer" else COPIES
            moved[name] += times * float(event.traffic_bytes)
    return moved


def _collective_term(call: Collective) -> Term:
    name = f"{call.name.replace('_', '-')}, {call.phase}"
    calls = "1 call" if call.count == 1 else f"{call.count:,} calls"
    seconds = call.seconds or 0.0
    sent = f"{call.wire_bytes:,} B sent per GPU"
    if call.wire_bytes >= MIB and seconds:
        rate = significant(call.wire_bytes / seconds / GB)
        sent = f"{readable(call.wire_bytes, 'B')} sent per GPU, {rate} GB/s"
    return _seconds(name, seconds, f"{calls} in the {call.group} group: {sent}")
