"""Steps that train a part of a model, against what the real frameworks showed.

tuned_measured.json: torch 2.13.0 on fake tensors, by `zeroplan validate --model config.json
--sequence-length 1024 --json` and the flags that each case names as "asked", where config.json holds
the file's "model"; the adapters and packed weights of validate's own module do to memory what those
of peft 0.21 and bitsandbytes 0.50 do.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from zeroplan.estimation import estimate
from zeroplan.estimation.record import StrategyEstimate

Case = dict[str, Any]

FILE = json.loads((Path(__file__).parent / "tuned_measured.json").read_text())
CASES: list[Case] = FILE["cases"]
TOLERANCE = 2e-4
"""Two scalars of the loss; the copies of the first block's weights that autocast keeps unused."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(FILE["model"]))
    return str(path)


def answered(model: str, case: Case) -> StrategyEstimate:
    keys = {"model": model, "sequence_length": FILE["sequence_length"], **case["asked"]}
    (found,) = estimate(**keys).estimates
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
class TestAMeasuredStep:
    def test_holds_as_much_at_the_peak_of_each_phase(self, case: Case, model: str) -> None:
        peaks = answered(model, case).memory.peak_by_phase_bytes
        for phase, measured in case["peaks"].items():
            assert getattr(peaks, phase) == pytest.approx(measured, rel=TOLERANCE), phase

    def test_sends_the_same_in_the_same_number_of_calls(self, case: Case, model: str) -> None:
        sums: dict[str, list[int]] = {}
        for each in answered(model, case).communication.collectives:
            row = sums.setdefault(f"{each.phase} {each.name}", [0, 0, 0])
            for place, size in enumerate((each.count, each.input_bytes, each.output_bytes)):
                row[place] += size
        assert sums == case["calls"]

    def test_owns_the_states_of_what_is_trained(self, case: Case, model: str) -> None:
        """The record counts elements, a storage is rounded up to 512 bytes.

        The recording rank is the first, which of ZeroRedundancyOptimizer's has none of the adapters
        (its fullest has a quarter of them).
        """
        memory = answered(model, case).memory
        assert memory.parameters_bytes == pytest.approx(case["parameters"], rel=0.002)
        if case["name"] != "ZeroRedundancyOptimizer":
            assert memory.optimizer_bytes == case["optimizer"]


def test_frozen_weights_of_a_flat_parameter_get_gradients_all_the_same(model: str) -> None:
    """FSDP1 with original parameters: a flat gradient is as large as the whole unit."""
    together, apart = (
        answered(model, case)
        for name in ("FSDP1 flattened together", "FSDP1 by themselves")
        for case in CASES
        if case["name"] == name
    )
    assert together.memory.gradients_bytes > 20 * apart.memory.gradients_bytes
