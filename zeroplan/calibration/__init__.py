"""Measurements in, a new hardware profile out."""

from zeroplan.calibration.collectives import Choice, calibrate_collectives
from zeroplan.calibration.record import Calibration

__all__ = ["Calibration", "Choice", "calibrate_collectives"]
