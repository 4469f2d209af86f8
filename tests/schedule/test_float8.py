"""FSDP2 with torchao's float8 layers against a real step, and fp8's other figures.

float8_measured.json: made by `python float8_on_fake.py` beside it on fake tensors, uncompiled.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.record import StrategyEstimate
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule import script
from zeroplan.schedule.plan import Plan
from zeroplan.spec.toml import load_spec
from zeroplan.validate.prediction import predicted

FILE: dict[str, Any] = json.loads((Path(__file__).parent / "float8_measured.json").read_text())
CASES: list[dict[str, Any]] = FILE["cases"]
TORCHTITAN: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "strategy": "fsdp2",
    "gpu": "h100-sxm-96gb-hbm2e",
    "gpus": 8,
    "sequence_length": 8192,
    "micro_batch_size": 2,
    "activation_checkpointing": "selective",
    "rope": "complex",
    "compile": True,
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The path of the measured model's file."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FILE["model"]))
    return str(path)


def _plan(model: str, **keys: Any) -> Plan:
    asked = {"strategy": "fsdp2", "sequence_length": 128, "activation_checkpointing": "none"}
    question = resolve(load_spec(model=model, **asked, **keys))
    return plan_for(question, question.strategies[0], {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["keys"]))
def test_collectives_are_those_of_the_real_step(case: dict[str, Any], model: str) -> None:
    step = predicted(script(_plan(model, **case["keys"])), updates=True)
    calls = [[c.name, c.phase, c.count, c.input_bytes, c.output_bytes] for c in step.collectives]
    assert sorted(calls) == sorted(case["calls"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["keys"]))
def test_autograd_keeps_what_it_keeps_of_ordinary_layers(case: dict[str, Any], model: str) -> None:
    """The real step is not compiled, so the prediction is that of an ordinary one.

    A scale per layer (512 bytes) and small tensors of transformers' class come on top.
    """
    left_out = ("fp8", "fp8_all_gather", "compile")
    keys = {k: v for k, v in case["keys"].items() if k not in left_out} | {"norm": "eager"}
    ordinary = predicted(script(_plan(model, **keys)), updates=True).held_bytes.after_forward
    if case["keys"].get("fp8_all_gather") and keys.get("reshard_after_forward") is False:
        ordinary -= _narrower_weights(model, keys)
    assert case["kept_by_forward"] == pytest.approx(ordinary, rel=0.006)


def _narrower_weights(model: str, keys: dict[str, Any]) -> int:
    """Bytes that gathered weights of fp8 layers are smaller by."""
    fp8 = {"fp8": "tensorwise", "compile": True}
    plan = _plan(model, **keys, **fp8)
    return sum(p.elements * times for p, times in plan.parameters if p.float8)


@pytest.mark.published
def test_fp8_speeds_a_step_up_about_as_much_as_torchtitan_measured() -> None:
    """8532 tokens/s against 6667 (benchmarks/llama3_h100_202412, table 1), tensorwise."""
    plain, narrow = _one(**TORCHTITAN), _one(**TORCHTITAN, fp8="tensorwise")
    gain = _rate(narrow) / _rate(plain)
    assert gain == pytest.approx(8532 / 6667, rel=0.1)
    assert narrow.memory.peak_tensor_bytes == pytest.approx(
        plain.memory.peak_tensor_bytes, rel=0.01
    )


def _one(**keys: Any) -> StrategyEstimate:
    return estimate(**keys).estimates[0]


def _rate(row: StrategyEstimate) -> float:
    assert row.time.tokens_per_second_per_gpu is not None
    return row.time.tokens_per_second_per_gpu


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"compile": False}, 'training.fp8 = "tensorwise" needs model.compile = true'),
        ({"gpu": "a100-sxm4-80gb"}, "a100-sxm4-80gb has no fp8"),
        ({"strategy": "ddp"}, "not modelled under torch.autocast"),
        ({"fp8": "rowwise", "fp8_all_gather": True}, "needs one scale per weight"),
        ({"fp8": "none", "fp8_all_gather": True}, "needs one scale per weight"),
    ],
)
def test_what_has_no_fp8_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        estimate(**(TORCHTITAN | {"fp8": "tensorwise"} | keys))


def test_ddp_under_autocast_is_left_out_of_a_comparison() -> None:
    asked = {key: value for key, value in TORCHTITAN.items() if key != "strategy"}
    compared = [row.strategy for row in estimate(**asked, fp8="tensorwise").estimates]
    assert compared == ["zero1", "zero2", "zero3", "fsdp2"]
