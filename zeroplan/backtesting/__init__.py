"""Predictions against tables of measurements."""

from zeroplan.backtesting.collectives import backtest_collectives
from zeroplan.backtesting.record import Backtest
from zeroplan.backtesting.runs import backtest
from zeroplan.backtesting.training_log import LogBacktest, backtest_log

__all__ = ["Backtest", "LogBacktest", "backtest", "backtest_collectives", "backtest_log"]
