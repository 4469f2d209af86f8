"""Fit the rates of matmuls to published timings by shape, and say how far off they are.

    python benchmarks/fit_matmuls.py GEMM.csv [--write]

The table has a product a line: gpu, dtype, M, N, K, latency_us. `zeroplan.compute.gemm` states the
model; its three constants are fitted to the 16-bit rows of a GPU, for fp8 the efficiency alone.
Every tenth row is held out of the fit, and errors are told of those.
"""

import csv
import sys
from collections import defaultdict
from math import exp, log
from pathlib import Path
from statistics import median

from profiles import rewrite

from zeroplan.compute.gemm import gemm_seconds
from zeroplan.compute.gpu import GpuPrice, gpu_price
from zeroplan.hardware import Gpu, load_catalogue
from zeroplan.records import replace
from zeroplan.units import DTYPE_BYTES
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
LEAST = {"efficiency": 0.05, "depth": 1.0, "start": 0.5e-6}
MOST = {"efficiency": 1.0, "depth": 1000.0, "start": 50e-6}
ROUNDS, NUDGE, SMALL, HELD_OUT = 25, 0.02, 0.02, 10
MEMORY = 0.9
"""Share of the memory bandwidth that a product alone is given. Judgement; the profiles'
`hbm_efficiency` is fitted to whole steps, of which a product is no example. [1]"""

Constants = dict[str, float]
Timed = list[tuple[Matmul, float]]


def main() -> None:
    path, *options = sys.argv[1:]
    found: dict[str, Constants] = {}
    for (gpu_id, dtype), rows in sorted(read(path).items()):
        gpu = load_catalogue(None).gpu(gpu_id)
        fitted = found.get(gpu_id)
        free = ("efficiency", "depth", "start") if fitted is None else ("efficiency",)
        start = fitted or {"efficiency": 0.8, "depth": 100.0, "start": 5e-6}
        kept = [row for place, row in enumerate(rows) if place % HELD_OUT]
        constants = fit(gpu, dtype, kept, start, free)
        found.setdefault(gpu_id, constants)
        errors = sorted(abs(exp(error(gpu, dtype, row, constants)) - 1) for row in rows[::HELD_OUT])
        told = ", ".join(f"{name} {value:.3g}" for name, value in constants.items())
        print(
            f"{gpu_id} {dtype}: {told}; held out: {len(errors)} rows, "
            f"median {100 * median(errors):.1f} %, p90 {100 * errors[9 * len(errors) // 10]:.1f} %"
        )
        if "--write" in options:
            write(gpu_id, dtype, constants)


def read(path: str) -> dict[tuple[str, str], Timed]:
    """Return the products that were timed, by GPU and dtype, bf16 first."""
    rows: dict[tuple[str, str], Timed] = defaultdict(list)
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["gpu"] in NAMES and row["dtype"] in DTYPES and row["latency_us"]:
                product = Matmul(m=int(row["M"]), n=int(row["N"]), k=int(row["K"]))
                seconds = float(row["latency_us"]) * 1e-6
                rows[NAMES[row["gpu"]], DTYPES[row["dtype"]]].append((product, seconds))
    return rows


def error(gpu: Gpu, dtype: str, row: tuple[Matmul, float], constants: Constants) -> float:
    """Return the logarithm of predicted over measured."""
    product, seconds = row
    return log(gemm_seconds(product, DTYPE_BYTES[dtype], priced(gpu, dtype, constants)) / seconds)


def priced(gpu: Gpu, dtype: str, constants: Constants) -> GpuPrice:
    """Return a GPU that runs nothing but this matmul."""
    price = gpu_price(gpu, dtype)
    return replace(
        price,
        flop_per_second=price.peak_flop_per_second * constants["efficiency"],
        matmul_depth=constants["depth"],
        matmul_start_seconds=constants["start"],
        bytes_per_second=MEMORY * gpu.hbm_bytes_per_second.value,
    )


def fit(
    gpu: Gpu, dtype: str, rows: Timed, constants: Constants, free: tuple[str, ...]
) -> Constants:
    """Fit by least absolute errors: one constant after the other, squares weighted by 1/error."""
    constants = dict(constants)
    for _ in range(ROUNDS):
        for name in free:
            more = constants | {name: constants[name] * (1 + NUDGE)}
            top = bottom = 0.0
            for row in rows:
                now = error(gpu, dtype, row, constants)
                slope = (error(gpu, dtype, row, more) - now) / log(1 + NUDGE)
                weight = slope / max(abs(now), SMALL)
                top, bottom = top - weight * now, bottom + weight * slope
            moved = constants[name] * exp(top / bottom) if bottom else constants[name]
            constants[name] = min(max(moved, LEAST[name]), MOST[name])
    return constants


def write(gpu_id: str, dtype: str, constants: Constants) -> None:
    """Set the values of a profile."""
    values = {
        "matmul_efficiency": f"{constants['efficiency']:.3f}",
        "matmul_depth_elements": f"{constants['depth']:.0f}",
        "matmul_start_seconds": f"{constants['start']:.1e}",
    }
    if dtype != "bf16":
        values = {f"matmul_efficiency_by_dtype.{dtype}": values["matmul_efficiency"]}
    rewrite(gpu_id, values)


if __name__ == "__main__":
    main()
