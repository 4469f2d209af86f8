"""What cannot be run, told before anything is."""

import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from os import sysconf
from typing import Final

from zeroplan.errors import MissingPartError
from zeroplan.sharding.strategies import Sharding
from zeroplan.spec.run import Run
from zeroplan.units import DTYPE_BYTES, GIB, MIB
from zeroplan.validate.record import Backend, ModelClass

__all__ = ["refuse", "refuse_gpus", "refuse_memory", "refuse_packages"]

FRAMEWORKS: Final = ("single", "ddp", "torch-zero1", "fsdp1", "fsdp2")
"""Those that run here."""
OPTIMIZERS: Final = ("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "muon", "none")
"""Those of torch.optim."""
LOSSES: Final = ("fp32-logits", "model-dtype-logits")
OLDEST: Final = {"torch": (2, 13), "transformers": (5, 24)}
"""As the extra `validate` of the package asks for."""
MOST_PROCESSES: Final = 16
PROCESS_BYTES: Final = 400 * MIB
"""Of a process that has imported torch (judgement)."""


def refuse_packages(model_class: ModelClass) -> None:
    """Say so where a package is not installed, or too old.

    Raises
    ------
    MissingPartError
        It is not.
    """
    packages = ("torch",) if model_class == "own" else ("torch", "transformers")
    for package in packages:
        if find_spec(package) is None:
            raise MissingPartError(
                f"validate needs {package}, which is not installed: pip install 'zeroplan[validate]'"
            )
        least, found = OLDEST[package], _version(package)
        if found < least:
            raise MissingPartError(
                f"validate needs {package} {_dotted(least)} or newer, and {_dotted(found)} is "
                "installed: pip install --upgrade 'zeroplan[validate]'"
            )


def refuse(
    run: Run,
    row: Sharding,
    model_class: ModelClass,
    backend: Backend = "fake",
    *,
    alone: bool = False,
) -> None:
    """Say what is missing for running a step, if anything is.

    `alone`, this process is the only one to be started here, whatever the run's GPUs.

    Raises
    ------
    MissingPartError
        A package is not installed, or a part of the run has no real counterpart here.
    """
    refuse_packages(model_class)
    if row.framework not in FRAMEWORKS:
        raise MissingPartError(
            f"sharding.strategy: {row.strategy!r} is DeepSpeed's, which does not run on fake "
            "tensors; validate one of none, ddp, torch-zero1, fsdp1, fsdp2, hsdp."
        )
    obstacles = _obstacles(run, row, model_class)
    if backend != "fake":
        obstacles |= _without_values(run, model_class)
    many = run.cluster.gpus > MOST_PROCESSES and backend == "cpu" and not alone
    obstacles[f"cluster.gpus = {run.cluster.gpus}, more than {MOST_PROCESSES},"] = many
    on = {
        "fake": "on fake tensors",
        "cpu": "by processes of this machine",
        "cuda": "on real GPUs",
    }[backend]
    for name, met in obstacles.items():
        if met:
            raise MissingPartError(f"{name} cannot be run {on} by this version.")


def _obstacles(run: Run, row: Sharding, model_class: ModelClass) -> dict[str, bool]:
    """Name what PyTorch or this version does not have, and whether it is asked for."""
    training = run.training
    stored, compute = (
        DTYPE_BYTES[each] for each in (training.parameter_dtype, training.compute_dtype)
    )
    return {
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


def _without_values(run: Run, model_class: ModelClass) -> dict[str, bool]:
    """Name what runs on fake tensors alone: its stand-ins allocate and compute nothing."""
    sharding, tuning = run.sharding, run.tuning
    return {
        "the class of transformers": model_class == "transformers",
        f"tuning.base_quantization = {tuning.base_quantization!r}": (
            tuning.base_quantization != "none"
        ),
        "training.reference_model": run.training.reference_model,
        "sharding.offload_parameters": sharding.offload_parameters != "none",
        "training.offload_activations": run.training.offload_activations,
    }


def refuse_gpus(needed: int, visible: int, *, ranks: int) -> None:
    """Say so where fewer GPUs are visible than processes are started here.

    Raises
    ------
    MissingPartError
        They are fewer, or none.
    """
    if not visible:
        raise MissingPartError(
            "--backend cuda needs a GPU that torch can use, and none is visible: see nvidia-smi and "
            "CUDA_VISIBLE_DEVICES, or use --backend cpu or fake."
        )
    if needed > visible:
        raise MissingPartError(
            f"the run has {ranks} GPUs and {visible} {'is' if visible == 1 else 'are'} visible: use "
            f"--gpus {visible}, --pretend-gpus {ranks}, or a launcher on several nodes."
        )


def refuse_memory(ranks: int, peak_bytes: int) -> None:
    """Say so where the processes would need more memory than the machine has left.

    Raises
    ------
    MissingPartError
        It has not enough.
    """
    needed = ranks * (peak_bytes + PROCESS_BYTES)
    left = sysconf("SC_AVPHYS_PAGES") * sysconf("SC_PAGE_SIZE")
    if needed > left:
        raise MissingPartError(
            f"{ranks} processes need about {needed / GIB:.1f} GiB and this machine has "
            f"{left / GIB:.1f} GiB left: use a smaller model or fewer GPUs, or --backend fake."
        )


def _version(package: str) -> tuple[int, ...]:
    """Return a package's version as numbers; one that cannot be told is new enough."""
    try:
        found = re.match(r"(\d+)\.(\d+)", version(package))
    except PackageNotFoundError:
        found = None
    return OLDEST[package] if found is None else tuple(map(int, found.groups()))


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
