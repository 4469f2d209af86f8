"""`validate --backend cpu`: a real job of local processes shows what was predicted."""

import errno
import os
import tempfile
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from zeroplan.errors import MissingPartError, RunError
from zeroplan.validate import validate
from zeroplan.validate.quiet import quiet

pytestmark = pytest.mark.torch

SMALL: dict[str, Any] = {"sequence_length": 64, "gpus": 2, "activation_checkpointing": "none"}
TOLERANCE = 0.001

FAST: dict[str, tuple[str, dict[str, Any]]] = {
    "fsdp2": ("llama", {"strategy": "fsdp2"}),
    "ddp": ("llama", {"strategy": "ddp"}),
}
SLOW: dict[str, tuple[str, dict[str, Any]]] = {
    "hsdp": ("llama", {"strategy": "hsdp", "gpus": 4, "shard_size": 2}),
    "torch-zero1": ("llama", {"strategy": "torch-zero1", "precision": "fp32"}),
    "fsdp1": ("llama", {"strategy": "fsdp1"}),
    "three ranks, checkpointed": (
        "llama",
        {"strategy": "fsdp2", "gpus": 3, "gpus_per_node": 3, "activation_checkpointing": "full"},
    ),
    "accumulation": ("llama", {"strategy": "fsdp2", "gradient_accumulation_steps": 2}),
    "gpt2": ("gpt2", {"strategy": "fsdp2"}),
    "gpt2 ddp": ("gpt2", {"strategy": "ddp", "precision": "fp32"}),
    "qwen2": ("qwen2", {"strategy": "fsdp2"}),
    "qwen3": ("qwen3", {"strategy": "hsdp", "gpus": 4, "shard_size": 2}),
    "mistral": ("mistral", {"strategy": "torch-zero1", "precision": "fp32"}),
    "phi3": ("phi3", {"strategy": "ddp"}),
}


def hold(model: str, keys: dict[str, Any]) -> None:
    answer = validate(model=model, backend="cpu", timeout=300, **{**SMALL, **keys})
    off = [each for each in answer.differences if each.judged and not each.within(TOLERANCE)]
    assert off == []
    assert answer.truth is not None
    assert len(answer.truth.step_seconds) == 5
    assert min(answer.truth.step_seconds) > 0


@pytest.mark.parametrize(("model", "keys"), FAST.values(), ids=FAST)
def test_processes_show_what_was_predicted(
    model_file: Callable[[str], str], model: str, keys: dict[str, Any]
) -> None:
    hold(model_file(model), keys)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "keys"), SLOW.values(), ids=SLOW)
def test_further_processes_show_what_was_predicted(
    model_file: Callable[[str], str], model: str, keys: dict[str, Any]
) -> None:
    hold(model_file(model), keys)


def test_what_only_fake_tensors_can_do_is_refused(llama: str) -> None:
    with pytest.raises(MissingPartError, match="by processes of this machine"):
        validate(model=llama, backend="cpu", gpus=64, strategy="fsdp2", sequence_length=64)
    with pytest.raises(MissingPartError, match="or --backend fake"):
        validate(model="llama-3.1-70b", backend="cpu", gpus=8, strategy="fsdp2")


def test_a_machine_without_a_folder_for_ranks_is_told(
    llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with quiet():  # it asks for the folder's type when it is imported
        import_module("zeroplan.validate.pytorch.real")
    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    with pytest.raises(RunError, match="No space left on device; TMPDIR names another"):
        validate(model=llama, backend="cpu", strategy="ddp", **SMALL)
