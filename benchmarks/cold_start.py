"""How long a first `zeroplan estimate` takes, in imports of typer and pydantic; the bar is 2.

    python benchmarks/cold_start.py [ROUNDS]

Both are timed in turn, so that a busy machine slows both; only their ratio means something.
"""

import sys
from statistics import median

from processes import FRAMEWORKS, run, seconds

ESTIMATE = """
import sys
from zeroplan.cli import main
sys.argv[1:] = ["estimate", "--model", "70b", "--gpus", "64", "--link", "ib"]
try:
    main()
except SystemExit as done:
    assert not done.code
"""
HEAVY = {"matplotlib", "numpy", "pandas", "pydantic", "rich", "torch"}

rounds = int(sys.argv[1]) if sys.argv[1:] else 15
loaded = HEAVY & set(run(f"{ESTIMATE}\nprint('\\n', *sys.modules)").rpartition("\n ")[2].split())
seconds(FRAMEWORKS)  # compiles; the run above did it for zeroplan
times = [(seconds(FRAMEWORKS), seconds(ESTIMATE)) for _ in range(rounds)]
yardstick, estimate = (median(column) for column in zip(*times, strict=True))

print(f"{FRAMEWORKS}: {1e3 * yardstick:.0f} ms, median of {rounds}")
print(f"zeroplan estimate: {1e3 * estimate:.0f} ms, {estimate / yardstick:.2f} times as long")
print(f"heavy modules loaded: {', '.join(sorted(loaded)) or 'none'}")
sys.exit(bool(loaded) or estimate > 2 * yardstick)
