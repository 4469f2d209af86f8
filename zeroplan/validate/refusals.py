"""What cannot be run, told before anything is."""

from importlib.util import find_spec
from typing import Final

from zeroplan.errors import MissingPartError
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import Run
from zeroplan.units import DTYPE_BYTES
from zeroplan.validate.record import ModelClass

__all__ = ["refuse"]

FRAMEWORKS: Final = ("single", "ddp", "torch-zero1", "fsdp1", "fsdp2")
"""Those that run on fake tensors."""
OPTIMIZERS: Final = ("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "muon", "none")
"""Those of torch.optim."""
LOSSES: Final = ("fp32-logits", "model-dtype-logits")


def refuse(run: Run, row: Sharding, model_class: ModelClass) -> None:
    """Say what is missing for running a step, if anything is.

    Raises
    ------
    MissingPartError
        A package is not installed, or a part of the run has no real counterpart here.
    """
    packages = ("torch",) if model_class == "own" else ("torch", "transformers")
    for package in packages:
        if find_spec(package) is None:
            raise MissingPartError(
                f"validate needs {package}, which is not installed: pip install 'zeroplan[validate]'"
            )
    training = run.training
    if row.framework not in FRAMEWORKS:
        raise MissingPartError(
            f"sharding.strategy: {row.strategy!r} is DeepSpeed's, which does not run on fake "
            "tensors; validate one of none, ddp, torch-zero1, fsdp1, fsdp2, hsdp."
        )
    stored, compute = (
        DTYPE_BYTES[each] for each in (training.parameter_dtype, training.compute_dtype)
    )
    obstacles = {
        f"training.optimizer = {training.optimizer!r}": training.optimizer not in OPTIMIZERS,
        f"training.optimizer = {training.optimizer!r} under {row.strategy}": (
            training.optimizer == "muon" and row.framework == "fsdp2"
        ),
        f"model.loss = {run.model.loss!r}": run.model.loss not in LOSSES,
        "model.compile": run.model.compile,
        "training.master_copy": training.master_copy,
        "tuning.base_quantization = 'int8'": run.tuning.base_quantization == "int8",
        "training.optimizer_bytes_per_parameter": training.optimizer_bytes_per_parameter
        is not None,
        f"training.ema = {training.ema!r} beside {training.parameter_dtype} parameters": (
            training.ema not in ("none", training.parameter_dtype)
        ),
        "training.compute_dtype wider than parameter_dtype": compute > stored,
        "sharding.root_wrap = 'separate' under fsdp1": row.framework == "fsdp1"
        and run.sharding.root_wrap == "separate",
        "model.attention = 'math' with the class of transformers": model_class == "transformers"
        and run.model.attention == "math",
    }
    for name, met in obstacles.items():
        if met:
            raise MissingPartError(f"{name} cannot be run on fake tensors by this version.")
