"""Measurements in, a new hardware profile out."""

from zeroplan.calibration.collectives import Choice, calibrate_collectives
from zeroplan.calibration.node import NodeProfile, Told, describe_node
from zeroplan.calibration.record import Calibration

__all__ = [
    "Calibration",
    "Choice",
    "NodeProfile",
    "Told",
    "calibrate_collectives",
    "describe_node",
]
