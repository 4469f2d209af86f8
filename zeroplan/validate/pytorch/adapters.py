"""Adapters beside layers, packed weights and frozen parameters, put into a model on the meta device.

The modules do what those of peft and bitsandbytes do to memory; values are nobody's concern here.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from zeroplan.schedule.plan import Plan
from zeroplan.spec.tuning import TuningChoice
from zeroplan.validate.pytorch.environment import DTYPES
from zeroplan.validate.pytorch.kernels import PackedProduct
from zeroplan.validate.pytorch.layers import Linear, dropped
from zeroplan.validate.pytorch.subject import Subject
from zeroplan.workload.adapters import constant_sizes
from zeroplan.workload.tuning import Tuning

__all__ = ["constants", "tune"]


class Adapted(nn.Module):
    """A layer and its adapter, by the arithmetic of `Linear` and `Linear4bit` in peft/tuners/lora."""

    def __init__(self, layer: nn.Module, tuning: Tuning, dtype: torch.dtype) -> None:
        super().__init__()
        self.base_layer = layer
        into, width = _extents(layer)
        self.lora_A = _linear(width, tuning.rank, dtype)
        self.lora_B = _linear(tuning.rank, into, dtype)
        self.tuning = tuning

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the adapter's output to the layer's."""
        result = self.base_layer(x)
        dtype = result.dtype
        quantized = self.tuning.quantization != "none"
        if self.tuning.quantization == "nf4":
            result = result.clone()
        if not (quantized and torch.is_autocast_enabled(x.device.type)):
            x = x.to(self.lora_A.weight.dtype)
        result = result + (self._adapter(x).to(dtype) if quantized else self._adapter(x))
        return result.to(dtype)

    def _adapter(self, x: torch.Tensor) -> torch.Tensor:
        return self.lora_B(self.lora_A(dropped(x) if self.tuning.dropout else x)) * 2.0


class Packed(nn.Module):
    """A linear layer with 4-bit weights."""

    def __init__(self, layer: nn.Module, plan: Plan, tuning: Tuning) -> None:
        super().__init__()
        self.extents, self.double = _extents(layer), tuning.double
        storage = (
            DTYPES[plan.training.compute_dtype] if tuning.storage_itemsize > 1 else torch.uint8
        )
        elements = self.extents[0] * self.extents[1]
        packed = torch.empty(-(-elements // 2 // storage.itemsize), 1, dtype=storage)
        self.weight = nn.Parameter(packed, requires_grad=False)
        self.bias = layer.bias
        self.constants: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by the whole weight, made for the moment."""
        return PackedProduct.apply(x, self.weight, self.extents, 64 if self.double else 0)


def tune(subject: Subject, plan: Plan, choice: TuningChoice) -> None:
    """Put adapters in, pack weights, freeze the rest and store it as the plan does."""
    tuning = plan.workload.batch.tuning
    if tuning is None:
        return
    frozen = _frozen_dtype(plan, choice)
    trained = set(_trained(subject, tuning))
    for parameter in subject.module.parameters():
        if parameter not in trained:
            parameter.requires_grad_(requires_grad=False)
            parameter.data = parameter.data.to(frozen)
    if tuning.input_requires_grad:
        subject.embeddings[-1].register_forward_hook(_ask_for_gradient)
    for block in subject.every_block:
        for parent, name, layer in list(_linear_layers(block)):
            weight_is_trained = layer.weight in trained
            adapts = tuning.rank and _targeted(parent, name, tuning)
            packs = tuning.quantization == "nf4" and not weight_is_trained
            inner = Packed(layer, plan, tuning) if packs else layer
            dtype = DTYPES[plan.training.parameter_dtype]
            setattr(parent, name, Adapted(inner, tuning, dtype) if adapts else inner)


def constants(module: nn.Module) -> list[torch.Tensor]:
    """Make the scales and tables of packed layers, which are no parameters of the module."""
    found: list[torch.Tensor] = []
    for part in module.modules():
        if isinstance(part, Packed):
            into, width = part.extents
            sizes = constant_sizes(into * width, double=part.double)
            part.constants = [torch.empty(size, dtype=torch.uint8) for size in sizes]
            found += part.constants
    return found


def _ask_for_gradient(_: nn.Module, __: object, output: torch.Tensor) -> None:
    output.requires_grad_(requires_grad=True)


def _frozen_dtype(plan: Plan, choice: TuningChoice) -> torch.dtype:
    flattened = plan.row.framework == "fsdp1" and plan.choice.use_orig_params
    loaded = choice.lora_rank and not flattened
    auto = plan.training.compute_dtype if loaded else plan.training.parameter_dtype
    return DTYPES[choice.frozen_dtype or auto]


def _trained(subject: Subject, tuning: Tuning) -> Iterator[nn.Parameter]:
    """Yield the parameters of the parts that are trained beside adapters."""
    norm, head = subject.tail
    parts: dict[str, list[nn.Module]] = {
        "embedding": list(subject.embeddings),
        "blocks": list(subject.every_block),
        "norm": [norm],
        "head": [head],
    }
    for part in tuning.trained:
        last = part.removeprefix("last-")
        modules = parts.get(part, [])
        if last != part:
            modules = list(subject.every_block)[-int(last) :]
        for module in modules:
            yield from module.parameters()


def _linear_layers(block: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    for parent in block.modules():
        for name, child in parent.named_children():
            if isinstance(child, (Linear, nn.Linear)):
                yield parent, name, child


def _targeted(parent: nn.Module, name: str, tuning: Tuning) -> bool:
    kind = type(parent).__name__.lower()
    words = {"all-linear", name} | {word for word in ("attention", "mlp") if word in kind}
    return not words.isdisjoint(tuning.targets)


def _extents(layer: Any) -> tuple[int, int]:
    """Return a layer's output and input width."""
    if isinstance(layer, Packed):
        return layer.extents
    rows, columns = layer.weight.shape
    return (columns, rows) if getattr(layer, "transposed", False) else (rows, columns)


def _linear(width: int, into: int, dtype: torch.dtype) -> nn.Linear:
    return nn.Linear(width, into, bias=False, dtype=dtype, device="meta")
