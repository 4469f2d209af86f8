"""A predicted step in the forms that existing viewers open."""

import json
import pickle
from typing import Any, Final, get_args

from zeroplan import __version__
from zeroplan.estimation.explain_case import Case
from zeroplan.estimation.explain_peak import Live, Storage
from zeroplan.records import dataclass, field
from zeroplan.report.charts.memory import grouped
from zeroplan.report.charts.memory_timeline import lives
from zeroplan.report.charts.words import about
from zeroplan.schedule.events import Event, Stream
from zeroplan.timing.walk import Span
from zeroplan.units import MEGA

__all__ = ["NOTE", "chrome_trace", "memory_snapshot"]

NOTE: Final = (
    "Predicted by zeroplan, not measured. Memory comes and goes in the order of issue, at the start "
    "of the event that issues it, or of one issued before it that starts later."
)

TRACKS: Final[tuple[Stream, ...]] = get_args(Stream)

PROTOCOL: Final = 4
"""Of pickle: what `torch.cuda.memory._dump_snapshot` writes, which the viewer reads."""

BASE: Final = 2**32
"""Address of the first storage; each has one of its own, so that none is ever used twice."""


def chrome_trace(case: Case) -> str:
    """Return a step as the JSON that Perfetto and chrome://tracing open.

    A track for each stream, with times in microseconds, and a counter of the live tensors by part.
    """
    spans = list(case.spans())
    used = {span.stream for span in spans}
    tracks = {stream: place for place, stream in enumerate(TRACKS) if stream in used}
    title = f"zeroplan: {case.now.strategy}, {about(case.question.run)}"
    named = [_meta("process_name", 0, name=title)]
    for stream, place in tracks.items():
        named.append(_meta("thread_name", place, name=stream))
        named.append(_meta("thread_sort_index", place, sort_index=place))
    drawn = [_drawn(span, tracks[span.stream]) for span in spans]
    whole = {
        "displayTimeUnit": "ms",
        "otherData": {"zeroplan_version": __version__, "note": NOTE},
        "traceEvents": [*named, *drawn, *_counters(case, spans)],
    }
    return json.dumps(whole, allow_nan=False, separators=(",", ":")) + "\n"


def _meta(name: str, track: int, /, **args: object) -> dict[str, object]:
    return {"ph": "M", "name": name, "pid": 0, "tid": track, "args": args}


def _drawn(span: Span, track: int) -> dict[str, object]:
    event = span.event
    args: dict[str, object] = {"phase": event.phase, "owner": _owner(event, span.block)}
    if event.collective is not None:
        call = event.collective
        args |= {
            "collective": call.name,
            "ranks": int(call.group.ranks),
            "message_bytes": int(call.message_bytes),
        }
    if event.transfer is not None:
        args |= {"route": event.transfer.route, "bytes": int(event.transfer.bytes)}
    return {
        "ph": "X",
        "name": f"{event.name} ({_owner(event, span.block)})",
        "cat": event.phase,
        "pid": 0,
        "tid": track,
        "ts": span.start_seconds * MEGA,
        "dur": (span.end_seconds - span.start_seconds) * MEGA,
        "args": args,
    }


def _owner(event: Event, block: int | None) -> str:
    return event.owner if block is None else f"block {block}"


def _counters(case: Case, spans: list[Span]) -> list[dict[str, object]]:
    """Return live bytes: what an event reaches at its start, what it leaves halfway to the next."""
    starts: list[float] = []
    for span in spans:
        starts.append(max(span.start_seconds, starts[-1] if starts else 0.0))
    ends = [*starts[1:], max((span.end_seconds for span in spans), default=0.0)]
    found = []
    for start, end, moment in zip(starts, ends, lives(case.step), strict=True):
        for at, sizes in ((start, moment.bytes), ((start + end) / 2, moment.after)):
            counter = {"ph": "C", "name": "live tensors [B]", "pid": 0, "ts": at * MEGA}
            found.append({**counter, "args": grouped(sizes)})
    return found


@dataclass(slots=True)
class _Recorder:
    """Storages as the caching allocator's history tells them."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Live storages by serial, as entries of an allocation."""
    next_address: int = BASE
    frames: list[dict[str, Any]] = field(default_factory=list)
    time_us: int = 0
    recording: bool = False

    def note(self, storage: Storage, size: int) -> None:
        if size < 0:
            self._free(storage, -size)
        else:
            self._allocate(storage.serial, size, self.frames)

    def _allocate(self, serial: int, size: int, frames: list[dict[str, Any]]) -> None:
        entry = {
            "action": "alloc",
            "addr": self.next_address,
            "size": size,
            "stream": 0,
            "time_us": self.time_us,
            "frames": frames,
        }
        self.next_address += size
        self.blocks[serial] = entry
        if self.recording:
            self.entries.append(entry)

    def _free(self, storage: Storage, size: int) -> None:
        """Free a storage; where only a part goes, the rest is allocated anew."""
        entry = self.blocks.pop(storage.serial, None)
        if entry is None:
            return
        for action in ("free_requested", "free_completed"):
            self.entries.append({**entry, "action": action, "time_us": self.time_us})
        if entry["size"] > size:
            self._allocate(storage.serial, entry["size"] - size, entry["frames"])


def memory_snapshot(case: Case) -> bytes:
    """Return a step's memory as a pickle that PyTorch's memory visualiser reads.

    What lives throughout was there before the history begins. All is on one stream, in one segment
    in which no address is used twice: the history is that of tensors, not of fragmentation.
    """
    recorder = _Recorder()
    live = Live(seen=recorder.note)
    for change in case.step.resident:
        recorder.frames = _frames(change.category, change.owner, "before the step")
        live.apply(change, None)
    recorder.recording, live.resident = True, False
    latest = 0.0
    for span in case.spans():
        event, latest = span.event, max(latest, span.start_seconds)
        recorder.time_us = round(latest * MEGA)
        for change in event.changes:
            where = f"{event.phase}, {_owner(event, span.block)}, {event.name}"
            recorder.frames = _frames(change.category, change.owner, where)
            live.apply(change, span.block)
    snapshot = {
        "device_traces": [recorder.entries],
        "segments": [_segment(recorder)],
        "external_annotations": [],
        "allocator_settings": {},
        "zeroplan": {"version": __version__, "note": NOTE},
    }
    return pickle.dumps(snapshot, protocol=PROTOCOL)


def _frames(category: str, owner: str, where: str) -> list[dict[str, Any]]:
    """Tell what a storage is in the place of a stack: the visualiser shows nothing else."""
    names = (category.replace("_", " "), owner, where)
    return [{"filename": "zeroplan (predicted)", "line": 0, "name": name} for name in names]


def _segment(recorder: _Recorder) -> dict[str, Any]:
    """Return what is live at the end, with free space between."""
    blocks: list[dict[str, Any]] = []
    address = BASE
    for entry in sorted(recorder.blocks.values(), key=lambda each: each["addr"]):
        if entry["addr"] > address:
            blocks.append(_block(address, entry["addr"] - address, "inactive", []))
        blocks.append(_block(entry["addr"], entry["size"], "active_allocated", entry["frames"]))
        address = entry["addr"] + entry["size"]
    if recorder.next_address > address:
        blocks.append(_block(address, recorder.next_address - address, "inactive", []))
    allocated = sum(entry["size"] for entry in recorder.blocks.values())
    return {
        "device": 0,
        "address": BASE,
        "total_size": recorder.next_address - BASE,
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": allocated,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": [0, 0],
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _block(address: int, size: int, state: str, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": size if state == "active_allocated" else 0,
        "state": state,
        "frames": frames,
    }
