"""The machine and the packages that a run was on."""

import platform
import re
from importlib.metadata import PackageNotFoundError, version
from os import cpu_count
from pathlib import Path
from typing import Final

from zeroplan import __version__
from zeroplan.validate.measurement import Machine

__all__ = ["machine", "versions"]

CPU_NAMES: Final = Path("/proc/cpuinfo")
DRIVER: Final = Path("/proc/driver/nvidia/version")
"""Where Linux tells them; other systems leave the fields to `platform`, or unknown."""


def machine(*, gpu: str | None = None, gpu_memory_bytes: int | None = None) -> Machine:
    """Describe this machine; its name and its owner's are left out."""
    return Machine(
        gpu=gpu,
        gpu_memory_bytes=gpu_memory_bytes,
        driver=_first(DRIVER, r"\b(\d+\.\d+(?:\.\d+)?)\b") if gpu else None,
        cpu=_first(CPU_NAMES, r"^model name\s*:\s*(.+)$") or platform.machine(),
        cores=cpu_count() or 1,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
    )


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of python, zeroplan and of those packages that are installed."""
    found = {"python": platform.python_version(), "zeroplan": __version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _first(path: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, path.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return found[1].strip() if found else None
