"""From a question to an answer."""

from zeroplan.estimation.answer import estimate

__all__ = ["estimate"]
