"""What one more estimate costs, as a share of an import of typer and pydantic; the bar is 2 %.

    python benchmarks/warm_estimate.py [ROUNDS]

A model of 80 blocks, one strategy at a time, in a process that has answered the question before:
the same question again, one with another link, which prices the kept step again, and one of another
length, whose step is written down first. The bar is for the first of the three, ten imports for the
last. All are timed in turn, so that a busy machine slows all; only ratios mean something.
"""

import sys
import time
from itertools import count, cycle
from statistics import median

from processes import FRAMEWORKS, seconds

from zeroplan import estimate
from zeroplan.estimation.steps import timed
from zeroplan.sharding.strategies import COMPARED

BAR = 0.02
LINKS = cycle(("roce-200", "roce-400", "ib-hdr200", "ib-xdr800"))
LENGTHS = count(1024, 8)


def warm(strategy: str, **changed: object) -> float:
    """Time of one estimate. [s]"""
    asked: dict[str, object] = {"model": "llama-3.1-70b", "gpus": 64, "link": "ib"}
    start = time.perf_counter()
    estimate(strategy=strategy, **{**asked, **changed})  # type: ignore[arg-type]
    return time.perf_counter() - start


rounds = int(sys.argv[1]) if sys.argv[1:] else 15
seconds(FRAMEWORKS)
for strategy in COMPARED:
    warm(strategy)
yardsticks: list[float] = []
times: dict[str, list[tuple[float, float, float]]] = {strategy: [] for strategy in COMPARED}
for _ in range(rounds):
    yardsticks.append(seconds(FRAMEWORKS))
    for strategy in COMPARED:
        timed.cache_clear()
        priced = warm(strategy, link=next(LINKS))
        first = warm(strategy, sequence_length=next(LENGTHS))
        warm(strategy)
        times[strategy].append((warm(strategy), priced, first))

yardstick = median(yardsticks)
print(f"{FRAMEWORKS}: {1e3 * yardstick:.0f} ms, median of {rounds}")
print(f"{'':6} {'again':>18} {'another link':>18} {'another length':>18}")
worst = 0.0
for strategy, taken in times.items():
    again, priced, first = (median(each) for each in zip(*taken, strict=True))
    shown = (f"{1e3 * each:6.2f} ms {each / yardstick:8.2%}" for each in (again, priced, first))
    print(f"{strategy:6} " + " ".join(f"{text:>18}" for text in shown))
    worst = max(worst, again / yardstick, first / yardstick * BAR / 10)
sys.exit(worst > BAR)
