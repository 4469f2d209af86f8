"""What a step sends: every collective of each phase and group, on one rank."""

from collections.abc import Mapping

from zeroplan.comm.collectives import collective_seconds, inter_node_wire_bytes
from zeroplan.comm.gloo import on_the_wire
from zeroplan.estimation import record
from zeroplan.estimation.resolve import Question
from zeroplan.records import dataclass
from zeroplan.schedule.events import Collective, CollectiveName, Phase
from zeroplan.sharding.groups import GroupName, Groups

__all__ = ["communication", "nccl_communicators"]


def nccl_communicators(question: Question, groups: Groups) -> int:
    """Return the NCCL communicators of a rank: gloo makes none. [count]"""
    return groups.communicators if question.wires.backend == "nccl" else 0


@dataclass(slots=True)
class _Sum:
    """All calls of one collective in one phase and group."""

    count: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    wire_bytes: float = 0.0
    seconds: float = 0.0


def communication(
    question: Question, sent: Mapping[tuple[Phase, Collective], int]
) -> record.Communication:
    """Sum up the calls of a step, with the time that each takes."""
    sums: dict[tuple[CollectiveName, Phase, GroupName], _Sum] = {}
    between = 0.0
    for (phase, call), times in sent.items():
        one = sums.setdefault((call.name, phase, call.group.name), _Sum())
        one.count += times
        one.input_bytes += times * call.input_bytes
        one.output_bytes += times * call.output_bytes
        ran = on_the_wire(call, question.wires)
        one.wire_bytes += times * ran.wire_bytes
        one.seconds += times * collective_seconds(call, question.wires)
        between += times * inter_node_wire_bytes(ran)
    return record.Communication(
        collectives=tuple(
            record.Collective(
                name=name,
                phase=phase,
                group=group,
                count=one.count,
                input_bytes=one.input_bytes,
                output_bytes=one.output_bytes,
                wire_bytes=round(one.wire_bytes),
                seconds=one.seconds,
            )
            for (name, phase, group), one in sums.items()
        ),
        wire_bytes=round(sum(one.wire_bytes for one in sums.values())),
        inter_node_wire_bytes=round(between),
    )
