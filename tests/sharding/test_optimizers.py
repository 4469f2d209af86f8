"""What optimizers keep of a tensor, against the real ones.

optimizers.toml: made by optimizers_on_tensors.py beside it, which says how.
"""

import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from zeroplan.errors import SpecError
from zeroplan.estimation import estimate
from zeroplan.estimation.record import Memory
from zeroplan.sharding.optimizer_states import Piece
from zeroplan.sharding.optimizers import OptimizerRow, optimizer_row, update_guesses
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.run import Optimizer, Strategy, TrainingChoice
from zeroplan.units import DTYPE_BYTES

HERE = Path(__file__).parent
KEPT: list[dict[str, Any]] = tomllib.loads((HERE / "optimizers.toml").read_text())["kept"]
PARAMETERS = 8_030_261_248
"""Of Llama 3.1 8B."""


@pytest.mark.parametrize(
    "case", KEPT, ids=lambda case: f"{case['optimizer']} {case['dtype']} {case['shape']}"
)
def test_each_storage_has_the_size_of_the_real_one(case: dict[str, Any]) -> None:
    kept = _row(case).states(Piece(tuple(case["shape"])), DTYPE_BYTES[case["dtype"]])
    storages = [*kept.storages]
    if kept.paged:
        storages += [kept.paged // 2] * 2
    assert sorted(size for size in storages if size) == case["storages"]


def _row(case: dict[str, Any]) -> OptimizerRow:
    name, _, library = case["optimizer"].partition(" of ")
    return optimizer_row(TrainingChoice(optimizer=name), "fsdp2" if library else "single")


@pytest.mark.torch
@pytest.mark.parametrize(
    "optimizer", ["adamw", "adam", "sgd", "sgd-momentum", "adafactor", "lion", "adamw-8bit"]
)
def test_the_real_ones_still_keep_that_much(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, names in (("lion_pytorch", ("lion",)), ("bitsandbytes", ("adamw-8bit",))):
        if optimizer in names and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.syspath_prepend(str(HERE))
    torch, real = import_module("torch"), import_module("optimizers_on_tensors")
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
    cases = [case for case in KEPT if case["optimizer"] == optimizer]
    found = [real.kept(optimizer, case["shape"], dtypes[case["dtype"]]) for case in cases]
    sys.modules.pop("optimizers_on_tensors")
    assert found == [case["storages"] for case in cases]


@pytest.mark.parametrize(
    ("optimizer", "strategy", "per_parameter"),
    [
        ("adamw-8bit", "ddp", 2 + 8 / 256),
        ("adamw-8bit", "fsdp2", (2 + 8 / 256) / 8),
        ("adamw-8bit", "zero2", (4 + 2 + 8 / 256) / 8),
        ("adamw-4bit", "ddp", 1 + 8 / 128),
        ("paged-adamw", "ddp", 0),
        ("paged-adamw-8bit", "ddp", 8 / 256),
        ("muon", "ddp", 4 + 4 * 2 * 128256 * 4096 / PARAMETERS),
    ],
)
def test_bytes_per_parameter_of_a_whole_model(
    optimizer: str, strategy: str, per_parameter: float
) -> None:
    """Small tensors and the allocator's rounding add less than a thousandth of a byte."""
    found = _memory(optimizer=optimizer, strategy=strategy).optimizer_bytes / PARAMETERS
    assert found == pytest.approx(per_parameter, abs=1e-3)


def test_adafactor_keeps_rows_and_columns_of_whole_matrices_and_all_of_flat_ones() -> None:
    whole = _memory(optimizer="adafactor", strategy="ddp").optimizer_bytes
    assert whole < 1e-3 * 4 * PARAMETERS
    assert _memory(optimizer="adafactor", strategy="fsdp1").optimizer_bytes == pytest.approx(
        4 * PARAMETERS / 8, rel=1e-5
    )


def test_a_given_size_is_what_is_kept() -> None:
    memory = _memory(strategy="ddp", optimizer_bytes_per_parameter=6.5)
    assert memory.optimizer_bytes == pytest.approx(6.5 * PARAMETERS, rel=1e-6)
    assert memory.peak_breakdown_bytes.temporaries < 6.5 * PARAMETERS / 100


def test_states_of_another_dtype_need_a_master_copy() -> None:
    """Megatron's `--exp-avg-dtype` stands beside fp32 main parameters."""
    with pytest.raises(SpecError, match='optimizer_state_dtype = "bf16" needs master_copy'):
        estimate(model="8b", strategy="ddp", optimizer_state_dtype="bf16")


def test_what_cannot_update_sharded_tensors_is_refused_or_left_out() -> None:
    with pytest.raises(SpecError, match="'paged-adamw': bitsandbytes' kernels take no"):
        estimate(model="8b", strategy="fsdp2", optimizer="paged-adamw")
    rows = estimate(model="8b", gpus=8, optimizer="paged-adamw").estimates
    assert [row.strategy for row in rows] == ["ddp", "zero1", "zero2", "zero3"]


def test_an_implementation_that_a_library_lacks_is_refused() -> None:
    with pytest.raises(SpecError, match="'fused': adafactor has for-loop and foreach only"):
        estimate(
            model="8b", strategy="ddp", optimizer="adafactor", optimizer_implementation="fused"
        )


@pytest.mark.parametrize(
    ("optimizer", "strategy", "guess"),
    [
        ("adamw-8bit", "ddp", None),
        ("adamw-8bit", "fsdp2", "temporaries of a compiled update"),
        ("adamw-4bit", "ddp", "temporaries of a compiled update"),
        ("muon", "ddp", None),
        ("muon", "fsdp2", "matrices alive while sharded Muon orthogonalises one"),
        ("paged-adamw", "ddp", "share of paged optimizer states on the GPU"),
        ("adamw", "fsdp2", None),
    ],
)
def test_a_guess_is_told_where_the_strategys_update_rests_on_it(
    optimizer: Optimizer, strategy: Strategy, guess: str | None
) -> None:
    told = update_guesses(TrainingChoice(optimizer=optimizer), [STRATEGIES[strategy]])
    assert [each.name for each in told] == ([guess] if guess else [])


def _memory(**keys: Any) -> Memory:
    return estimate(model="llama-3.1-8b", gpus=8, **keys).estimates[0].memory
