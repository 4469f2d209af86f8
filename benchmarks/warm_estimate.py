"""What one more estimate costs, as a share of an import of typer and pydantic; the bar is 2 %.

    python benchmarks/warm_estimate.py [ROUNDS]

A model of 80 blocks, one strategy at a time, in a process that has answered the question before.
Both are timed in turn, so that a busy machine slows both; only their ratio means something.
"""

import sys
import time
from statistics import median

from processes import FRAMEWORKS, seconds

from zeroplan import estimate
from zeroplan.sharding.strategies import COMPARED

BAR = 0.02


def warm(strategy: str) -> float:
    """Time of one estimate. [s]"""
    start = time.perf_counter()
    estimate(model="llama-3.1-70b", gpus=64, link="ib", strategy=strategy)
    return time.perf_counter() - start


rounds = int(sys.argv[1]) if sys.argv[1:] else 15
seconds(FRAMEWORKS)
for strategy in COMPARED:
    warm(strategy)
yardsticks: list[float] = []
times: dict[str, list[float]] = {strategy: [] for strategy in COMPARED}
for _ in range(rounds):
    yardsticks.append(seconds(FRAMEWORKS))
    for strategy in COMPARED:
        times[strategy].append(warm(strategy))

yardstick = median(yardsticks)
print(f"{FRAMEWORKS}: {1e3 * yardstick:.0f} ms, median of {rounds}")
shares = {strategy: median(taken) / yardstick for strategy, taken in times.items()}
for strategy, share in shares.items():
    print(f"{strategy:6} {1e3 * share * yardstick:6.2f} ms  {share:7.2%}")
sys.exit(max(shares.values()) > BAR)
