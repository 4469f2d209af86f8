"""Running a real training step and laying it beside the prediction."""

from zeroplan.validate.answer import validate

__all__ = ["validate"]
