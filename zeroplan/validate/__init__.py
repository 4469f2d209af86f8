"""Running a real training step and laying it beside the prediction."""

from zeroplan.validate.answer import recorded, validate
from zeroplan.validate.comparing import compare
from zeroplan.validate.reading import read_record

__all__ = ["compare", "read_record", "recorded", "validate"]
