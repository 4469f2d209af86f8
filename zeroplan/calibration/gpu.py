"""A GPU's constants from records of runs: matmuls, memory bandwidth, steps, reserved memory."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from statistics import median
from typing import Any, Final

from zeroplan.calibration.products import LONE_STREAM, Product, Rates, fit_products, log_error
from zeroplan.calibration.replayed import Replayed
from zeroplan.compute.gemm import gemm_seconds
from zeroplan.calibration.products import priced_alone
from zeroplan.hardware import Gpu, Quantity
from zeroplan.hardware.quantity import unit_of
from zeroplan.records import dataclass, replace
from zeroplan.units import MIB

__all__ = ["GpuConstant", "GpuFit", "Stream", "fitted_gpu"]
