"""Fit the constants of a training step to a table of runs and write them into the profiles.

    python benchmarks/fit_steps.py RUNS.csv [--write]

Constants that a profile calls fitted to training runs are written; those that others assume from
them are left to the reader. `zeroplan.backtesting.holdout` says what is fitted, and to which rows.
"""

import sys
from collections import Counter

from profiles import rewrite

from zeroplan.backtesting.holdout import Constants, fit, informs, runs_of
from zeroplan.hardware import Gpu, load_catalogue


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
    values = {}
    for name, value in constants.items():
        key, _, family = name.partition(".")
        quantity = getattr(gpu, key)
        fitted = quantity.kind == "fitted" and quantity.source == "training-runs"
        if fitted and family in ("", gpu.family):
            values[key] = f"{value:.2f}"
    rewrite(gpu.id, values)


if __name__ == "__main__":
    main()
