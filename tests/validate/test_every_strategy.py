"""Five kinds of model under each strategy of PyTorch, on 2, 3 and 4 processes forked once each.

Peaks are of tensors that a GPU would hold: what gloo copies, and what norms leave behind on a CPU
alone, is left out (`ledger` and `kernels` in `zeroplan.validate.pytorch`).
"""

import json
import pickle
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.schedule import script
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec
from zeroplan.validate.differences import differences
from zeroplan.validate.prediction import predicted
from zeroplan.validate.record import PHASES, Observation

pytestmark = pytest.mark.torch

RANKS = Path(__file__).parent / "ranks_of_many_jobs.py"
MODELS = ("llama", "qwen3", "gpt2", "phi3", "olmo2")
STRATEGIES: dict[str, dict[str, Any]] = {
    "fsdp2": {"strategy": "fsdp2", "gpus": 3, "gpus_per_node": 3},
    "hsdp": {"strategy": "hsdp", "gpus": 4, "shard_size": 2},
    "ddp": {"strategy": "ddp", "gpus": 2, "precision": "fp32"},
    "torch-zero1": {"strategy": "torch-zero1", "gpus": 2, "precision": "fp32"},
}
CASES = tuple(product(MODELS, STRATEGIES))
SMALL: dict[str, Any] = {"sequence_length": 64, "activation_checkpointing": "none"}
TOLERANCE = 0.01
LIMIT_SECONDS = 900.0
"""Of all jobs."""

Seen = dict[tuple[str, str], tuple[Run, Observation]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, small_models: dict[str, Any]) -> Seen:
    """Every run with what the fullest rank of its job saw.

    Processes that run several jobs must have the same history: PyTorch numbers its groups.
    """
    files = tmp_path_factory.mktemp("models")
    for model in MODELS:
        (files / model).mkdir()
        described = {"model_type": model, **small_models[model]}
        (files / model / "config.json").write_text(json.dumps(described))
    runs = {
        (model, strategy): load_spec(
            model=str(files / model / "config.json"), **SMALL, **STRATEGIES[strategy]
        )
        for model, strategy in CASES
    }
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "runs.pickle").write_bytes(pickle.dumps(list(runs.values())))
    line = [sys.executable, str(RANKS), str(folder)]
    assert subprocess.run(line, check=False, timeout=LIMIT_SECONDS).returncode == 0
    return {
        case: (run, _fullest(folder, number, run.cluster.gpus))
        for number, (case, run) in enumerate(runs.items())
    }


def _fullest(folder: Path, number: int, ranks: int) -> Observation:
    found = [pickle.loads((folder / f"{number}.{rank}").read_bytes()) for rank in range(ranks)]

    def highest(one: Observation) -> int:
        return max(int(getattr(one.peak_by_phase_bytes, phase)) for phase in PHASES)

    return max(found, key=highest)


@pytest.mark.parametrize(("model", "strategy"), CASES)
def test_a_job_shows_the_peaks_and_collectives_that_were_predicted(
    seen: Seen, model: str, strategy: str
) -> None:
    run, truth = seen[model, strategy]
    question = resolve(run)
    (row,) = question.strategies
    plan = plan_for(question, row, {})
    pairs = differences(predicted(script(plan), updates=plan.runs_before_update), truth)
    assert [each for each in pairs if each.kind == "peak" and not each.within(TOLERANCE)] == []
    calls = [each for each in pairs if each.kind in ("calls", "message")]
    assert calls
    assert [each for each in calls if each.predicted != each.measured] == []
