"""`zeroplan validate`: its answer, its exit codes and what it refuses."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from zeroplan.errors import MissingPartError
from zeroplan.validate import refusals, validate

SMALL = ("--sequence-length", "64", "--gpus", "2", "--strategy", "fsdp2")

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.torch
def test_a_prediction_that_holds_exits_with_0(zeroplan: Command, llama: str) -> None:
    code, out, err = zeroplan("--model", llama, *SMALL)
    assert (code, err) == (0, "")
    assert "peak in backward" in out
    assert "reduce_scatter in backward, calls" in out
    assert "inside the tolerance of 1.00 %" in out


@pytest.mark.torch
def test_a_prediction_outside_the_tolerance_exits_with_5(zeroplan: Command, llama: str) -> None:
    code, out, err = zeroplan("--model", llama, *SMALL, "--norm", "eager", "--tolerance", "0")
    assert (code, err) == (5, "")
    assert "outside the tolerance of 0 %" in out


@pytest.mark.torch
def test_the_answer_is_one_document(zeroplan: Command, llama: str) -> None:
    code, out, err = zeroplan("--model", llama, *SMALL, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["inputs"]["cluster"]["gpus"] == 2
    assert document["backend"] == "fake"
    assert document["model_class"] == "own"
    assert set(document["prediction"]) == set(document["truth"])


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the packages be there, whether they are or not."""
    monkeypatch.setattr(refusals, "find_spec", lambda _: object())


@pytest.mark.parametrize(
    ("arguments", "code", "remedy"),
    [
        (["--strategy", "zero3"], 6, "validate one of none, ddp"),
        (["--optimizer", "muon"], 6, "under fsdp2"),
        (["--optimizer", "lion"], 6, "training.optimizer"),
        (["--loss", "chunked"], 6, "model.loss"),
        (["--compile"], 6, "model.compile"),
        (["--backend", "tpu"], 2, "use one of fake"),
        (["--pretend-gpus", "64"], 2, "need --backend cuda or cpu"),
        (["--pretend-gpus", "0", "--backend", "cpu"], 2, "--pretend-gpus"),
        (["--collectives", "nccl.csv"], 2, "--micro-benches"),
        (["--micro-benches"], 2, "need --backend cuda or cpu"),
        (["--record", "/dev/null/run.json"], 2, "nothing can be written in"),
        (["--model-class", "mine"], 2, "use one of own, transformers"),
        (["--tolerance", "-1"], 2, "--tolerance"),
        (["--gpus", "12"], 3, "another --gpus-per-node"),
    ],
)
@pytest.mark.usefixtures("packages")
def test_what_cannot_be_run_is_told_with_its_remedy(
    zeroplan: Command, llama: str, arguments: list[str], code: int, remedy: str
) -> None:
    got, out, err = zeroplan("--model", llama, *arguments)
    assert (got, out) == (code, "")
    assert remedy in err
    assert len(err.splitlines()) == 1


@pytest.mark.torch
@pytest.mark.parametrize(
    ("visible", "remedy"), [(0, "none is visible"), (1, "use --gpus 1, --pretend-gpus 2")]
)
def test_too_few_gpus_exit_with_6(
    zeroplan: Command, llama: str, monkeypatch: pytest.MonkeyPatch, visible: int, remedy: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: visible)
    code, out, err = zeroplan("--model", llama, *SMALL, "--backend", "cuda")
    assert (code, out) == (6, "")
    assert remedy in err


@pytest.mark.usefixtures("packages")
def test_a_package_that_is_too_old_exits_with_6(
    zeroplan: Command, llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "version", lambda _: "2.12.1+cu128")
    code, out, err = zeroplan("--model", llama, "--backend", "cpu")
    assert (code, out) == (6, "")
    assert "torch 2.13 or newer, and 2.12 is installed" in err


def test_the_oldest_packages_are_those_that_the_extra_asks_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["validate"]
    asked = {f"{name}>={'.'.join(map(str, least))}" for name, least in refusals.OLDEST.items()}
    assert set(extra) == asked


@pytest.mark.parametrize("absent", ["torch", "transformers"])
def test_an_absent_package_exits_with_6_and_says_how_to_get_it(
    absent: str, zeroplan: Command, llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "find_spec", lambda name: None if name == absent else object())
    code, out, err = zeroplan("--model", llama, "--model-class", "transformers")
    assert (code, out) == (6, "")
    assert f"needs {absent}" in err
    assert "pip install 'zeroplan[validate]'" in err


@pytest.mark.torch
def test_a_layer_that_no_class_has_here_exits_with_6(model_file: Callable[[str], str]) -> None:
    with pytest.raises(MissingPartError, match="ALiBi"):
        validate(model=model_file("bloom"), model_class="own", gpus=1, strategy="none")


@pytest.mark.torch
def test_an_image_whose_size_is_data_exits_with_6(model_file: Callable[[str], str]) -> None:
    with pytest.raises(MissingPartError, match="reads the sizes of images from data"):
        validate(model=model_file("qwen2_5_vl"), gpus=2, sequence_length=64)


@pytest.mark.torch
def test_what_pytorch_refuses_is_told_as_its_refusal(llama: str) -> None:
    """DTensor has no rule for the fused SGD kernel in torch 2.13."""
    with pytest.raises(MissingPartError, match="_fused_sgd_"):
        validate(
            model=llama,
            gpus=2,
            sequence_length=64,
            optimizer="sgd-momentum",
            optimizer_implementation="fused",
        )


@pytest.mark.torch
def test_without_a_strategy_it_is_fsdp2(llama: str) -> None:
    assert validate(model=llama, gpus=2, sequence_length=64).inputs.sharding.strategy == "fsdp2"
