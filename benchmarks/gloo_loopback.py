"""Time gloo's collectives between processes of this machine.

    python benchmarks/gloo_loopback.py TABLE.csv
    zeroplan calibrate --collectives TABLE.csv --link loopback --output DIR/links/NAME.toml

The shipped profile `loopback` is what the second line makes of benchmarks/gloo_loopback.csv.
"""

import sys
import tempfile
from pathlib import Path

from gloo_jobs import rows, run_ranks, write_table

RANKS = (2, 3, 4)
SIZES = [3 * 2**n for n in range(16, 25, 2)]
"""Three and four ranks divide them. [B]"""
TASK = {"interface": "lo", "jobs": {}, "sizes": SIZES, "times": 5, "rounds": 2}
LIMIT_SECONDS = 300


def main() -> None:
    (path,) = sys.argv[1:]
    lines = []
    for ranks in RANKS:
        with tempfile.TemporaryDirectory(prefix="zeroplan-") as folder:
            task = {**TASK, "limit_seconds": LIMIT_SECONDS}
            found = run_ranks([[]] * ranks, task, Path(folder))
        shape = {"fabric": "loopback", "n_gpus": ranks, "n_nodes": 1, "gpus_per_node": ranks}
        source = f"benchmarks/gloo_loopback.py#{ranks}"
        lines += rows(found[0], "loopback", source, intra_link="loopback", **shape)
        print(f"{ranks} processes: {len(found[0][0]['collectives'])} collectives")
    write_table(Path(path), lines)


if __name__ == "__main__":
    main()
