"""The ZeRO paper's own figures, by the paper's own accounting."""

import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from zeroplan.sharding.accounting import paper_state_bytes, paper_volume
from zeroplan.sharding.strategies import STRATEGIES
from zeroplan.spec.run import Strategy
from zeroplan.units import GB

PAPER = tomllib.loads(Path(__file__).with_name("zero_paper.toml").read_text(), parse_float=Decimal)
CELLS = [
    (int(ranks), parameters, strategy, printed)
    for ranks, *row in PAPER["table_1"]
    for (parameters, strategy), printed in zip(
        ((p, s) for p in PAPER["models"] for s in PAPER["strategies"]), row, strict=True
    )
]

pytestmark = pytest.mark.published


@pytest.mark.parametrize(("ranks", "parameters", "strategy", "printed"), CELLS)
def test_table_1(
    ranks: int, parameters: Decimal, strategy: Strategy, printed: Decimal | int
) -> None:
    _is_printed_as(Decimal(printed), parameters, strategy, ranks)


@pytest.mark.parametrize(("strategy", "printed"), PAPER["figure_1"].items())
def test_figure_1(strategy: Strategy, printed: Decimal | int) -> None:
    _is_printed_as(Decimal(printed), Decimal("7.5e9"), strategy, 64)


@pytest.mark.parametrize(
    ("strategy", "times"), [("ddp", 2), ("zero1", 2), ("zero2", 2), ("zero3", 3)]
)
def test_volume_is_two_or_three_times_the_parameters(strategy: Strategy, times: int) -> None:
    """Section 7: stages 1 and 2 send what plain data parallelism does, stage 3 half as much more."""
    assert paper_volume(STRATEGIES[strategy], 7_500_000_000) == times * 7_500_000_000


def _is_printed_as(printed: Decimal, parameters: Decimal, strategy: Strategy, ranks: int) -> None:
    """Whether rounding or cutting to the printed digits gives what stands there."""
    state = paper_state_bytes(STRATEGIES[strategy], float(parameters), ranks) / GB
    digit = 10.0 ** int(printed.as_tuple().exponent)
    assert abs(state - float(printed)) < digit
