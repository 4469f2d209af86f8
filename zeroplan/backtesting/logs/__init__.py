"""Training logs: what torchtitan, the HF Trainer, DeepSpeed and Composer say of a run."""

import json
from pathlib import Path
from typing import Any, Final

from zeroplan.backtesting.logs.composer import read_composer
from zeroplan.backtesting.logs.deepspeed import read_deepspeed
from zeroplan.backtesting.logs.reading import Kind, Log, Measure, Reading
from zeroplan.backtesting.logs.torchtitan import read_torchtitan
from zeroplan.backtesting.logs.trainer_state import read_trainer_state
from zeroplan.backtesting.pasted import pasted_lines
from zeroplan.errors import SpecError
from zeroplan.units import GIB

__all__ = ["Kind", "Log", "Measure", "Reading", "read_log"]

READERS: Final = (read_torchtitan, read_composer, read_deepspeed)
MAX_BYTES: Final = GIB
"""A log of a month of steps has a tenth of it. [B]"""
KNOWN: Final = "torchtitan's or DeepSpeed's output, Composer's console log, or a trainer_state.json"


def read_log(path: Path) -> Log:
    """Read a training log, of whichever trainer it is.

    Raises
    ------
    SpecError
        There is no such file, or it has no figure of a step.

    """
    text = _text(path)
    state = _state(path, text)
    if state is not None:
        log = read_trainer_state(state)
    else:
        lines = list(pasted_lines(text))
        log = max(
            (read(lines) for read in READERS),
            key=lambda each: (len(each.readings), len(each.unread)),
        )
    if log.readings:
        return log
    if log.unread:
        raise SpecError(f"{path}: {log.trainer} log without a figure; {log.unread[0]}.")
    if state is not None:
        raise SpecError(
            f"{path}: no train_runtime in log_history: the Trainer writes it when training ends, "
            "and with include_num_input_tokens_seen at every report."
        )
    raise SpecError(f"{path}: no figure of a training step in it; zeroplan reads {KNOWN}.")


def _text(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise SpecError(f"{path}: more than {MAX_BYTES} bytes; cut a part of the run out.")
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}; give the path of a training log.") from None
    except ValueError:
        raise SpecError(f"{str(path)!r}: not the name of a file.") from None
    return text


def _state(path: Path, text: str) -> dict[str, Any] | None:
    """Return the Trainer's state, None where the text is a log of lines."""
    if not text.lstrip().startswith("{") or "log_history" not in text:
        return None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not whole JSON: {error}.") from None
    return state if isinstance(state, dict) else None
