"""Searching: every combination of many values, priced by arrays, and the best of them."""

from zeroplan.search.plan import plan
from zeroplan.search.sweep import sweep

__all__ = ["plan", "sweep"]
