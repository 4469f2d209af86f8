"""The constants of a training step fitted to a table of runs, and each source predicted without it.

Four constants are fitted, and nothing else: the share of a lone kernel's rate that is left in a
step on each family of GPUs, the share of the memory bandwidth that its pointwise kernels reach, and
the slowdown beside a collective. All but the first are one for every family.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import exp, log, sqrt
from pathlib import Path
from typing import Final

from zeroplan.backtesting.question import question_of_row
from zeroplan.backtesting.record import Score
from zeroplan.backtesting.runs import score, step_seconds
from zeroplan.backtesting.table import Cells, read_table
from zeroplan.compute.gpu import gpu_price
from zeroplan.errors import SpecError
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import Question
from zeroplan.hardware.profile import Gpu
from zeroplan.records import dataclass, replace
from zeroplan.schedule import script
from zeroplan.schedule.events import Script
from zeroplan.timing.band import step_band
from zeroplan.timing.host import HostPrice, host_price
from zeroplan.timing.walk import Timing, walk

__all__ = ["START", "Constants", "Run", "fit", "held_out", "informs", "runs_of"]

Constants = dict[str, float]
"""By name, `load_share.FAMILY` for each family of GPUs."""

START: Final[Constants] = {
    "load_share.ampere": 0.85,
    "load_share.hopper": 0.7,
    "hbm_efficiency": 0.65,
    "overlap_slowdown": 0.3,
}
"""Where the fit begins; a constant of which no run tells anything stays there."""

LEAST: Final = 0.1
"""No constant falls below this."""
MOST: Final = {"overlap_slowdown": 0.4}
"""The largest slowdown that was seen (arXiv 2507.03114); the other constants are shares of 1."""

PULL: Final = 1.0
"""Weight of the start beside the runs, of which each source has the square root of its number."""
SMALL: Final = 0.02
"""Errors below this are squared, not weighted: measurements repeat no better."""
ROUNDS, SWEEPS = 2, 40
"""Times that the model is made linear; sweeps over the constants in each."""
NUDGE: Final = 0.03
"""Relative change of a constant by which its effect is found."""

ATTENTION_SHARE: Final = 0.25
"""Runs that spend more of their step on attention are not fitted to: a table tells the kernel, but
not its version, and the first FlashAttention takes about twice as long as the second."""
HOST_SHARE: Final = 0.05
"""Nor are those that wait longer for the host than this: they tell how fast its CPU is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row's step, ready to be timed with any constants."""

    cells: Cells
    question: Question
    steps: Script
    host: HostPrice
    measured: float
    """Seconds of a step. [s]"""

    @property
    def source_id(self) -> str:
        """Where it was published."""
        return self.cells.text("source_id")

    @property
    def gpu(self) -> Gpu:
        """What it ran on."""
        return self.question.gpu

    def timed(self, constants: Constants) -> tuple[Timing, Gpu]:
        """Time the step on the GPU as it is with these constants."""
        gpu = _with(self.gpu, constants)
        run = self.question.run
        price = gpu_price(gpu, run.training.compute_dtype)
        overlaps, fuses = run.cluster.backend == "nccl", run.model.compile
        wires = self.question.wires
        return walk(self.steps, price, wires, self.host, overlaps=overlaps, fuses=fuses), gpu


def runs_of(path: str | Path) -> Iterator[Run]:
    """Yield the runs of a table that can be predicted; only core rows where it marks them."""
    for cells in read_table(Path(path), ("strategy",)):
        if cells.text("core") == "no" or cells.text("outcome").lower() not in ("", "ok"):
            continue
        try:
            run = _run(cells)
        except SpecError:
            continue
        if run is not None:
            yield run


def _run(cells: Cells) -> Run | None:
    measured = step_seconds(cells)
    if measured is None:
        return None
    question = question_of_row(cells, None)
    (row,) = question.strategies
    return Run(
        cells=cells,
        question=question,
        steps=script(plan_for(question, row, {})),
        host=host_price(row, compiled=question.run.model.compile),
        measured=measured,
    )


def _with(gpu: Gpu, constants: Constants) -> Gpu:
    """Return a GPU with a family's constants, as it is shipped where its family has none."""
    share = constants.get(f"load_share.{gpu.family}")
    if share is None:
        return gpu
    return replace(
        gpu,
        load_share=replace(gpu.load_share, value=share),
        hbm_efficiency=replace(gpu.hbm_efficiency, value=constants["hbm_efficiency"]),
        overlap_slowdown=replace(gpu.overlap_slowdown, value=constants["overlap_slowdown"]),
    )


def informs(run: Run) -> bool:
    """Whether a run tells of the constants: a fitted family, its kernel known, not all launches."""
    if f"load_share.{run.gpu.family}" not in START or "attention_kernel" in run.cells.filled:
        return False
    timing, _ = run.timed(START)
    return bool(
        timing.attention_seconds < ATTENTION_SHARE * timing.step_seconds
        and timing.host_seconds < HOST_SHARE * timing.step_seconds
    )


def fit(runs: Iterable[Run]) -> Constants:
    """Fit the constants to runs: least absolute relative errors, each source of equal weight."""
    runs, constants = list(runs), dict(START)
    sizes = Counter((run.source_id, run.gpu.family) for run in runs)
    weights = [1 / sqrt(sizes[run.source_id, run.gpu.family]) for run in runs]
    for _ in range(ROUNDS):
        lines = [_line(run, constants) for run in runs]
        _descend(constants, lines, weights)
    return constants


@dataclass(frozen=True, slots=True)
class _Line:
    """A run's logarithmic error, linear in the logarithms of the constants."""

    error: float
    slopes: Constants


def _line(run: Run, constants: Constants) -> _Line:
    def error(changed: Constants) -> float:
        return log(run.timed(changed)[0].step_seconds / run.measured)

    now = error(constants)
    own = (name for name in constants if name.partition(".")[2] in ("", run.gpu.family))
    slopes = {
        name: (error(constants | {name: constants[name] * (1 + NUDGE)}) - now) / log(1 + NUDGE)
        for name in own
    }
    return _Line(now, slopes)


def _descend(constants: Constants, lines: list[_Line], weights: list[float]) -> None:
    """Move one constant after the other to where the weighted squares of the errors are least.

    Squares are weighted by the inverse of the error, so that in the end absolute errors count.
    """
    moves = dict.fromkeys(constants, 0.0)
    for _ in range(SWEEPS):
        for name, value in constants.items():
            top = PULL * (log(START[name] / value) - moves[name])
            bottom = PULL
            for line, weight in zip(lines, weights, strict=True):
                slope = line.slopes.get(name, 0.0)
                error = line.error + sum(s * moves[other] for other, s in line.slopes.items())
                scale = weight * slope / max(abs(error), SMALL)
                top, bottom = top - scale * error, bottom + scale * slope
            low, high = log(LEAST / value), log(MOST.get(name, 1.0) / value)
            moves[name] = min(max(moves[name] + top / bottom, low), high)
    for name in constants:
        constants[name] *= exp(moves[name])


def held_out(runs: Iterable[Run], told: Callable[[str, Constants], None]) -> Iterator[Score]:
    """Predict every run with constants fitted without its source, and tell these by source."""
    runs = list(runs)
    informing = [run for run in runs if informs(run)]
    for source in dict.fromkeys(run.source_id for run in runs):
        constants = fit(run for run in informing if run.source_id != source)
        told(source, constants)
        for run in runs:
            if run.source_id == source:
                timing, gpu = run.timed(constants)
                band = step_band(timing, gpu, run.question.wires)
                yield score(run.cells, "step_seconds", run.measured, timing.step_seconds, band)
