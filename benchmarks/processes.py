"""Fresh interpreters on a clock: byte code is at hand, and nothing else is."""

import os
import subprocess
import sys
import tempfile
import time

FRAMEWORKS = "import typer, pydantic"
"""What a command line of this kind takes to load before it does anything: the yardstick."""

_CACHE = tempfile.TemporaryDirectory(prefix="zeroplan-")
_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "PYTHONPYCACHEPREFIX": _CACHE.name,
}


def run(code: str) -> str:
    """Run code in an interpreter of its own and return what it prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stdout


def seconds(code: str) -> float:
    """Time from the start of an interpreter to its end. [s]"""
    start = time.perf_counter()
    run(code)
    return time.perf_counter() - start
