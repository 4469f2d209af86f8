"""One training step written down as events, a file per framework."""

from zeroplan.schedule.copies import with_average
from zeroplan.schedule.ddp import ddp_script
from zeroplan.schedule.deepspeed import deepspeed_script
from zeroplan.schedule.events import Script
from zeroplan.schedule.fsdp1 import fsdp1_script
from zeroplan.schedule.fsdp2 import fsdp2_script
from zeroplan.schedule.plan import Plan
from zeroplan.schedule.torch_zero1 import torch_zero1_script

__all__ = ["script"]

_WRITERS = {
    "single": ddp_script,
    "ddp": ddp_script,
    "torch-zero1": torch_zero1_script,
    "deepspeed": deepspeed_script,
    "fsdp1": fsdp1_script,
    "fsdp2": fsdp2_script,
}


def script(plan: Plan) -> Script:
    """Write one steady-state step of a plan down."""
    return with_average(_WRITERS[plan.row.framework](plan), plan)
