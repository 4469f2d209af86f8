"""Measurements in, a new hardware profile out."""

from zeroplan.calibration.collectives import Choice, calibrate_collectives
from zeroplan.calibration.node import NodeProfile, Told, describe_node
from zeroplan.calibration.record import Calibration
from zeroplan.calibration.records import calibrate_records
from zeroplan.calibration.records_answer import RecordsCalibration

__all__ = [
    "Calibration",
    "Choice",
    "NodeProfile",
    "RecordsCalibration",
    "Told",
    "calibrate_collectives",
    "calibrate_records",
    "describe_node",
]
