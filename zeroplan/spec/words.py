"""The words and ranges that keys can have."""

from typing import Annotated, Final, Literal, NamedTuple

from zeroplan.units import GIGA

__all__ = [
    "WITHOUT_LOGITS",
    "AllReduce",
    "Attention",
    "Average",
    "Backend",
    "BackwardPrefetch",
    "Bytes",
    "Checkpointing",
    "Count",
    "Depth",
    "Dtype",
    "Elements",
    "Experts",
    "Factor",
    "Float8",
    "Loss",
    "Norm",
    "NormLimit",
    "Optimizer",
    "OptimizerImplementation",
    "Oversubscription",
    "Pattern",
    "Precision",
    "Range",
    "RootWrap",
    "Rope",
    "StateBytes",
    "StoredDtype",
    "Strategy",
    "Synchronize",
    "Tokens",
    "Version",
]


class Range(NamedTuple):
    """The numbers that a key can have, both ends included."""

    low: float
    high: float


class Pattern(NamedTuple):
    """The text that a key can have: a regular expression, and the same in words."""

    regex: str
    words: str


Attention = Literal["flash", "flash-expanded-kv", "math"]
Norm = Literal["fused", "eager"]
Rope = Literal["half", "complex"]
Loss = Literal["fp32-logits", "model-dtype-logits", "compiled", "chunked", "fused-linear"]
WITHOUT_LOGITS: Final[tuple[Loss, ...]] = ("chunked", "fused-linear")
"""Losses that never have all logits at once."""
Experts = Literal["grouped", "loop"]
Dtype = Literal["fp32", "tf32", "bf16", "fp16"]
Precision = Literal[
    "fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16", "fp16", "bf16-master", "fp16-master"
]
StoredDtype = Literal["fp32", "bf16", "fp16"]
Optimizer = Literal[
    "adamw",
    "adam",
    "sgd",
    "sgd-momentum",
    "lion",
    "adafactor",
    "adamw-8bit",
    "adamw-4bit",
    "paged-adamw",
    "paged-adamw-8bit",
    "muon",
    "none",
]
Average = Literal["none", "fp32", "bf16"]
Float8 = Literal["none", "tensorwise", "rowwise"]
OptimizerImplementation = Literal["foreach", "fused", "for-loop"]
Strategy = Literal[
    "none",
    "ddp",
    "zero0",
    "zero1",
    "zero2",
    "zero3",
    "fsdp1",
    "fsdp2",
    "hsdp",
    "torch-zero1",
]
AllReduce = Literal["every", "last"]
Synchronize = Literal["every", "last"]
RootWrap = Literal["together", "separate"]
BackwardPrefetch = Literal["pre", "post", "none"]
Offload = Literal["none", "cpu", "nvme"]
Loading = Literal["every-rank", "rank0", "sharded"]
Backend = Literal["nccl", "gloo"]

Count = Annotated[int, Range(1, 10**6)]
Depth = Annotated[int, Range(0, 10**6)]
Tokens = Annotated[int, Range(1, 10**8)]
Elements = Annotated[int, Range(0, 10**15)]
Bytes = Annotated[int, Range(1, 2**40)]
HostBytes = Annotated[int, Range(1, 2**50)]
Share = Annotated[float, Range(0, 1)]
StateBytes = Annotated[float, Range(0, 64)]
Factor = Annotated[float, Range(1, 10**6)]
NormLimit = Annotated[float, Range(0, GIGA)]
Oversubscription = Annotated[float, Range(1, 1000)]
Version = Annotated[str, Pattern("[0-9]{1,3}([.][0-9]{1,3}){2}", "a version such as 0.19.8")]
Checkpointing = Annotated[
    str, Pattern("none|full|selective|every-[1-9][0-9]{0,5}", "none, full, selective or every-K")
]
