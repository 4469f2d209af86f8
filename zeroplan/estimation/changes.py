"""Changes of a run that are tried: each is a re-estimate, told beside what it was before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from zeroplan.errors import SpecError
from zeroplan.estimation.answer import answer
from zeroplan.estimation.explain_record import Remedy
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.rows import plain, significant
from zeroplan.spec.hints import spelled
from zeroplan.spec.reading import flatten, read_run
from zeroplan.spec.run import Strategy
from zeroplan.units import GIB

__all__ = ["Candidate", "changed", "remedy", "tried_out"]

MUCH_PERCENT: Final = 500
"""From so much more on, a change is told as a multiple. [%]"""


class Candidate(NamedTuple):
    """Keys to set, what they act on, and what that costs."""

    keys: dict[str, object]
    lowers: tuple[str, ...]
    """Parts of the peak; a change is tried where one of them is large enough."""
    why: str


def tried_out(
    question: Question, strategy: Strategy, keys: Mapping[str, object], profiles: Path | None
) -> StrategyEstimate | None:
    """Answer a question with keys changed; None where they contradict another one."""
    try:
        return answer(changed(question, strategy, keys, profiles)).estimates[0]
    except SpecError:
        return None


def changed(
    question: Question, strategy: Strategy, keys: Mapping[str, object], profiles: Path | None
) -> Question:
    """Return a question with keys changed; SpecError where they contradict another one."""
    named: dict[str, object] = {"sharding.strategy": strategy, **keys}
    run = read_run(flatten(plain(question.run)), named)
    return resolve(run, profiles, architecture=question.architecture)


def remedy(candidate: Candidate, now: StrategyEstimate, then: StrategyEstimate) -> Remedy:
    """Tell a change beside what it was before."""

    def extra(name: str) -> float:
        return (getattr(then.time, name) or 0.0) - (getattr(now.time, name) or 0.0)

    change = ", ".join(
        f"{key.rpartition('.')[2]} {spelled(value)}" for key, value in candidate.keys.items()
    )
    return Remedy(
        change=change,
        saved_bytes=now.memory.peak_allocated_bytes - then.memory.peak_allocated_bytes,
        peak_allocated_bytes=then.memory.peak_allocated_bytes,
        device_bytes=then.memory.device_bytes,
        verdict=then.verdict,
        step_seconds=then.time.step_seconds or 0.0,
        extra_seconds=extra("step_seconds"),
        extra_compute_seconds=extra("compute_seconds"),
        extra_exposed_seconds=extra("exposed_communication_seconds"),
        why="; ".join(filter(None, (candidate.why, _sent(now, then), _host(now, then)))),
        tokens_per_second_per_gpu=then.time.tokens_per_second_per_gpu or 0.0,
    )


def _sent(now: StrategyEstimate, then: StrategyEstimate) -> str:
    """Say how much more or less a GPU sends, and apart from that between nodes."""
    before, after = now.communication, then.communication
    sent = _more(before.wire_bytes, after.wire_bytes)
    between = _more(before.inter_node_wire_bytes, after.inter_node_wire_bytes)
    told = f"sends {sent}" if sent else ""
    if not between or between == sent:
        return told
    return f"{told}, {between} between nodes" if told else f"sends {between} between nodes"


def _more(before: float, after: float) -> str:
    percent = 100 * (after / before - 1) if before else 0.0
    if abs(percent) < 1:
        return ""
    if percent >= MUCH_PERCENT:
        return f"{after / before:,.0f} times as much"
    return f"{abs(percent):.0f} % {'more' if percent > 0 else 'less'}"


def _host(now: StrategyEstimate, then: StrategyEstimate) -> str:
    """Say how much host memory a node needs, where that is more."""
    more = then.memory.host_bytes - now.memory.host_bytes
    return f"{significant(then.memory.host_bytes / GIB)} GiB of host memory" if more > GIB else ""
