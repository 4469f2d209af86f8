"""Fit the constants of a training step to a table of runs and write them into the profiles.

    python benchmarks/fit_steps.py RUNS.csv [--write]

Constants that a profile calls fitted to training runs are written; those that others assume from
them are left to the reader. `zeroplan.backtesting.holdout` says what is fitted, and to which rows.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from zeroplan.backtesting.holdout import Constants, fit, informs, runs_of
from zeroplan.hardware import Gpu, load_catalogue

PROFILES = Path(__file__).parents[1] / "hardware_profiles" / "gpus"


def main() -> None:
    path, *options = sys.argv[1:]
    runs = [run for run in runs_of(path) if informs(run)]
    for (source, family), rows in Counter((r.source_id, r.gpu.family) for r in runs).items():
        print(f"{source}, {family}: {rows} rows")
    constants = fit(runs)
    for name, value in constants.items():
        print(f"{name} = {value:.3f}")
    if "--write" in options:
        catalogue = load_catalogue(None)
        for gpu_id in catalogue.gpu_ids():
            write(catalogue.gpu(gpu_id), constants)


def write(gpu: Gpu, constants: Constants) -> None:
    """Set the values of a profile that are fitted to training runs."""
    file = PROFILES / f"{gpu.id}.toml"
    text = before = file.read_text(encoding="utf-8")
    for name, value in constants.items():
        key, _, family = name.partition(".")
        quantity = getattr(gpu, key)
        fitted = quantity.kind == "fitted" and quantity.source == "training-runs"
        if fitted and family in ("", gpu.family):
            text = re.sub(rf"(\[{key}\]\nvalue = )[\d.]+", rf"\g<1>{value:.2f}", text)
    if text != before:
        text = re.sub(r"(revision = )(\d+)", lambda m: f"{m[1]}{int(m[2]) + 1}", text, count=1)
        file.write_text(text, encoding="utf-8")
        print(f"wrote {file.name}")


if __name__ == "__main__":
    main()
