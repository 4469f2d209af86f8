"""`zeroplan validate --from`: a record beside today's prediction, without torch."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zeroplan.backtesting.collectives import measured_collectives
from zeroplan.estimation.answer import answer, plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.hardware import load_catalogue
from zeroplan.records import replace
from zeroplan.schedule import script
from zeroplan.spec.models import model_keys
from zeroplan.spec.toml import load_spec
from zeroplan.validate import compare
from zeroplan.validate.collectives import to_csv
from zeroplan.validate.measurement import (
    CollectivePoint,
    Machine,
    Measured,
    MeasuredMemory,
    MeasuredTime,
    MicroBenches,
    Outcome,
    RunRecord,
    spread,
)
from zeroplan.validate.prediction import predicted
from zeroplan.validate.record import Backend

Command = Callable[..., tuple[int, str, str]]


def a_run(model: str, backend: Backend = "fake", **keys: Any) -> RunRecord:
    """A run that showed what is predicted: the tests then change what it showed."""
    question = resolve(load_spec(model=model, **{"gpus": 8, "strategy": "fsdp2", **keys}))
    plan = plan_for(question, question.strategies[0], {})
    (estimate,) = answer(question).estimates
    workspaces = estimate.memory.peak_breakdown_bytes.workspaces if backend == "cuda" else 0
    step = predicted(script(plan), updates=True, workspaces_bytes=workspaces)
    seconds = estimate.time.step_seconds or 0.0
    on_gpu = backend == "cuda"
    return RunRecord(
        inputs=question.run,
        model_file=dict(model_keys(model)) if model.endswith(".json") else None,
        backend=backend,
        pretended=False,
        model_class="own",
        machine=Machine(
            gpu="NVIDIA H200" if on_gpu else None,
            gpu_memory_bytes=None,
            driver=None,
            cpu="one",
            cores=2,
            system="Linux",
        ),
        versions={"torch": "2.13.0"},
        date="2026-01-31",
        notes=(),
        outcome=Outcome(kind="ok"),
        measured=Measured(
            step=replace(step, step_seconds=(seconds,) if on_gpu else ()),
            memory=MeasuredMemory(
                peak_allocated_bytes=spread([estimate.memory.peak_allocated_bytes]),
                reserved_bytes=spread([1.5 * (estimate.memory.reserved_bytes or 0)]),
            )
            if on_gpu
            else MeasuredMemory(),
            time=MeasuredTime(step_seconds=spread([seconds])) if on_gpu else MeasuredTime(),
        ),
    )


@pytest.fixture
def written(tmp_path: Path) -> Callable[[RunRecord], str]:
    """A function that writes a record and returns its path."""

    def write(record: RunRecord) -> str:
        path = tmp_path / "run.json"
        path.write_text(record.to_json())
        return str(path)

    return write


Written = Callable[[RunRecord], str]


def test_a_run_that_was_predicted_exits_with_0(zeroplan: Command, written: Written) -> None:
    code, out, err = zeroplan("--from", written(a_run("llama-3.2-1b")))
    assert (code, err) == (0, "")
    assert "equal to the byte; inside the tolerance of 1.00 %" in out


def test_a_run_that_was_not_exits_with_5(zeroplan: Command, written: Written) -> None:
    record = a_run("llama-3.2-1b")
    assert record.measured is not None
    seen = record.measured.step
    higher = replace(
        seen.peak_by_phase_bytes, backward=int(1.03 * seen.peak_by_phase_bytes.backward)
    )
    step = replace(seen, peak_by_phase_bytes=higher)
    path = written(replace(record, measured=replace(record.measured, step=step)))
    code, out, _ = zeroplan("--from", path)
    assert code == 5
    assert "peak in backward, -2.913 %; outside the tolerance of 1.00 %" in out
    assert zeroplan("--from", path, "--tolerance", "0.03")[0] == 0


def test_a_gpu_s_figures_stand_beside_theirs_with_bands(
    zeroplan: Command, written: Written
) -> None:
    """Its reserved memory was set half again as high as predicted: outside of the band of a fifth."""
    code, out, _ = zeroplan("--from", written(a_run("llama-3.2-1b", "cuda")))
    assert code == 0
    assert "peak allocated" in out
    assert "Inside the band of the prediction: step." in out
    assert "Outside the band of the prediction: reserved." in out
    assert "on 8 x NVIDIA H200 over NCCL" in out
    assert "inside the tolerance of 2.00 %" in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_model_whose_file_is_gone_is_read_from_the_record(
    zeroplan: Command, written: Written, llama: str
) -> None:
    path = written(a_run(llama, sequence_length=64))
    Path(llama).unlink()
    code, out, err = zeroplan("--from", path)
    assert (code, err) == (0, "")
    assert "equal to the byte" in out


@pytest.mark.parametrize(("model", "code", "told"), [("8b", 5, "it fits"), ("70b", 0, "not fit")])
def test_memory_that_ran_out_is_held_against_the_verdict(
    zeroplan: Command, written: Written, model: str, code: int, told: str
) -> None:
    """Of eight 80 GB: 8b with full checkpointing fits, 70b in DDP's replicas does not."""
    keys = {"strategy": "ddp"} if model == "70b" else {}
    ran_out = replace(
        a_run(model, "cuda", **keys),
        outcome=Outcome(kind="oom", reason="out of memory", requested_bytes=2**31),
        measured=None,
    )
    got, out, err = zeroplan("--from", written(ran_out))
    assert (got, err) == (code, "")
    assert "Memory ran out: an allocation of 2.00 GiB failed." in out
    assert told in out


def test_a_run_that_failed_has_nothing_to_compare(zeroplan: Command, written: Written) -> None:
    failed = replace(
        a_run("8b"), outcome=Outcome(kind="failed", reason="rank 1 of 8 died."), measured=None
    )
    code, out, err = zeroplan("--from", written(failed))
    assert (code, out) == (1, "")
    assert err == "zeroplan: rank 1 of 8 died.\n"


def test_the_answer_is_one_document(zeroplan: Command, written: Written) -> None:
    code, out, _ = zeroplan("--from", written(a_run("llama-3.2-1b", "cuda")), "--json")
    assert code == 0
    document = json.loads(out)
    rows = {row["name"]: row for row in document["differences"]}
    assert rows["reserved"]["in_band"] is False
    assert rows["step"]["in_band"] is True
    assert document["machine"]["gpu"] == "NVIDIA H200"
    assert document["outcome"]["kind"] == "ok"


@pytest.mark.parametrize(
    ("arguments", "code", "remedy"),
    [
        (["--from", "none.json"], 3, "none.json: No such file"),
        (["--from", "none.json", "--model", "8b"], 2, "leave out the spec"),
        (["--from", "none.json", "--record", "other.json"], 2, "leave out the spec and --record"),
        (["--tolerance", "0.1"], 2, "no model"),
    ],
)
def test_what_cannot_be_compared_is_told(
    zeroplan: Command, arguments: list[str], code: int, remedy: str
) -> None:
    got, out, err = zeroplan(*arguments)
    assert (got, out) == (code, "")
    assert remedy in err
    assert len(err.splitlines()) == 1


def test_comparing_needs_no_torch(written: Written) -> None:
    check = "import sys; from zeroplan.validate import compare, read_record; "
    check += "compare(read_record(sys.argv[1])); sys.exit('torch' in sys.modules)"
    line = [sys.executable, "-c", check, written(a_run("llama-3.2-1b"))]
    assert subprocess.run(line, check=False).returncode == 0


def test_pretended_ranks_are_held_to_what_a_rank_computes() -> None:
    record = replace(a_run("llama-3.2-1b", "cuda"), pretended=True)
    assert record.measured is not None
    (estimate,) = answer(resolve(record.inputs)).estimates
    step, exposed = estimate.time.step_seconds, estimate.time.exposed_communication_seconds
    assert step is not None
    assert exposed is not None
    computing = replace(record.measured.time, compute_seconds=spread([step - exposed]))
    found = compare(replace(record, measured=replace(record.measured, time=computing)))
    rows = {each.name: each for each in found.differences}
    assert "step" not in rows
    assert rows["compute"].error_fraction == 0
    assert rows["compute"].in_band is True


def test_collectives_are_written_as_they_are_read(tmp_path: Path) -> None:
    record = a_run("llama-3.2-1b", "cuda")
    assert record.measured is not None
    points = tuple(
        CollectivePoint(
            collective=name,
            n_gpus=8,
            gpus_per_node=8,
            n_nodes=1,
            message_bytes=2**20,
            in_place=name == "all_reduce",
            seconds=spread([40e-6, 50e-6, 90e-6]),
        )
        for name in ("all_gather", "reduce_scatter", "all_reduce")
    )
    benches = MicroBenches(collectives=points)
    record = replace(record, measured=replace(record.measured, micro_benches=benches))
    table = tmp_path / "nccl.csv"
    table.write_text(to_csv(record))
    rows, skipped = measured_collectives(table, load_catalogue())
    assert skipped == []
    assert [row.call.name for row in rows] == [point.collective for point in points]
    assert [row.in_place for row in rows] == [False, False, True]
    assert {row.call.message_bytes for row in rows} == {2**20}
    assert {row.call.group.ranks for row in rows} == {8}
    assert {row.outer.id for row in rows} == {"nvlink4"}
    assert [row.seconds for row in rows] == pytest.approx([50e-6] * 3)
