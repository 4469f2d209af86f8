"""Fit the rates of matmuls to published timings by shape, and say how far off they are.

    python benchmarks/fit_matmuls.py GEMM.csv [--write]

The table has a product a line: gpu, dtype, M, N, K, latency_us. `zeroplan.compute.gemm` states the
model; its three constants are fitted to the 16-bit rows of a GPU, for fp8 the efficiency alone.
Every tenth row is held out of the fit, and errors are told of those.
"""

import csv
import sys
from collections import defaultdict
from math import exp
from pathlib import Path
from statistics import median

from profiles import rewrite

from zeroplan.calibration.products import Product, Rates, fit_products, log_error
from zeroplan.hardware import load_catalogue
from zeroplan.workload.tape import Matmul

NAMES = {
    "A100-SXM4-80GB": "a100-sxm4-80gb",
    "H100-SXM5-80GB": "h100-sxm5-80gb",
    "H200-SXM-141GB": "h200-sxm-141gb",
    "B200-SXM": "b200-sxm",
    "B300-SXM": "b300-sxm",
    "GB200": "gb200",
    "GB300": "gb300",
    "L40S": "l40s",
    "RTX PRO 6000 Blackwell Server": "rtx-pro-6000-blackwell-server",
}
DTYPES = {"bfloat16": "bf16", "fp8": "fp8"}
HELD_OUT = 10
START = Rates(efficiency=0.8, depth=100.0, start=5e-6)


def main() -> None:
    path, *options = sys.argv[1:]
    found: dict[str, Rates] = {}
    for (gpu_id, dtype), rows in sorted(read(path).items()):
        gpu = load_catalogue(None).gpu(gpu_id)
        fitted = found.get(gpu_id)
        kept = [row for place, row in enumerate(rows) if place % HELD_OUT]
        free = None if fitted is None else ("efficiency",)
        rates = fit_products(gpu, kept, fitted or START, free)
        found.setdefault(gpu_id, rates)
        errors = sorted(abs(exp(log_error(gpu, row, rates)) - 1) for row in rows[::HELD_OUT])
        print(
            f"{gpu_id} {dtype}: efficiency {rates.efficiency:.3g}, depth {rates.depth:.3g}, "
            f"start {rates.start:.3g}; held out: {len(errors)} rows, "
            f"median {100 * median(errors):.1f} %, p90 {100 * errors[9 * len(errors) // 10]:.1f} %"
        )
        if "--write" in options:
            write(gpu_id, dtype, rates)


def read(path: str) -> dict[tuple[str, str], list[Product]]:
    """Return the products that were timed, by GPU and dtype, bf16 first."""
    rows: dict[tuple[str, str], list[Product]] = defaultdict(list)
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["gpu"] in NAMES and row["dtype"] in DTYPES and row["latency_us"]:
                product = Product(
                    product=Matmul(m=int(row["M"]), n=int(row["N"]), k=int(row["K"])),
                    dtype=DTYPES[row["dtype"]],
                    seconds=float(row["latency_us"]) * 1e-6,
                )
                rows[NAMES[row["gpu"]], product.dtype].append(product)
    return rows


def write(gpu_id: str, dtype: str, rates: Rates) -> None:
    """Set the values of a profile."""
    values = {
        "matmul_efficiency": f"{rates.efficiency:.3f}",
        "matmul_depth_elements": f"{rates.depth:.0f}",
        "matmul_start_seconds": f"{rates.start:.1e}",
    }
    if dtype != "bf16":
        values = {f"matmul_efficiency_by_dtype.{dtype}": values["matmul_efficiency"]}
    rewrite(gpu_id, values)


if __name__ == "__main__":
    main()
