"""Every key of the spec file is a flag, and a flag means what the key means."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from zeroplan import estimation
from zeroplan.cli import app
from zeroplan.errors import SpecError, UsageError
from zeroplan.estimation.record import Estimate
from zeroplan.spec.reading import keys
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec, to_toml


@pytest.fixture
def asked(answer: Estimate, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """What `estimate` was called with, its computing taken out."""
    calls: list[Run] = []

    def echo(run: Run, *, profiles: Path | None) -> Estimate:
        del profiles
        calls.append(run)
        return answer

    monkeypatch.setattr(estimation, "estimate", echo)
    return calls


def _run(*arguments: str) -> int:
    result = CliRunner().invoke(app, ["estimate", *arguments])
    if isinstance(result.exception, SpecError | UsageError):
        raise result.exception
    return result.exit_code


def test_every_key_is_on_the_help_page_under_its_own_name() -> None:
    page = CliRunner().invoke(app, ["estimate", "--help"], env={"COLUMNS": "200"}).output
    flags = {dotted.rpartition(".")[2].replace("_", "-") for dotted in keys()}
    for flag in flags - {"source", "version"} | {
        "model",
        "deepspeed-version",
        "spec",
        "json",
        "show-spec",
        "wide",
        "profiles",
    }:
        assert f"--{flag} " in page


def test_every_flag_says_what_it_is_and_its_default() -> None:
    page = CliRunner().invoke(app, ["estimate", "--help"], env={"COLUMNS": "300"}).output
    for line in page.splitlines():
        if line.startswith("│ --") and "--help" not in line:
            assert any(mark in line for mark in ("default: ", ".  ")), line
    assert "Sequences per GPU per micro-step. [count] [default: 1]" in page


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--sequence-length", "8192"], {"sequence_length": 8192}),
        (["-s", "8192", "-b", "2", "-n", "16"], {"sequence_length": 8192, "micro_batch_size": 2, "gpus": 16}),
        (["--compile"], {"compile": True}),
        (["--compile", "--gpus", "16"], {"compile": True, "gpus": 16}),
        (["--compile", "false"], {}),
        (["--no-contiguous-gradients"], {"contiguous_gradients": False}),
        (["--reshard-after-forward", "false"], {"reshard_after_forward": False}),
        (["--reshard-after-forward=4"], {"reshard_after_forward": 4}),
        (["--no-reshard-after-forward"], {"reshard_after_forward": False}),
        (["--root-reshard-after-forward", "auto"], {}),
        (["--norm", "eager"], {"norm": "eager"}),
        (["--reduce-bucket-size", "2e8"], {"reduce_bucket_size": 200_000_000}),
        (["--precision", "bf16"], {"precision": "bf16"}),
        (["--shard-size", "auto"], {}),
        (["--gradient-clipping", "1"], {"gradient_clipping": 1.0}),
        (["--node", "8"], {"node": "8"}),
        (["--activation-checkpointing", "none"], {"activation_checkpointing": "none"}),
        (["--optimizer", "none"], {"optimizer": "none"}),
    ],
)  # fmt: skip
def test_a_flag_sets_its_key(
    asked: list[Run], arguments: list[str], expected: dict[str, object]
) -> None:
    assert _run("--model", "8b", *arguments) == 0
    assert asked == [load_spec(model="8b", **expected)]


def test_a_long_flag_goes_on_in_the_next_line_of_a_help_page() -> None:
    page = CliRunner().invoke(app, ["estimate", "--help"], env={"COLUMNS": "80"}).output
    names = [line[2:].split(" ", 1)[0] for line in page.splitlines() if line.startswith("\u2502 ")]
    at = next(place for place, name in enumerate(names) if name.startswith("--use-multi-rank"))
    assert names[at] + names[at + 1] == "--use-multi-rank-bucket-allreduce"


def test_flags_win_over_the_file(asked: list[Run], tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(to_toml(load_spec(model="8b", gpus=64, norm="eager")))
    assert _run("--spec", str(file), "--gpus", "16") == 0
    assert asked == [load_spec(model="8b", gpus=16, norm="eager")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "eight"], '--gpus = "eight": expected a whole number from 1 to 1,000,000.'),
        (["--gpus", "nan"], '--gpus = "nan": expected'),
        (["--gpus", "-1"], "--gpus = -1: expected"),
        (["--attention", "flahs"], "Perhaps you meant 'flash'?"),
        (["--compile", "maybe"], '--compile = "maybe": expected true or false.'),
    ],
)
def test_a_wrong_flag_is_named_as_it_was_typed(arguments: list[str], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        _run("--model", "8b", *arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "estimate -m 8b -n 12",
            "--gpus = 12 is not a multiple of --gpus-per-node = 8: use 8 or 16 GPUs, or another --",
        ),
        (
            "estimate --spec FILE -n 12",
            "--gpus = 12 is not a multiple of gpus_per_node = 8: use 8 or 16 GPUs, or another gpu",
        ),
        ("estimate --spec FILE --strategy none", "but cluster.gpus = 16: set gpus = 1, or"),
        ("estimate -m 8b --strategy none -n 2", "but --gpus = 2: set --gpus = 1, or"),
        (
            "plan -m 8b --global-batch-size 8 --gradient-accumulation-steps 2",
            "--global-batch-size sets --gradient-accumulation-steps: leave one",
        ),
        ("estimate -m 8b --mics-shard-size 4", "Set --deepspeed-version to 0.19.6 or older"),
    ],
)
def test_what_contradicts_itself_is_named_as_it_was_given(
    line: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "spec.toml"
    file.write_text("[model]\nsource = '8b'\n[cluster]\ngpus = 16\ngpus_per_node = 8\n")
    result = CliRunner().invoke(app, line.replace("FILE", str(file)).split())
    assert isinstance(result.exception, SpecError)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    "line",
    [
        "explain -m 8b --gpus 16,32",
        "trace -m 8b --link ib,roce",
        "export -m 8b --strategy zero2,zero3 --format deepspeed",
        "validate -m 8b -n 8..32",
        "import ds.json -b 1,2",
    ],
)
def test_a_command_that_answers_one_at_a_time_says_so(line: str) -> None:
    result = CliRunner().invoke(app, line.split())
    command = line.split(maxsplit=1)[0]
    assert isinstance(result.exception, UsageError)
    assert f"`zeroplan {command}` answers one at a time" in str(result.exception)


def test_without_a_model_the_remedy_is_said() -> None:
    with pytest.raises(UsageError, match="--model"):
        _run("--gpus", "8")


def test_show_spec_prints_what_reads_back_as_the_resolved_run(
    asked: list[Run], answer: Estimate, tmp_path: Path
) -> None:
    file = tmp_path / "spec.toml"
    result = CliRunner().invoke(app, ["estimate", "-m", "8b", "--show-spec"])
    file.write_text(result.stdout)
    assert asked
    assert load_spec(file) == answer.inputs


def test_json_is_the_whole_of_standard_output(asked: list[Run], answer: Estimate) -> None:
    result = CliRunner().invoke(app, ["estimate", "-m", "8b", "--json"])
    assert asked
    assert result.stdout == answer.to_json() + "\n"
