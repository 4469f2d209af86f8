"""Each row of a table of runs becomes a question, an answer and a score, or a reason why not."""

import csv
from pathlib import Path

import pytest

from zeroplan.backtesting import Backtest, backtest
from zeroplan.backtesting.question import question_of_row
from zeroplan.backtesting.table import Cells
from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.estimation.resolve import Question

GIB = 2**30

LLAMA_3_8B = {
    "id": "run-1",
    "source_id": "log",
    "strategy": "fsdp2",
    "model_name": "Llama-3-8B",
    "n_layers": "32",
    "hidden": "4096",
    "n_heads": "32",
    "n_kv_heads": "8",
    "ffn": "14336",
    "vocab": "128256",
    "tied_embeddings": "no",
    "seq_len": "4096",
    "micro_batch_per_gpu": "2",
    "grad_accum": "1",
    "gpus": "16",
    "gpus_per_node": "8",
    "gpu": "a100-sxm4-80gb",
    "param_dtype": "fp32",
    "compute_dtype": "bf16",
    "reduce_dtype": "fp32",
    "optimizer": "AdamW",
    "checkpointing": "full",
    "attention_kernel": "flash",
    "compiled": "no",
    "outcome": "ok",
    "step_time_s": "5",
}


def _table(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def _backtest(folder: Path, **changes: str) -> Backtest:
    return backtest(_table(folder, LLAMA_3_8B | changes))


def _question(**changes: str) -> tuple[Question, list[str]]:
    cells = Cells(LLAMA_3_8B | changes, line=2)
    return question_of_row(cells, None), cells.filled


def test_a_row_is_predicted_as_the_same_run_is_estimated(tmp_path: Path) -> None:
    same = estimate(
        model="llama-3.1-8b",
        strategy="fsdp2",
        gpus=16,
        gpu="a100-sxm4-80gb",
        sequence_length=4096,
        micro_batch_size=2,
    ).estimates[0]
    result = _backtest(tmp_path, peak_mem_gib="40", memory_kind="reserved")
    assert [(score.metric, score.predicted) for score in result.rows] == [
        ("step_seconds", same.time.step_seconds),
        ("peak_bytes", same.memory.reserved_bytes),
    ]


def test_tokens_per_second_stand_for_the_step_time_and_come_before_it(tmp_path: Path) -> None:
    (score,) = _backtest(tmp_path, tokens_per_s_per_gpu="2048", grad_accum="3").rows
    assert score.measured == 4096 * 2 * 3 / 2048


@pytest.mark.parametrize(
    ("kind", "figure"),
    [
        ("allocated", "peak_allocated_bytes"),
        ("active", "peak_allocated_bytes"),
        ("reserved", "reserved_bytes"),
        ("Device", "device_bytes"),
    ],
)
def test_a_peak_is_compared_with_the_figure_of_its_kind(
    tmp_path: Path, kind: str, figure: str
) -> None:
    result = _backtest(tmp_path, step_time_s="", peak_mem_gib="40", memory_kind=kind)
    memory = estimate(
        model="8b", strategy="fsdp2", gpus=16, gpu="a100-sxm4-80gb", micro_batch_size=2
    )
    (score,) = result.rows
    assert score.measured == 40 * GIB
    assert score.predicted == getattr(memory.estimates[0].memory, figure)


def test_a_peak_of_unknown_kind_is_not_scored(tmp_path: Path) -> None:
    (score,) = _backtest(tmp_path, peak_mem_gib="40").rows
    assert score.metric == "step_seconds"


def test_blanks_get_the_default_and_are_listed() -> None:
    question, filled = _question(
        reduce_dtype="", optimizer="", checkpointing="", tied_embeddings="", node_nic_gbps="200"
    )
    assert question.run.training.optimizer == "adamw"
    assert question.run.training.activation_checkpointing == "full"
    assert filled == [
        "tied_embeddings",
        "reshard_after_forward",
        "shard_size",
        "fabric",
        "reduce_dtype",
        "optimizer",
        "checkpointing",
    ]


def test_a_column_that_a_strategy_does_not_read_is_not_filled_in() -> None:
    _, filled = _question(strategy="zero2")
    assert "shard_size" not in filled
    assert "reshard_after_forward" not in filled


@pytest.mark.parametrize(
    ("text", "dtype", "master"),
    [
        ("fp32 (sharded master)", "fp32", False),
        ("bf16 + fp32 master", "bf16", True),
        ("bf16 (bf16-true)", "bf16", False),
        ("fp16 (not stated)", None, False),
        ("bf16/fp16 + fp32 master", None, True),
        ("", None, False),
    ],
)
def test_a_dtype_may_carry_a_remark(text: str, dtype: str | None, master: bool) -> None:
    question, filled = _question(param_dtype=text)
    training = question.run.training
    assert (training.parameter_dtype, training.master_copy) == (dtype or "fp32", master)
    assert ("param_dtype" in filled) is (dtype is None)


@pytest.mark.parametrize(
    ("text", "optimizer", "implementation"),
    [
        ("decoupled AdamW", "adamw", None),
        ("AdamW (foreach, HF adamw_torch)", "adamw", "foreach"),
        ("Adam (apex fused)", "adam", "fused"),
        ("LAMB", "adam", None),
        ("SGD", "sgd", None),
    ],
)
def test_an_optimizer_is_known_by_a_part_of_its_name(
    text: str, optimizer: str, implementation: str | None
) -> None:
    training = _question(optimizer=text)[0].run.training
    assert (training.optimizer, training.optimizer_implementation) == (optimizer, implementation)


def test_an_8_bit_adamw_is_not_taken_for_adamw(tmp_path: Path) -> None:
    measured = {"step_time_s": "", "peak_mem_gib": "40", "memory_kind": "allocated"}
    (whole,) = _backtest(tmp_path, **measured).rows
    rows = _backtest(tmp_path, optimizer="bnb 8-bit AdamW", **measured).rows
    assert all(score.predicted < whole.predicted for score in rows)


@pytest.mark.parametrize(
    ("name", "arch", "family"),
    [
        ("MPT-7b", "decoder", "mpt"),
        ("GPT L12 h1024", "decoder", "gpt2"),
        ("bigcode/gpt_bigcode-santacoder", "decoder", "gpt_bigcode"),
        ("mistralai/Mistral-7B-v0.1", "decoder", "mistral"),
        ("our model", "gpt_neox", "gpt_neox"),
        ("our model", "", "llama"),
    ],
)
def test_a_family_is_known_by_the_architecture_or_the_name(
    name: str, arch: str, family: str
) -> None:
    question, filled = _question(model_name=name, arch=arch, n_kv_heads="32")
    assert question.architecture.model_type == family
    assert ("arch" in filled) is (name == "our model" and not arch)


def test_a_row_without_a_shape_may_name_a_preset() -> None:
    shape = dict.fromkeys(("n_layers", "hidden", "n_heads", "n_kv_heads", "ffn", "vocab"), "")
    question, filled = _question(model_name="llama-2-7b", **shape)
    assert question.architecture.name == "llama-2-7b"
    assert filled[:5] == ["n_layers", "hidden", "n_heads", "ffn", "vocab"]


def test_the_bandwidth_of_a_node_is_the_row_s() -> None:
    wires = _question(fabric="roce", node_nic_gbps="1600")[0].wires
    assert wires.inter.kind == "roce"
    assert wires.node_bytes_per_second == 200e9


@pytest.mark.parametrize(
    ("fabric", "kind"), [("infiniband", "infiniband"), ("tcp", "ethernet"), ("rdma", "infiniband")]
)
def test_a_fabric_has_the_table_s_own_words(fabric: str, kind: str) -> None:
    question, filled = _question(fabric=fabric)
    assert question.wires.inter.kind == kind
    assert ("fabric" in filled) is (fabric == "rdma")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tp": "2"}, "tp = 2: only data parallelism is modelled"),
        ({"pp": "4"}, "pp = 4: only data parallelism is modelled"),
        ({"cp": "8"}, "cp = 8: only data parallelism is modelled"),
        ({"strategy": ""}, "strategy is blank"),
        ({"strategy": "megatron-fsdp"}, "strategy 'megatron-fsdp' is not modelled."),
        ({"strategy": "fsdp3"}, "strategy 'fsdp3' is not modelled. Perhaps you meant 'fsdp2'?"),
        ({"offload": "optimizer->CPU"}, "offload = optimizer->CPU: not modelled"),
        ({"fp8": "yes (TE)"}, "fp8 = yes (TE): not modelled"),
        ({"outcome": "oom"}, "outcome 'oom': nothing was measured"),
        ({"seq_len": ""}, "seq_len is blank"),
        ({"n_layers": "many"}, "n_layers = 'many' is not a whole number of 1 or more"),
        ({"step_time_s": "5 to 6"}, "step_time_s = '5 to 6' is not a number above 0"),
        ({"step_time_s": "-1"}, "step_time_s = '-1' is not a number above 0"),
        ({"step_time_s": "nan"}, "step_time_s = 'nan' is not a number above 0"),
        ({"tied_embeddings": "maybe"}, "tied_embeddings = 'maybe': write yes or no"),
        ({"optimizer_dtype": "4-bit"}, "optimizer_dtype = 4-bit: only states of 4 bytes"),
        ({"memory_kind": "rss", "peak_mem_gib": "1"}, "memory_kind 'rss' is not one of"),
        ({"gpu": "a100"}, "gpu 'a100' is not known."),
        ({"compiled": "partly"}, 'compiled = "partly": expected true or false.'),
        ({"step_time_s": ""}, "neither a step time nor a peak"),
    ],
    ids=str,
)
def test_a_row_that_cannot_be_predicted_is_skipped_with_its_reason(
    tmp_path: Path, changes: dict[str, str], why: str
) -> None:
    result = _backtest(tmp_path, **changes)
    assert result.rows == ()
    (skip,) = result.skipped
    assert skip.id == "run-1"
    assert skip.why.startswith(why)


def test_a_skipped_row_leaves_the_others_alone(tmp_path: Path) -> None:
    path = _table(tmp_path, LLAMA_3_8B | {"tp": "2"}, LLAMA_3_8B | {"id": ""})
    result = backtest(path)
    assert [skip.id for skip in result.skipped] == ["run-1"]
    assert [score.id for score in result.rows] == ["line 3"]


def test_progress_is_told_row_by_row(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    backtest(
        _table(tmp_path, LLAMA_3_8B, LLAMA_3_8B),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,stratgy\n1,ddp\n", r"no column 'strategy'\. Perhaps you meant 'stratgy'\?"),
        (b"\xff\xfe\x00strategy\n", "not a CSV in UTF-8"),
        (b"", "no column 'strategy'"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        backtest(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.csv: No such file"):
        backtest(tmp_path / "absent.csv")


def test_a_folder_of_profiles_that_is_not_there_is_no_reason_to_skip(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no such folder of profiles"):
        backtest(_table(tmp_path, LLAMA_3_8B), profiles=tmp_path / "absent")


MISTRAL_7B = {
    "model_name": "mistralai/Mistral-7B-v0.1",
    "vocab": "32000",
    "gpus_per_node": "8",
    "param_dtype": "bf16",
    "reduce_dtype": "bf16",
    "optimizer": "AdamW (foreach, HF adamw_torch)",
    "memory_kind": "allocated",
    "step_time_s": "",
}


@pytest.mark.published
@pytest.mark.parametrize(
    ("changes", "allocated_bytes"),
    [
        ({"strategy": "none", "gpus": "1", "micro_batch_per_gpu": "4"}, 72_434_837_504),
        ({"strategy": "fsdp1", "gpus": "2", "micro_batch_per_gpu": "2"}, 36_225_939_968),
    ],
    ids=["one GPU", "FSDP1 on two"],
)
def test_peaks_of_a_hugging_face_trainer_are_met_within_a_thousandth(
    tmp_path: Path, changes: dict[str, str], allocated_bytes: int
) -> None:
    """foundation-model-stack/fms-acceleration, 876e2ed: scripts/benchmarks/refs/a100_80gb.csv."""
    peak = str(allocated_bytes / GIB)
    (score,) = _backtest(tmp_path, **MISTRAL_7B, **changes, peak_mem_gib=peak).rows
    assert abs(score.error_fraction) < 1e-3


@pytest.mark.published
def test_reserved_memory_of_torchtitan_is_met_within_5_percent(tmp_path: Path) -> None:
    """pytorch/torchtitan, b5bcd76: benchmarks/llama3_h100_202412_torchtitan.md, compiled."""
    result = _backtest(
        tmp_path,
        seq_len="8192",
        gpus="8",
        gpu="h100-sxm-96gb-hbm2e",
        checkpointing="selective",
        compiled="yes",
        peak_mem_gib="77.0",
        memory_kind="reserved",
        step_time_s="",
    )
    assert abs(result.rows[0].error_fraction) < 0.05
