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
from zeroplan.compute.offload import offload_price
from zeroplan.errors import SpecError
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import Question, ranks_per_node
from zeroplan.estimation.steps import clocked
from zeroplan.hardware.profile import Gpu
from zeroplan.records import dataclass, replace
from zeroplan.schedule import script
from zeroplan.schedule.events import Script
from zeroplan.schedule.plan import Plan
from zeroplan.timing.band import step_band
from zeroplan.timing.walk import Timing

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
SWEEPS: Final = 40
"""Times that every constant is moved."""
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
    plan: Plan
    step: Script
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
        price = gpu_price(gpu, self.plan.training.compute_dtype)
        offload = offload_price(gpu, ranks_per_node(self.question.run))
        return clocked(self.plan, self.step, price, self.question.wires, offload), gpu


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
    plan = plan_for(question, row, {})
    return Run(
        cells=cells,
        question=question,
        plan=plan,
        step=script(plan),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A run's logarithmic error, linear in the logarithms of the constants over their start."""

    source_id: str
    family: str
    error: float
    slopes: Constants


def fit(runs: Iterable[Run]) -> Constants:
    """Fit the constants to runs: least absolute relative errors, each source of equal weight."""
    return _fit([_line(run) for run in runs])


def _line(run: Run) -> _Line:
    def error(changed: Constants) -> float:
        return log(run.timed(START | changed)[0].step_seconds / run.measured)

    now, family = error({}), run.gpu.family
    own = [name for name in START if name.partition(".")[2] in ("", family)]
    moved = {name: error({name: START[name] * (1 + NUDGE)}) for name in own}
    slopes = {name: (after - now) / log(1 + NUDGE) for name, after in moved.items()}
    return _Line(source_id=run.source_id, family=family, error=now, slopes=slopes)


def _fit(lines: list[_Line]) -> Constants:
    """Move one constant after the other to where the weighted squares of the errors are least.

    Squares are weighted by the inverse of the error, so that in the end absolute errors count.
    """
    sizes = Counter((line.source_id, line.family) for line in lines)
    moves = dict.fromkeys(START, 0.0)
    for _ in range(SWEEPS):
        for name, value in START.items():
            top, bottom = -PULL * moves[name], PULL
            for line in lines:
                slope = line.slopes.get(name, 0.0)
                error = line.error + sum(s * moves[other] for other, s in line.slopes.items())
                weight = slope / max(abs(error), SMALL) / sqrt(sizes[line.source_id, line.family])
                top, bottom = top - weight * error, bottom + weight * slope
            low, high = log(LEAST / value), log(MOST.get(name, 1.0) / value)
            moves[name] = min(max(moves[name] + top / bottom, low), high)
    return {name: value * exp(moves[name]) for name, value in START.items()}


def held_out(runs: Iterable[Run], told: Callable[[str, Constants], None]) -> Iterator[Score]:
    """Predict every run with constants fitted without its source, and tell these by source."""
    runs = list(runs)
    lines = [_line(run) for run in runs if informs(run)]
    for source in dict.fromkeys(run.source_id for run in runs):
        constants = _fit([line for line in lines if line.source_id != source])
        told(source, constants)
        for run in runs:
            if run.source_id == source:
                timing, gpu = run.timed(constants)
                band = step_band(timing, gpu, run.question.wires, run.plan.groups.world)
                yield score(run.cells, "step_seconds", run.measured, timing.step_seconds, band)
