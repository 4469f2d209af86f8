"""Which dtype a file computes in, where the trainer may have the last word."""

from typing import Any

from zeroplan.foreign.draft import Asked, Draft
from zeroplan.foreign.sorting import Found

__all__ = ["COMPUTE", "read_switches"]

COMPUTE = "training.compute_dtype"


def read_switches(found: Found, draft: Draft, asked: Asked) -> None:
    """Set the compute dtype from DeepSpeed's fp16.enabled and bf16.enabled.

    "auto" is what the trainer was started with. Nothing in the file says it, so it is asked for.
    Where neither block is there, accelerate and the Trainer add the one that they were started with
    (`DeepSpeedPlugin.set_mixed_precision`, accelerate 1.15), and DeepSpeed alone trains in fp32.
    """
    on = [dtype for dtype in ("bf16", "fp16") if found.get(f"{dtype}.enabled")]
    autos = [dtype for dtype in ("bf16", "fp16") if f"{dtype}.enabled" in found.autos]
    stated = [dtype for dtype in ("bf16", "fp16") if found.says(f"{dtype}.enabled")]
    if len(on) > 1:
        raise draft.fault(
            "bf16.enabled and fp16.enabled are both true: DeepSpeed takes one of them."
        )
    known: Any = asked.value(COMPUTE)
    if on:
        draft.set(COMPUTE, on[0], f"{on[0]}.enabled = true")
    elif known is not None and (autos or not stated):
        why = f'{autos[0]}.enabled = "auto"' if autos else "neither bf16 nor fp16"
        draft.set(COMPUTE, known, f"{why}: the trainer's, which is given as {known}")
        draft.remark(f"{why}: {COMPUTE} = {known}, as it is given")
    elif autos:
        named = " and ".join(f'{dtype}.enabled = "auto"' for dtype in autos)
        draft.open[COMPUTE] = (
            f"{named}: the dtype is that of the trainer's arguments. Say it with --compute-dtype "
            f"({' or '.join((*autos, 'fp32'))}), --precision or --training-args"
        )
    else:
        draft.set(
            COMPUTE, "fp32", "neither bf16.enabled nor fp16.enabled: DeepSpeed trains in fp32"
        )
        draft.remark(
            "neither bf16.enabled nor fp16.enabled is true: DeepSpeed trains in fp32; where a "
            "trainer turns one on, say so with --compute-dtype"
        )
