"""A GPU's and a link's profile from records of runs, as `zeroplan validate` writes them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from zeroplan.backtesting.collectives import Measured, collective_of
from zeroplan.backtesting.table import Cells
from zeroplan.calibration.collectives import Choice, calibrated
from zeroplan.calibration.gpu import GpuFit, fitted_gpu
from zeroplan.calibration.kernels import Stream
from zeroplan.calibration.products import Product
from zeroplan.calibration.record import Calibration
from zeroplan.calibration.records_answer import RecordsCalibration
from zeroplan.calibration.runs import RunPoint
from zeroplan.comm.fabric import fabric
from zeroplan.errors import SpecError
from zeroplan.estimation.resolve import Question
from zeroplan.hardware import Catalogue, Gpu, load_catalogue
from zeroplan.hardware.naming import gpu_of
from zeroplan.records import dataclass
from zeroplan.sharding.groups import Group
from zeroplan.validate.comparing import question_of
from zeroplan.validate.measurement import Measured as Shown
from zeroplan.validate.measurement import RunRecord, Spread
from zeroplan.validate.reading import read_record
from zeroplan.workload.tape import Matmul

__all__ = ["calibrate_records"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A record that shows something."""

    name: str
    record: RunRecord
    shown: Shown
    question: Question
    gpu: Gpu | None
    """None where no GPU took part."""


def calibrate_records(
    paths: Sequence[str | Path], *, link: str = "", profiles: Path | None = None
) -> RecordsCalibration:
    """Fit the constants of a GPU and of a link to records of runs.

    Parameters
    ----------
    paths
        Files that `zeroplan validate` wrote.
    link
        Link that the collectives ran on; by default the one of the runs, inside a node or between
        nodes.
    profiles
        Folder whose hardware profiles come before the shipped ones.

    Raises
    ------
    SpecError
        A file is no record, the runs are of several GPUs, or they tell nothing.

    """
    catalogue = load_catalogue(profiles)
    notes: list[str] = []
    runs = list(_runs([Path(each) for each in paths], profiles, notes))
    command = f"zeroplan calibrate {' '.join(Path(each).name for each in paths)}"
    gpu = _gpu_fit(runs, notes)
    rows = [row for run in runs for row in _rows(run, link, catalogue)]
    fit = _link_fit(rows, catalogue, command, notes)
    if fit is None and (gpu is None or not gpu.constants):
        kept = gpu.kept if gpu is not None else {}
        reasons = [*notes, *(f"{key}: {why}" for key, why in kept.items())]
        raise SpecError(f"the records tell of no constant: {'; '.join(reasons)}.")
    return RecordsCalibration(
        gpu=gpu if gpu is not None and gpu.constants else None, link=fit, notes=tuple(notes)
    )


def _runs(paths: Sequence[Path], profiles: Path | None, notes: list[str]) -> Iterator[_Run]:
    """Yield the records that show something real."""
    catalogue = load_catalogue(profiles)
    for path in paths:
        record = read_record(path)
        if record.measured is None:
            notes.append(f"{path.name}: {record.outcome.kind}, so it shows no figure")
        elif record.backend == "fake":
            notes.append(f"{path.name}: fake tensors take no time")
        else:
            name = record.machine.gpu if record.backend == "cuda" else None
            gpu = gpu_of(name, catalogue) if name else None
            question = question_of(record, profiles)
            shown = record.measured
            yield _Run(name=path.name, record=record, shown=shown, question=question, gpu=gpu)


def _gpu_fit(runs: Sequence[_Run], notes: list[str]) -> GpuFit | None:
    """Return the GPU with what kernels and steps on it tell."""
    on_gpu = [each for each in runs if each.gpu is not None]
    gpus = {each.gpu.id: each.gpu for each in on_gpu if each.gpu is not None}
    if not gpus:
        notes.append("no run was on a GPU, so none is calibrated")
        return None
    if len(gpus) > 1:
        raise SpecError(
            f"the runs are of several GPUs ({', '.join(gpus)}): calibrate one at a time."
        )
    (gpu,) = gpus.values()
    benches = [each.shown.micro_benches for each in on_gpu]
    dates = sorted({each.record.date for each in on_gpu})
    return fitted_gpu(
        gpu,
        [
            Product(
                product=Matmul(m=point.rows, k=point.inner, n=point.columns),
                dtype=point.dtype,
                seconds=point.seconds.median,
            )
            for bench in benches
            for point in bench.products
        ],
        [
            Stream(bytes=point.bytes, seconds=point.seconds.median)
            for bench in benches
            for point in bench.copies
        ],
        [_point(each) for each in on_gpu],
        dates=dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
    )


def _point(run: _Run) -> RunPoint:
    time, memory = run.shown.time, run.shown.memory
    return RunPoint(
        name=run.name,
        question=run.question,
        alone=run.record.pretended,
        compute_seconds=_median(time.compute_seconds),
        reserved_bytes=_median(memory.reserved_bytes),
    )


def _median(found: Spread | None) -> float | None:
    return None if found is None else found.median


def _link_fit(
    rows: Sequence[Measured], catalogue: Catalogue, command: str, notes: list[str]
) -> Calibration | None:
    """Return the link with what collectives by themselves tell; None if too little."""
    if not rows:
        notes.append("no collective was timed by itself, so no link is calibrated")
        return None
    outer = sorted({row.outer.id for row in rows})
    if len(outer) > 1:
        raise SpecError(
            f"collectives ran on several links ({', '.join(outer)}): name one by --link."
        )
    try:
        start = catalogue.link(outer[0])
        return calibrated(rows, start, catalogue, choice=Choice(), command=command)
    except SpecError as error:
        notes.append(f"no link is calibrated: {error}")
        return None


def _rows(run: _Run, link: str, catalogue: Catalogue) -> Iterator[Measured]:
    """Yield the collectives of a run that were timed by themselves."""
    question = run.question
    gpu = run.gpu or question.gpu
    for point in run.shown.micro_benches.collectives:
        several = point.n_nodes > 1
        usual = question.wires.inter if several else question.wires.intra
        named = catalogue.link(link) if link else usual
        intra = question.wires.intra if several and named.scope == "cluster" else named
        wires = fabric(
            intra=intra, inter=named, gpus_per_node=point.gpus_per_node, node=None, gpu=gpu
        )
        group = Group(
            name="world",
            ranks=point.n_gpus,
            nodes=point.n_nodes,
            ranks_per_node=point.n_gpus // point.n_nodes,
        )
        yield Measured(
            cells=Cells({"source": run.name, "gpu": gpu.id}, line=0),
            call=collective_of(point.collective, group, point.message_bytes),
            wires=wires,
            in_place=point.in_place,
            seconds=point.seconds.median,
        )
