"""Predictions against tables of measurements."""

from zeroplan.backtesting.collectives import backtest_collectives
from zeroplan.backtesting.record import Backtest
from zeroplan.backtesting.runs import backtest

__all__ = ["Backtest", "backtest", "backtest_collectives"]
