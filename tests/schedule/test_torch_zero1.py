"""DDP with ZeroRedundancyOptimizer against real processes."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zeroplan.estimation.record import StrategyEstimate
from zeroplan.validate import validate

STEPS = tomllib.loads(Path(__file__).with_name("torch_zero1_measured.toml").read_text())["step"]
MODEL = Path(__file__).with_name("toy_llama.json")
DESCRIPTION = {"name", "model", "gpus", "keys", "peak_bytes", "fused_counters"}
SCALARS_BYTES = 2 * 512
"""The loss and the seed of its gradient, which zeroplan leaves out."""

Estimated = Callable[[str, dict[str, Any]], StrategyEstimate]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["name"])
def test_every_collective_is_sent_with_its_bytes_and_no_other(
    step: dict[str, Any], estimated: Estimated
) -> None:
    found = {
        f"{call.name}_{call.phase}": [call.count, call.input_bytes, call.output_bytes]
        for call in _estimate(step, estimated).communication.collectives
    }
    assert found == {key: step[key] for key in step.keys() - DESCRIPTION}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["name"])
def test_each_phase_peaks_where_the_fullest_of_real_processes_does(
    step: dict[str, Any], estimated: Estimated
) -> None:
    found = _estimate(step, estimated).memory.peak_by_phase_bytes
    predicted = (found.forward, found.backward, found.optimizer)
    counters = 512 * step.get("fused_counters", 0)
    missing = [
        real + counters - ours for real, ours in zip(step["peak_bytes"], predicted, strict=True)
    ]
    assert all(0 <= difference <= SCALARS_BYTES for difference in missing)


def _estimate(step: dict[str, Any], estimated: Estimated) -> StrategyEstimate:
    keys = {"parameter_dtype": "fp32", "compute_dtype": "fp32", **step["keys"]}
    return estimated("torch-zero1", {**step, "keys": keys})


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [{}, {"gradient_as_bucket_view": True, "parameters_as_bucket_view": True}],
    ids=json.dumps,
)
@pytest.mark.filterwarnings("ignore")  # DDP's own of what it will no longer do
def test_the_installed_pytorch_steps_as_predicted(keys: dict[str, Any]) -> None:
    """On fake tensors with a fake process group, on the fullest rank."""
    answer = validate(
        model=str(MODEL),
        strategy="torch-zero1",
        gpus=4,
        sequence_length=32,
        compute_dtype="fp32",
        tolerance=0.001,
        **keys,
    )
    assert answer.inside, answer.largest
