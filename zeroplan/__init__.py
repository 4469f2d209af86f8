"""zeroplan: memory, communication and step time of a training set-up, before renting GPUs."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zeroplan.backtesting import Backtest, backtest, backtest_log
    from zeroplan.estimation import estimate
    from zeroplan.estimation.explain import explain
    from zeroplan.estimation.record import Estimate, StrategyEstimate
    from zeroplan.search.plan import plan
    from zeroplan.search.record import Search
    from zeroplan.search.sweep import sweep
    from zeroplan.spec.run import Run
    from zeroplan.spec.toml import load_spec
    from zeroplan.workload.load import load_model

__all__ = [
    "Backtest",
    "Estimate",
    "Run",
    "Search",
    "StrategyEstimate",
    "backtest",
    "backtest_log",
    "estimate",
    "explain",
    "load_model",
    "load_spec",
    "plan",
    "sweep",
]

__version__ = "0.1.0"

_HOME: Final = {
    "Backtest": "zeroplan.backtesting:Backtest",
    "Estimate": "zeroplan.estimation.record:Estimate",
    "Run": "zeroplan.spec.run:Run",
    "Search": "zeroplan.search.record:Search",
    "StrategyEstimate": "zeroplan.estimation.record:StrategyEstimate",
    "backtest": "zeroplan.backtesting:backtest",
    "backtest_log": "zeroplan.backtesting:backtest_log",
    "estimate": "zeroplan.estimation:estimate",
    "explain": "zeroplan.estimation.explain:explain",
    "load_model": "zeroplan.workload.load:load_model",
    "load_spec": "zeroplan.spec.toml:load_spec",
    "plan": "zeroplan.search.plan:plan",
    "sweep": "zeroplan.search.sweep:sweep",
}
"""Where each public name lives; it is imported when it is first used."""


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'zeroplan' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
