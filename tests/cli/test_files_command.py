"""Trainers' files on the command line: import, export, and beside the flags of an answer."""

import json
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zeroplan.cli import app
from zeroplan.errors import SpecError, UsageError
from zeroplan.spec.toml import load_spec

DS = '{"bf16": {"enabled": true}, "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "steps_per_print": 10}'
ASK = '{"fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
ARGS = '{"per_device_train_batch_size": 2, "bf16": true, "gradient_checkpointing": true}'
ACCELERATE = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\nnum_machines: 2\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_version: 2\n  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
TITAN = '[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\ndata_parallel_shard_degree = 8\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "ds.json": DS,
        "ask.json": ASK,
        "args.json": ARGS,
        "a.yaml": ACCELERATE,
        "t.toml": TITAN,
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.usefixtures("folder")
def test_an_import_is_a_spec_that_says_where_each_line_is_from() -> None:
    code, out, err = _run("import", "ds.json", "-m", "llama-3.1-8b", "-n", "8")
    assert code == 0
    spec = tomllib.loads(out)
    assert spec["training"]["gradient_accumulation_steps"] == 4
    assert spec["sharding"]["deepspeed"]["reduce_bucket_size"] == 4096**2
    line = next(line for line in out.splitlines() if line.startswith("reduce_bucket_size"))
    assert "hidden size squared" in line
    assert "#   steps_per_print: logs" in out
    assert "still missing: training.sequence_length" in err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("file", ["ds.json", "ask.json", "args.json", "a.yaml", "t.toml"])
def test_an_import_without_a_model_prints_what_is_missing(file: str) -> None:
    code, out, _ = _run("import", file)
    assert code == 0
    tomllib.loads(out)
    assert ("model.source:" in out) is (file != "t.toml")
    code, out, _ = _run("import", file, "--json")
    answer = json.loads(out)
    assert set(answer) == {
        "schema_version",
        "spec",
        "origins",
        "remarks",
        "without_bearing",
        "missing",
    }
    assert set(answer["origins"]) == set(answer["spec"])


def test_an_imported_spec_gives_the_run_that_the_file_gives(folder: Path) -> None:
    _, out, _ = _run("import", "a.yaml", "-m", "llama-3.1-8b", "-s", "2048", "--output", "run.toml")
    assert out == ""
    shown = ("-m", "llama-3.1-8b", "-s", "2048", "--show-spec")
    assert (
        _run("estimate", "--spec", "run.toml", "--show-spec")[1]
        == _run("estimate", "--accelerate", "a.yaml", *shown)[1]
    )
    assert load_spec(folder / "run.toml").sharding.strategy == "fsdp2"


@pytest.mark.usefixtures("folder")
def test_flags_win_over_files_and_files_over_the_spec(folder: Path) -> None:
    (folder / "run.toml").write_text(
        '[model]\nsource = "llama-3.1-8b"\n[sharding]\nstrategy = "ddp"\n[training]\nmicro_batch_size = 3\n[cluster]\nlink = "efa"\n'
    )
    code, out, err = _run(
        "estimate", "--spec", "run.toml", "--deepspeed", "ds.json", "-n", "16", "--show-spec"
    )
    found = tomllib.loads(out)
    assert code == 0
    assert found["sharding"]["strategy"] == "zero3"
    assert found["training"]["micro_batch_size"] == 2
    assert found["training"]["gradient_accumulation_steps"] == 2
    assert found["cluster"]["gpus"] == 16
    assert "training.micro_batch_size = 3 of the spec file: the trainer's file has 2" in err
    out = _run(
        "estimate",
        "--spec",
        "run.toml",
        "--deepspeed",
        "ds.json",
        "-n",
        "16",
        "-b",
        "4",
        "--show-spec",
    )[1]
    assert tomllib.loads(out)["training"]["micro_batch_size"] == 4
    assert tomllib.loads(out)["training"]["gradient_accumulation_steps"] == 1


@pytest.mark.usefixtures("folder")
def test_an_auto_precision_is_asked_for_and_taken_from_the_trainers_arguments() -> None:
    with pytest.raises(SpecError, match="--compute-dtype"):
        _run("estimate", "--deepspeed", "ask.json", "-m", "8b")
    code, out, err = _run(
        "estimate",
        "--deepspeed",
        "ask.json",
        "--training-args",
        "args.json",
        "-m",
        "8b",
        "--show-spec",
    )
    assert code == 0
    assert tomllib.loads(out)["training"]["compute_dtype"] == "bf16"
    assert tomllib.loads(out)["sharding"]["strategy"] == "zero2"
    assert "as it is given" in err


@pytest.mark.usefixtures("folder")
def test_the_answer_goes_to_stdout_and_remarks_to_stderr() -> None:
    code, out, err = _run(
        "estimate", "--deepspeed", "ds.json", "-m", "llama-3.1-8b", "-n", "8", "--json"
    )
    assert code in (0, 4)
    assert [each["strategy"] for each in json.loads(out)["estimates"]] == ["zero3"]
    assert "without bearing on the estimate: steps_per_print" in err


@pytest.mark.usefixtures("folder")
def test_usage_errors() -> None:
    for arguments, words in (
        (("import", "-n", "8"), "no file"),
        (("import", "ds.json", "--format", "deepsped"), "deepspeed"),
        (("import", "ds.json", "--deepspeed", "ds.json"), "one format"),
        (("import", "ds.json", "--ignore", "no_such_key"), "no_such_key"),
        (("estimate", "-m", "8b", "--ignore", "x"), "no trainer's file"),
        (("estimate", "--deepspeed", "ds.json", "-n", "8"), "--model"),
        (("export", "-m", "8b", "--strategy", "zero3"), "--format"),
        (("export", "-m", "8b", "--format", "deepspeed"), "--strategy"),
        (("export", "-m", "8b", "--format", "megatron", "--strategy", "zero3"), "megatron"),
    ):
        with pytest.raises(UsageError, match=words):
            _run(*arguments)


def test_an_export_is_written_whole_and_read_back(folder: Path) -> None:
    plan = ("-m", "llama-3.1-8b", "-n", "16", "--strategy", "zero3")
    code, out, err = _run("export", "--format", "deepspeed", *plan, "-o", "out/ds.json")
    assert (code, out) == (0, "")
    assert "made the folder out\nwrote out/ds.json" in err.replace("\\", "/")
    assert [path.name for path in (folder / "out").iterdir()] == ["ds.json"]
    shown = _run("estimate", "--deepspeed", "out/ds.json", "--show-spec")[1]
    assert shown == _run("estimate", *plan, "--show-spec")[1]


def test_estimate_alone_loads_neither_yaml_nor_the_readers_of_files() -> None:
    import subprocess  # noqa: PLC0415

    code = "import sys; from zeroplan.cli import main; sys.argv[1:] = ['estimate', '-m', '8b', '--json']\ntry: main()\nexcept SystemExit: pass\nfinally: print('|', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.rpartition("|")[2].split()
    assert not [name for name in loaded if name == "yaml" or name.startswith("zeroplan.foreign")]
