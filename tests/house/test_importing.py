"""Importing any part of zeroplan is quiet and light."""

import subprocess
import sys

EVERYTHING = """
import pkgutil, sys
from importlib import import_module
import zeroplan
found = pkgutil.walk_packages(zeroplan.__path__, "zeroplan.")
names = [each.name for each in found if not each.name.startswith("zeroplan.validate.pytorch")]
for name in names:
    import_module(name)
heavy = {"matplotlib", "pandas", "torch", "transformers"} & set(sys.modules)
sys.exit(f"{len(names)} modules, {sorted(heavy)} loaded" if heavy or len(names) < 50 else 0)
"""


def test_importing_every_module_says_nothing_and_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("", "")
