"""A training log gives the median step and the peak that a person would read from it."""

import csv
import json
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.backtesting import backtest, backtest_log
from zeroplan.backtesting.logs import read_log
from zeroplan.errors import SpecError
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec

LOGS = Path(__file__).parent / "logs"
GIB = 2**30
GB = 10**9


def _run(**changes: object) -> Run:
    """Return a run of 8 GPUs with 32,768 tokens each in a step."""
    given = {
        "model": "llama-3.1-8b",
        "gpus": 8,
        "strategy": "fsdp2",
        "sequence_length": 8192,
        "micro_batch_size": 4,
    }
    return load_spec(None, **given | changes)


# By hand: 4 sequences of 8,192 tokens per GPU, 8 GPUs; the median of what the logs say after the
# first ten steps of the log, or in the second half of a shorter one.
FIGURES = {
    "torchtitan_wps.log": ("torchtitan", 32768 / 2904, "reserved", 49.10 * GIB),
    "torchtitan_colours.log": (
        "torchtitan",
        (32768 / 5856 + 32768 / 5857) / 2,
        "reserved",
        49.61 * GIB,
    ),
    "torchtitan_short.log": ("torchtitan", 32768 / 8050, "reserved", 66.91 * GIB),
    "torchtitan_resumed.log": ("torchtitan", 32768 / 5800, "reserved", 60 * GIB),
    "trainer_state_whole.json": ("HF Trainer", (170 - 20) / 50, None, None),
    "trainer_state_tokens.json": ("HF Trainer", 3.02, None, None),
    "trainer_state_padded.json": ("HF Trainer", (4.0 + 3.8) / 2, None, None),
    "deepspeed_timer.log": ("DeepSpeed", 32 / 16.0, "allocated", 44 * GIB),
    "deepspeed_mean.log": ("DeepSpeed", 32 / 84, "allocated", 9.02 * GIB),
    "deepspeed_running.log": ("DeepSpeed", 32 / 160, "allocated", 2.6 * GIB),
    "deepspeed_clock.log": ("DeepSpeed", 0.902, "allocated", 13.2 * GIB),
    "composer.log": ("Composer", 32768 / 11100, "allocated", 45.1 * GB),
    "composer_tokens.log": ("Composer", 8 * 32768 / 81000, "reserved", 40 * GIB),
    "composer_epochs.log": ("Composer", 32 / 8.0, None, None),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_log_gives_the_figures_that_a_person_reads(name: str) -> None:
    trainer, seconds, kind, peak = FIGURES[name]
    strategy = "zero2" if trainer == "DeepSpeed" else "fsdp2"
    found = backtest_log(LOGS / name, _run(strategy=strategy))
    measured = {score.metric: score.measured for score in found.result.rows}
    expected = {"step_seconds": seconds} | ({"peak_bytes": peak} if peak else {})
    assert measured == pytest.approx(expected, rel=1e-12)
    assert found.row["source_id"] == trainer
    assert found.row.get("memory_kind") == kind


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_left_out_and_the_spread_are_told(name: str) -> None:
    strategy = "zero2" if name.startswith("deepspeed") else "fsdp2"
    first = backtest_log(LOGS / name, _run(strategy=strategy)).remarks[0]
    if name == "trainer_state_whole.json":
        assert first.endswith("from one reading; nothing is left out")
    else:
        assert "the median of " in first
        assert " is left out" in first


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("torchtitan_short.log", "not read: line 7: no tps stands on it, which may be cut off"),
        ("deepspeed_running.log", "not read: line 6: CurrSamplesPerSec=nan"),
        ("deepspeed_mean.log", "SamplesPerSec is the mean since the third step"),
        ("trainer_state_padded.json", "not read: log_history[2]: the clock starts anew"),
        ("trainer_state_padded.json", "the log tells 200,000 tokens a step and the run 262,144"),
        ("trainer_state_tokens.json", "train_mem_gpu_* are differences"),
        ("trainer_state_whole.json", "train_runtime is told of the whole run only"),
        ("composer.log", "peak of 42.00 GiB allocated, beside active and reserved"),
    ],
)
def test_what_cannot_be_read_or_trusted_is_said(name: str, remark: str) -> None:
    strategy = "zero2" if name.startswith("deepspeed") else "fsdp2"
    remarks = backtest_log(LOGS / name, _run(strategy=strategy)).remarks
    assert [each for each in remarks if each.startswith(remark)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_training.log", "no figure of a training step in it; zeroplan reads torchtitan's"),
        ("torchtitan_nan.log", "torchtitan log without a figure; line 1: 'tps: nan' is no rate"),
        ("trainer_state_untimed.json", "no train_runtime in log_history"),
        ("absent.log", "No such file"),
        ("", "Is a directory"),
    ],
)
def test_a_file_without_a_figure_is_an_error_that_says_why(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message.replace("[", r"\[")):
        read_log(LOGS / name)


def test_a_state_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text((LOGS / "trainer_state_whole.json").read_text()[:300])
    with pytest.raises(SpecError, match=r"trainer_state\.json: not whole JSON: .* line \d+"):
        read_log(path)


def test_a_run_that_is_not_the_logs_is_refused() -> None:
    with pytest.raises(SpecError, match="train_batch_size is 4, and training"):
        backtest_log(LOGS / "trainer_state_whole.json", _run(micro_batch_size=1))
    with pytest.raises(SpecError, match="of steps or of micro-steps"):
        backtest_log(
            LOGS / "deepspeed_mean.log", _run(strategy="zero2", gradient_accumulation_steps=2)
        )
    with pytest.raises(SpecError, match="name it with --strategy"):
        backtest_log(LOGS / "composer.log", _run(strategy="auto"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strategy": "hsdp", "gpus": 16, "shard_size": 8},
        {"strategy": "zero3", "optimizer": "adam", "compute_dtype": "fp16"},
        {"strategy": "ddp", "optimizer": "adamw-8bit", "parameter_dtype": "bf16"},
        {"model": "7.5b", "reshard_after_forward": False, "compile": True},
        {"optimizer_implementation": "fused", "reduce_dtype": "bf16", "attention": "math"},
        {"parameter_dtype": "bf16", "master_copy": True, "strategy": "ddp"},
    ],
)
def test_the_row_is_predicted_from_a_table_as_the_run_is(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    found = backtest_log(LOGS / "composer.log", _run(**changes))
    assert not [each for each in found.remarks if "table" in each]
    table = tmp_path / "runs.csv"
    table.write_text(found.to_csv(), encoding="utf-8")
    again = backtest(table)
    assert not again.skipped
    assert [score.predicted for score in again.rows] == [
        score.predicted for score in found.result.rows
    ]
    assert [score.measured for score in again.rows] == pytest.approx(
        [score.measured for score in found.result.rows], rel=1e-12
    )


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"gradient_clipping": 1.0}, "no column for training.gradient_clipping"),
        ({"optimizer": "lion"}, "no column for training.optimizer"),
        ({"offload_parameters": "cpu"}, "a table skips the row: offload = yes: not modelled"),
        ({"model": "mixtral-8x7b", "sequence_length": 4096}, None),
    ],
)
def test_what_a_row_cannot_hold_is_said(changes: dict[str, object], remark: str | None) -> None:
    found = backtest_log(LOGS / "composer.log", _run(**changes))
    said = [each for each in found.remarks if "table" in each]
    assert (remark in said[0]) if remark else not said


def test_many_logs_make_one_table(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    for name in ("composer.log", "torchtitan_short.log", "composer.log"):
        text = backtest_log(LOGS / name, _run()).to_csv(table)
        table.write_text(text, encoding="utf-8")
    rows = list(csv.DictReader(StringIO(table.read_text(encoding="utf-8"))))
    assert [Path(row["id"]).name for row in rows] == ["torchtitan_short.log", "composer.log"]
    assert len({row["id"] for row in rows}) == len(backtest(table).rows) / 2
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(SpecError, match="no column 'id'"):
        backtest_log(LOGS / "composer.log", _run()).to_csv(other)


def test_the_state_of_a_trainer_that_holds_anything_else_never_breaks(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    histories: list[object] = [None, 3, [None, []], [{"train_runtime": "x", "step": 1}], [{}]]
    for history in histories:
        path.write_text(json.dumps({"log_history": history, "global_step": 1}), encoding="utf-8")
        with pytest.raises(SpecError, match="trainer_state"):
            read_log(path)


LONG = "9" * 5000
PIECES = [line for path in sorted(LOGS.glob("*.log")) for line in path.read_text().splitlines()]
ODD = [
    f"step: {LONG}  loss: 1.0  tps: 10",
    f"step: 3  loss: 1.0  memory: {LONG}GiB(1%)  tps: {LONG}",
    "step: 3  loss: 1.0  memory: 1.00GiB(1%)  tps: 1e-320",
    f"epoch=0/micro_step=1/global_step={LONG}, CurrSamplesPerSec=1e300, MaxMemAllocated=-infGB",
    f"[batch={LONG}/1]:",
    f"\t Train time/batch: {LONG}",
    "\t Train throughput/device/tokens_per_sec: 1e-320",
]


@settings(deadline=None)
@given(
    text=st.lists(st.sampled_from(PIECES + ODD) | st.text(max_size=40), max_size=12).map("\n".join)
)
def test_no_mixture_of_lines_breaks_a_reader(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "mixed.log"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        found = backtest_log(path, _run(strategy="zero2", model="llama-3.2-1b"))
    except SpecError as error:
        told = str(path) in str(error) or "neither a step time nor a peak" in str(error)
    else:
        told = all(0 < each.measured < 1e20 for each in found.result.rows)
    assert told


@pytest.mark.parametrize("figure", [10**400, -1, True, float("nan"), float("inf"), "3", None])
def test_a_state_with_an_odd_figure_is_an_error(tmp_path: Path, figure: object) -> None:
    path = tmp_path / "trainer_state.json"
    state = {"global_step": 3, "log_history": [{"step": 3, "train_runtime": figure}]}
    path.write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(SpecError, match=r"log_history\[0\]: train_runtime = "):
        read_log(path)
