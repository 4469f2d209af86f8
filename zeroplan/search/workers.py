"""Processes that search beside each other, none of which outlives the one that started them."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Thread
from traceback import format_exc
from typing import Any

from zeroplan.errors import RunError

__all__ = ["mapping"]

Map = Callable[..., Iterable[Any]]


@contextmanager
def mapping(workers: int) -> Iterator[Map]:
    """Give a `map` that spreads over processes; they end with its use, finished or not."""
    if workers == 1:
        yield map
        return
    started: list[BaseProcess] = []
    try:
        yield partial(_spread, workers, started)
    finally:
        for each in started:
            each.kill()
        for each in started:
            each.join()


def _spread(
    workers: int, started: list[BaseProcess], function: Callable[[Any], Any], tasks: Sequence[Any]
) -> Iterator[Any]:
    """Yield what a function returns for each task, in their order."""
    with _interrupts_wait():
        ends = [_start(function, started) for _ in range(min(workers, len(tasks)))]
    left = enumerate(tasks)
    for end, task in zip(ends, left, strict=False):
        _send(end, task)
    answers: dict[int, Any] = {}
    for place in range(len(tasks)):
        while place not in answers:
            for ready in wait(ends):
                answered, answer = _received(ready)
                answers[answered] = answer
                for task in islice(left, 1):
                    _send(ready, task)
        answer = answers.pop(place)
        if isinstance(answer, Exception):
            raise answer
        yield answer


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let an interrupt wait while processes are started, which inherit that they get none."""
    came: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    blocks = hasattr(signal, "pthread_sigmask")  # not on Windows
    if blocks:
        resource_tracker.ensure_running()  # its start would let interrupts through
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if blocks:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, usual)
    if came:
        signal.raise_signal(signal.SIGINT)


def _start(function: Callable[[Any], Any], started: list[BaseProcess]) -> Connection:
    """Start a process and return the end of the pipe on which it waits for tasks."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, function), daemon=True)
    process.start()
    started.append(process)
    theirs.close()
    return ours


def _send(end: Any, task: object) -> None:
    with suppress(OSError):  # of a process that is gone, which is told where its answer is due
        end.send(task)


def _received(end: Any) -> Any:
    try:
        return end.recv()
    except (EOFError, OSError):
        raise RunError(
            "a process that searched was ended, as where memory runs out: "
            "a smaller number of --workers needs less of it."
        ) from None


def _serve(end: Connection, function: Callable[[Any], Any]) -> None:
    """Answer tasks until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be kept out from the start
    Thread(target=_end_with, args=(parent_process(),), daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            place, task = end.recv()
            end.send((place, _answer(function, task)))


def _answer(function: Callable[[Any], Any], task: object) -> Any:
    try:
        return function(task)
    except Exception as error:  # noqa: BLE001  # it is raised where the answer is wanted
        error.add_note(format_exc())
        return error


def _end_with(parent: Any) -> None:
    """End this process, whatever it does, when its parent has ended in whatever way."""
    parent.join()
    os._exit(1)
