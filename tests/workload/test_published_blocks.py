"""Blocks of every kind keep what transformers' classes keep, storage by storage.

The record beside this file was made by published_blocks.py; where torch is, the classes run again.
"""

import runpy
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from zeroplan.spec.models import architecture_of
from zeroplan.workload.batch import Batch
from zeroplan.workload.liveness import saved_storages
from zeroplan.workload.model import Unit, workload

PUBLISHED: Final = runpy.run_path(str(Path(__file__).with_name("published_blocks.py")))
MODELS: Final[dict[str, Any]] = PUBLISHED["MODELS"]
ONE_OF_EACH: Final = ("DeepSeek-V3", "Qwen3-MoE", "SigLIP", "T5")


def kept(unit: Unit) -> Counter[int]:
    """Return the sizes of what autograd keeps of a unit. [B]"""
    return Counter(int(tensor.bytes) for tensor in saved_storages(unit))


def units_of(config: dict[str, Any]) -> tuple[Unit, ...]:
    """Write a model down as the class runs it: norms in Python, one kernel for attention."""
    batch = Batch(
        sequences=PUBLISHED["SEQUENCES"], sequence_length=PUBLISHED["LENGTH"], norm="eager"
    )
    return workload(architecture_of(config, "config", "model"), batch).units


@pytest.mark.parametrize("name", MODELS)
def test_every_block_keeps_the_recorded_storages(name: str) -> None:
    """What the blocks of a stack share stands in the record of the first, and here before it."""
    units = units_of(MODELS[name]["config"])
    blocks = [(index, unit) for index, unit in enumerate(units) if unit.kind == "block"]
    for (index, unit), sizes in zip(blocks, MODELS[name]["kept"], strict=True):
        recorded, ours = Counter(sizes), kept(unit)
        before = kept(units[index - 1]) if units[index - 1].kind == "embedding" else Counter()
        assert ours - recorded == Counter()
        assert recorded - ours <= before


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # PyTorch's own, when its parts are imported
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ONE_OF_EACH else [pytest.mark.slow])
        for name in MODELS
    ],
)
def test_the_class_keeps_what_was_recorded(name: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert PUBLISHED["kept_by_block"](name) == MODELS[name]["kept"]
