"""A running average of the parameters, held and sharded as they are.

Source: `get_ema_multi_avg_fn` in torch/optim/swa_utils.py (2.13), which averages in place.
"""

from typing import Final

from zeroplan.records import replace
from zeroplan.schedule.events import Event, Script
from zeroplan.schedule.plan import REFERENCE, Plan
from zeroplan.units import DTYPE_BYTES
from zeroplan.workload.changes import Change

__all__ = ["COPIES", "with_average"]

AVERAGE: Final = "EMA copy"
COPIES: Final = (AVERAGE, REFERENCE)
"""Owners of copies of the model's parameters."""


def with_average(script: Script, plan: Plan) -> Script:
    """Add the average to what lives throughout, and its update to the end of the step."""
    asked = plan.training.ema
    if asked == "none":
        return script
    held = sum(
        each.bytes
        for each in script.resident
        if each.category == "parameters" and each.owner != REFERENCE
    )
    size = held // plan.dtypes.parameter * DTYPE_BYTES[asked]
    update = Event(
        name="average parameters",
        phase="optimizer",
        stream="compute",
        owner="optimizer",
        traffic_bytes=held + 2 * size,
    )
    resident = (*script.resident, Change("parameters", AVERAGE, size))
    return replace(script, resident=resident, items=(*script.items, update))
