"""The HF Trainer's `trainer_state.json`: its state, and what it logged in `log_history`.

transformers' `trainer.py` (`log`, `_inner_training_loop`) and `trainer_utils.py` (`speed_metrics`):
`train_runtime` counts from the start of the session. Where tokens are counted every report has it,
so that the time between two reports is known; otherwise only the last entry has it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from zeroplan.backtesting.logs.reading import LEAST, MOST, Log, Reading

__all__ = ["read_trainer_state"]

WHOLE_RUN: Final = (
    "train_runtime is told of the whole run only: its first steps and its checkpoints are in it, "
    "and of a resumed run it is wrong"
)
MEMORY_DELTAS: Final = "train_mem_gpu_* are differences between stages, not peaks"


def read_trainer_state(state: Mapping[str, Any]) -> Log:
    """Read the state; evaluations are taken out of the time, checkpoints cannot be."""
    history = [entry for entry in _list(state.get("log_history")) if isinstance(entry, dict)]
    unread: list[str] = []
    readings = tuple(_reports(history, unread))
    remarks = [WHOLE_RUN] if len(readings) == 1 else []
    if any(key.startswith("train_mem_gpu") for entry in history for key in entry):
        remarks.append(MEMORY_DELTAS)
    steps, tokens = _figure(state, "global_step"), _figure(state, "num_input_tokens_seen")
    batch = _figure(state, "train_batch_size")
    return Log(
        trainer="HF Trainer",
        measure="step_seconds",
        readings=readings,
        unread=tuple(unread),
        remarks=tuple(remarks),
        micro_batch_size=int(batch) if batch else None,
        tokens_per_step=tokens / steps if tokens and steps else None,
    )


def _reports(history: list[dict[str, Any]], unread: list[str]) -> Iterator[Reading]:
    """Yield the time of a step since the report before, of the first since the start."""
    before, steps, runtime = 0, 0.0, 0.0
    for at, entry in enumerate(history):
        if "train_runtime" not in entry or _step(entry) == steps:
            continue  # the last entry sums up at the step of the one before
        place, now = f"log_history[{at}]", _figure(entry, "train_runtime")
        if now is None:
            unread.append(f"{place}: train_runtime = {entry['train_runtime']!r}")
            continue
        took = now - runtime - _evaluations(history[before:at])
        covers = _step(entry) - steps
        before, steps, runtime = at, _step(entry), now
        if took > LEAST and covers > 0:
            yield Reading(place=place, step=int(steps), speed=took / covers, peaks={})
        else:
            unread.append(f"{place}: the clock starts anew, as where a run is resumed")


def _evaluations(entries: list[dict[str, Any]]) -> float:
    """Return how long the evaluations took that were logged. [s]"""
    return sum(_figure(entry, "eval_runtime") or 0.0 for entry in entries)


def _step(entry: Mapping[str, Any]) -> float:
    return _figure(entry, "step") or 0.0


def _figure(entry: Mapping[str, Any], key: str) -> float | None:
    """Return a figure, None where there is none or cannot be."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if LEAST < value < MOST else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
