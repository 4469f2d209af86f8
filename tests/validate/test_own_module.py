"""Zeroplan's own module has the parameters of the architecture that it is made from."""

import pytest

from zeroplan.estimation.answer import plan_for
from zeroplan.estimation.resolve import resolve
from zeroplan.spec.toml import load_spec

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # PyTorch's own, when its parts are imported
]

pytest.importorskip("torch")


@pytest.mark.parametrize(
    "preset",
    ["llama-3.2-1b", "gpt2", "qwen2.5-3b", "qwen3-4b", "gemma-2-2b", "olmo-2-7b", "pythia-1.4b"],
)
def test_its_parameters_are_those_that_are_counted(preset: str) -> None:
    from zeroplan.validate.pytorch.environment import on_meta  # noqa: PLC0415  # imports torch
    from zeroplan.validate.pytorch.model import own  # noqa: PLC0415

    question = resolve(load_spec(model=preset, strategy="fsdp2", sequence_length=128))
    plan = plan_for(question, question.strategies[0], {})
    import torch  # noqa: PLC0415

    with on_meta(torch.float32):
        module = own(question.architecture, plan).module
    counted = sorted(tuple(p.shape) for p in plan.workload.parameters if p.tied_to is None)
    assert sorted(tuple(p.shape) for p in module.parameters()) == counted
