"""A GPU's and a link's profile from records of runs.

The matrix products are timings that ai-dynamo/aiconfigurator@095f58a51 publishes for H100 SXM5
(aic-core/.../systems/data/h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet). Times of whole steps,
copies and collectives are those that known constants make.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from zeroplan import load_spec
from zeroplan.backtesting.collectives import collective_of
from zeroplan.calibration import calibrate_records
from zeroplan.calibration.write import profile_toml
from zeroplan.comm.collectives import collective_seconds
from zeroplan.errors import SpecError
from zeroplan.estimation.answer import answer
from zeroplan.estimation.record import PhasePeaks
from zeroplan.estimation.resolve import resolve
from zeroplan.hardware import Gpu, load_catalogue
from zeroplan.hardware.read import read_profile
from zeroplan.records import replace
from zeroplan.sharding.groups import Group
from zeroplan.spec.run import Run
from zeroplan.validate.measurement import (
    CollectivePoint,
    CopyPoint,
    Machine,
    Measured,
    MeasuredMemory,
    MeasuredTime,
    MicroBenches,
    Outcome,
    ProductPoint,
    RunRecord,
    spread,
)
from zeroplan.validate.record import Held, Observation

CATALOGUE = load_catalogue()
H100 = CATALOGUE.gpu("h100-sxm5-80gb")
LAPTOP = Machine(
    gpu="NVIDIA H100 80GB HBM3",
    gpu_memory_bytes=85_899_345_920,
    driver="570.1",
    cpu="a CPU",
    cores=16,
    system="Linux 6.1 x86_64",
)
PUBLISHED = (
    (32768, 12288, 2560, 2988.282),
    (32768, 6144, 5120, 2627.723),
    (32768, 3072, 8192, 2328.213),
    (16384, 16384, 1024, 731.588),
    (16384, 7168, 2560, 784.97),
    (16384, 3584, 6144, 913.318),
    (16384, 1536, 16384, 1096.842),
    (8192, 16384, 16384, 6144.864),
    (8192, 8192, 3072, 546.374),
    (8192, 4096, 6144, 530.011),
    (4096, 10240, 2560, 278.436),
    (4096, 5120, 5120, 280.014),
    (4096, 2560, 12288, 331.188),
    (2048, 12288, 2560, 165.578),
    (2048, 6144, 4096, 128.626),
    (2048, 3072, 10240, 162.051),
    (1024, 16384, 2048, 91.728),
    (1024, 7168, 4096, 82.278),
)
"""Rows, columns, inner dimension, microseconds; bf16."""


def products(rows: Iterable[tuple[int, int, int, float]] = PUBLISHED) -> tuple[ProductPoint, ...]:
    return tuple(
        ProductPoint(rows=m, columns=n, inner=k, dtype="bf16", seconds=spread([us * 1e-6]))
        for m, n, k, us in rows
    )


def copies(share: float) -> tuple[CopyPoint, ...]:
    """Return copies that reach a share of the peak, reading and writing."""
    rate = share * H100.hbm_bytes_per_second.value
    sizes = (2**26, 2**28, 2**30)
    return tuple(CopyPoint(bytes=x, seconds=spread([2 * x / rate])) for x in sizes)


def collectives(efficiency: float) -> tuple[CollectivePoint, ...]:
    """Return all-gathers of eight GPUs as an NVLink of that efficiency would carry them."""
    question = resolve(load_spec(model="llama-3.2-1b", gpus=8, gpu=H100.id))
    link = question.wires.intra
    share = replace(link.bandwidth_efficiency, value=efficiency)
    link = replace(link, bandwidth_efficiency=share)
    wires = replace(question.wires, intra=link, inter=link)
    group = Group(name="world", ranks=8, nodes=1, ranks_per_node=8)
    return tuple(
        CollectivePoint(
            collective="all_gather",
            n_gpus=8,
            gpus_per_node=8,
            n_nodes=1,
            message_bytes=2**k,
            in_place=False,
            seconds=spread(
                [
                    collective_seconds(
                        collective_of("all_gather", group, 2**k), wires, in_place=False
                    )
                ]
            ),
        )
        for k in range(20, 31)
    )


def asked(**keys: object) -> Run:
    spec = {"model": "llama-3.2-1b", "gpus": 8, "gpu": H100.id, "strategy": "fsdp2"}
    return load_spec(**(spec | keys))


def record(
    run: Run, gpu: Gpu | None = None, *, excess: float = 0.1, alone: bool = True, **changes: Any
) -> RunRecord:
    """Return what a GPU with these constants, and an allocator with this excess, would show."""
    gpu = gpu or H100
    if alone:
        gpu = replace(gpu, overlap_slowdown=replace(gpu.overlap_slowdown, value=1e-9))
    (found,) = answer(replace(resolve(run), gpu=gpu)).estimates
    assert found.time.step_seconds is not None
    assert found.memory.reserved_bytes is not None
    computing = found.time.step_seconds - (found.time.exposed_communication_seconds or 0.0)
    measured = Measured(
        step=_observed(),
        memory=MeasuredMemory(
            reserved_bytes=spread([found.memory.reserved_bytes / 1.1 * (1 + excess)])
        ),
        time=MeasuredTime(compute_seconds=spread([computing])),
        micro_benches=MicroBenches(**changes.pop("benches", {})),
    )
    made = RunRecord(
        inputs=run,
        model_file=None,
        backend="cuda",
        pretended=alone,
        model_class="own",
        machine=LAPTOP,
        versions={"torch": "2.13.0"},
        date="2026-01-31",
        notes=(),
        outcome=Outcome(kind="ok"),
        measured=measured,
    )
    return replace(made, **changes)


def _observed() -> Observation:
    peaks = PhasePeaks(forward=1000, backward=2000, optimizer=1500)
    held = Held(parameters=4, optimizer=8, inputs_and_buffers=8, after_forward=3, gradients=4)
    return Observation(
        peak_by_phase_bytes=peaks,
        moments=("a", "b", "c"),
        peak_before_update_bytes=None,
        held_bytes=held,
        step_seconds=(0.1,),
        collectives=(),
    )


def write(folder: Path, *records: RunRecord) -> list[Path]:
    paths = [folder / f"run-{number}.json" for number in range(1, len(records) + 1)]
    for path, each in zip(paths, records, strict=True):
        path.write_text(json.dumps(each.to_dict()), encoding="utf-8")
    return paths


def loaded(share: float) -> Gpu:
    return replace(H100, load_share=replace(H100.load_share, value=share))


RUNS = (
    asked(sequence_length=4096),
    asked(sequence_length=8192, activation_checkpointing="none"),
    asked(strategy="ddp", sequence_length=2048),
)


@pytest.mark.published
def test_published_products_give_the_shipped_rates(tmp_path: Path) -> None:
    """The shipped ones come from 1,500 products of the same source."""
    made = record(RUNS[0], benches={"products": products()})
    found = calibrate_records(write(tmp_path, made)).gpu
    assert found is not None
    told = {each.key: each for each in found.constants}
    assert told["matmul_efficiency"].after.value == pytest.approx(
        H100.matmul_efficiency.value, rel=0.05
    )
    assert told["matmul_efficiency"].median_error < 0.05
    assert "matmul_start_seconds" in found.kept
    assert found.gpu.matmul_start_seconds == H100.matmul_start_seconds


def test_the_share_of_a_step_comes_back_from_steps_that_it_made(tmp_path: Path) -> None:
    for share in (0.55, 0.85):
        paths = write(tmp_path, *(record(run, loaded(share)) for run in RUNS))
        found = calibrate_records(paths).gpu
        assert found is not None
        assert found.gpu.load_share.value == pytest.approx(share, rel=1e-3)
        assert found.gpu.load_share.kind == "fitted"


EXCESS = (0.2, 0.25, 0.3)


def test_what_the_allocator_holds_comes_back(tmp_path: Path) -> None:
    paths = write(tmp_path, *(record(run, excess=x) for run, x in zip(RUNS, EXCESS, strict=True)))
    found = calibrate_records(paths).gpu
    assert found is not None
    share = found.gpu.fragmentation
    assert share is not None
    assert share.value == pytest.approx(0.25, rel=1e-3)
    assert share.rel_uncertainty == pytest.approx(0.2, abs=0.01)  # 0.05 of 0.25
    assert share.kind == "measured"


def test_copies_scale_the_bandwidth_of_a_step(tmp_path: Path) -> None:
    """A step's kernels keep their ratio to a copy alone, which usually reaches 0.9."""
    found = calibrate_records(write(tmp_path, record(RUNS[0], benches={"copies": copies(0.81)})))
    assert found.gpu is not None
    before = H100.hbm_efficiency.value
    assert found.gpu.gpu.hbm_efficiency.value == pytest.approx(0.9 * before, rel=1e-3)


def test_collectives_of_a_record_make_a_link(tmp_path: Path) -> None:
    made = record(RUNS[0], alone=False, benches={"collectives": collectives(0.6)})
    found = calibrate_records(write(tmp_path, made)).link
    assert found is not None
    assert found.link.id == "nvlink4"
    assert found.link.bandwidth_efficiency.value == pytest.approx(0.6, rel=0.03)
    assert found.link.fit is not None
    assert found.link.fit.command == "zeroplan calibrate run-1.json"


def test_every_constant_says_when_from_what_and_how_well(tmp_path: Path) -> None:
    made = [record(run, loaded(0.6), benches={"products": products()}) for run in RUNS]
    made[2] = replace(made[2], date="2026-02-03")
    found = calibrate_records(write(tmp_path, *made)).gpu
    assert found is not None
    assert {each.key for each in found.constants} >= {
        "matmul_efficiency",
        "load_share",
        "fragmentation",
    }
    for each in found.constants:
        assert each.after.source == "records"
        assert each.after.rel_uncertainty
        assert each.after.note.startswith("2026-01-31 to 2026-02-03: ")
        assert "median error" in each.after.note
        assert each.valid in each.after.note


def test_a_gpu_s_file_reads_back_to_its_profile(tmp_path: Path) -> None:
    made = [record(run, loaded(0.6), benches={"products": products()}) for run in RUNS]
    found = calibrate_records(write(tmp_path, *made)).gpu
    assert found is not None
    path = tmp_path / f"{found.gpu.id}.toml"
    path.write_text(profile_toml(found.gpu), encoding="utf-8")
    assert read_profile(path, Gpu, CATALOGUE.sources()) == found.gpu


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ([record(RUNS[0])], "load_share: 1 of 2 runs with their compute time needed"),
        ([record(RUNS[0], backend="fake")], "run-1.json: fake tensors take no time"),
        (
            [record(RUNS[0], outcome=Outcome(kind="oom"), measured=None)],
            "run-1.json: oom, so it shows no figure",
        ),
        (
            [record(RUNS[0]), record(RUNS[1], machine=replace(LAPTOP, gpu="NVIDIA H200"))],
            "several GPUs (h100-sxm5-80gb, h200-sxm-141gb)",
        ),
        (
            [
                record(
                    RUNS[0],
                    benches={"products": products((m, n, k, us / 2) for m, n, k, us in PUBLISHED)},
                )
            ],
            "more than the peak of h100-sxm5-80gb",
        ),
        ([record(RUNS[0], benches={"copies": copies(1.3)})], "copies reach 130%"),
        ([record(RUNS[0], benches={"copies": copies(0.9)[:2]})], "2 of 3 copies of 64 MiB"),
    ],
)
def test_too_little_and_what_cannot_be_is_refused(
    made: list[RunRecord], why: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as error:
        calibrate_records(write(tmp_path, *made))
    assert why in str(error.value)


def test_points_that_contradict_each_other_leave_a_constant_alone(tmp_path: Path) -> None:
    made = [record(RUNS[0], loaded(0.4), excess=0.0), record(RUNS[1], loaded(1.0), excess=1.5)]
    made[0] = replace(made[0], measured=_benched(made[0], copies=copies(0.9)))
    found = calibrate_records(write(tmp_path, *made)).gpu
    assert found is not None
    assert "contradict each other" in found.kept["load_share"]
    assert "contradict each other" in found.kept["fragmentation"]
    assert found.gpu.load_share == H100.load_share


def _benched(made: RunRecord, **benches: Any) -> Measured:
    assert made.measured is not None
    return replace(made.measured, micro_benches=MicroBenches(**benches))


def zeroplan(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "zeroplan", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_next_estimate_computes_as_long_as_the_runs_did(tmp_path: Path) -> None:
    """From records to files to an estimate: 5 % are the bar, the shipped profile is off by more than twice that."""
    benches = {"collectives": collectives(0.6), "copies": copies(0.85)}
    slow = [record(run, loaded(0.45), alone=False, benches=benches) for run in RUNS]
    paths = write(tmp_path, *slow)
    own = tmp_path / "own"
    asked = ("calibrate", *map(str, paths), "--output", str(own))
    done = zeroplan(*asked)
    assert done.returncode == 0
    written = sorted(path.relative_to(own).as_posix() for path in own.rglob("*.toml"))
    assert written == ["gpus/h100-sxm5-80gb.toml", "links/nvlink4.toml"]
    for made in slow:
        assert made.measured is not None
        assert made.measured.time.compute_seconds is not None
        measured = made.measured.time.compute_seconds.median
        for profiles, within in ((own, 0.05), (None, 1.0)):
            (found,) = answer(resolve(made.inputs, profiles)).estimates
            computing = (found.time.step_seconds or 0) - (
                found.time.exposed_communication_seconds or 0
            )
            assert computing == pytest.approx(measured, rel=within)
            assert profiles or computing < 0.9 * measured
    before = [path.read_bytes() for path in own.rglob("*.toml")]
    again = zeroplan(*asked)
    assert again.returncode == 2
    assert "there is such a file; name a new one" in again.stderr
    assert [path.read_bytes() for path in own.rglob("*.toml")] == before


def test_two_profiles_need_a_folder(tmp_path: Path) -> None:
    benches = {"collectives": collectives(0.6), "copies": copies(0.85)}
    paths = write(tmp_path, record(RUNS[0], benches=benches))
    done = zeroplan("calibrate", str(paths[0]), "--output", str(tmp_path / "own.toml"))
    assert done.returncode == 2
    assert "h100-sxm5-80gb and nvlink4 need a folder" in done.stderr
    assert not (tmp_path / "own.toml").exists()


def test_a_program_reads_what_records_told(tmp_path: Path) -> None:
    paths = write(tmp_path, *(record(run, loaded(0.6)) for run in RUNS))
    document = json.loads(zeroplan("calibrate", *map(str, paths), "--json").stdout)
    (share,) = [x for x in document["gpu"]["constants"] if x["key"] == "load_share"]
    assert share["after"]["value"] == pytest.approx(0.6, rel=1e-3)
    assert share["points"] == 3
    assert document["link"] is None
    assert any("no collective was timed" in note for note in document["notes"])
