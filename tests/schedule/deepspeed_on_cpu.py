"""Run real DeepSpeed steps on CPU ranks and print what one of them sends and holds, as JSON.

The environment brings the cases (as in deepspeed_measured.json) and the rank. A storage counts
from the operation that first returns it until Python drops it, rounded up to 512 bytes as on CUDA.
Two things that CPU does otherwise are left out: what gloo copies inside a collective, and what the
fused RMSNorm kernel of CUDA does in registers. ZeRO++'s kernels, which exist for CUDA alone, are
stood in for by ones that allocate the same.
"""

import gc
import importlib
import json
import logging
import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_to_all_single",
    "broadcast",
    "reduce",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
)
NAMES = {
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "allreduce_": "all_reduce",
    "alltoall_base_": "all_to_all",
    "reduce_": "reduce",
    "broadcast_": "broadcast",
}
STEPS = 4
"""The third micro-step is the first in ZeRO-3's steady state."""


class Ledger(TorchDispatchMode):
    """Live bytes and collectives, by phase."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.guards: dict[int, object] = {}
        self.peaks: dict[str, int] = {}
        self.calls: dict[str, tuple[int, int, int]] = {}
        self.live, self.hidden, self.phase = 0, 0, "start"
        self.sides: Any = None
        """Host and GPU (deepspeed_two_sides.py), where a case offloads."""

    def enter(self, phase: str) -> None:
        self.phase = phase
        self._mark()

    def reset(self) -> None:
        gc.collect()
        self.peaks, self.calls = {}, {}

    def known(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.sizes

    def track(self, tensor: torch.Tensor, *, on_host: bool = False) -> None:
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), -(-storage.nbytes() // 512) * 512 * (not on_host)
        if key and key not in self.sizes:
            self.sizes[key] = size
            self.live += size
            self.guards[key] = weakref.ref(storage, partial(self._drop, key))
            self._mark()

    def _drop(self, key: int, _: object) -> None:
        self.live -= self.sizes.pop(key)
        if self.sides is not None:
            self.sides.bytes.pop(key, None)
        del self.guards[key]

    def _mark(self) -> None:
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), self.live)

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.namespace == "c10d" and name in NAMES:
            self._call(name, args)
        if not self.hidden:
            self._enter(tree_leaves(out), args, kwargs or {})
        return out

    def _enter(self, leaves: list[Any], args: Any, kwargs: Any) -> None:
        on_host = self.sides is not None and self.sides.runs_on_host(args, kwargs)
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                if self.sides is not None and on_host and not self.known(leaf):
                    self.sides.send(leaf)
                else:
                    self.track(leaf)

    def _call(self, name: str, args: tuple[Any, ...]) -> None:
        sizes = [t.nbytes for t in tree_leaves(args) if isinstance(t, torch.Tensor)]
        kept, sent = (sizes[0], sizes[1]) if "base" in name else (sum(sizes), sum(sizes))
        key = f"{self.phase} {NAMES[name]}"
        count, before, after = self.calls.get(key, (0, 0, 0))
        self.calls[key] = (count + 1, before + sent, after + kept)


LEDGER = Ledger()


def hide(call: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out what a call allocates."""

    def hidden(*args: Any, **kwargs: Any) -> Any:
        LEDGER.hidden += 1
        try:
            return call(*args, **kwargs)
        finally:
            LEDGER.hidden -= 1

    return hidden


class Done:
    """A collective that has ended; as NCCL's, it holds its tensors until it is waited for."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors

    def wait(self) -> bool:
        self.tensors = []
        return True


def isolate(call: Callable[..., Any]) -> Callable[..., Any]:
    """Let a collective work on copies: gloo's threads hold on to its tensors for a while."""

    @hide
    def isolated(*args: Any, async_op: bool = False, **kwargs: Any) -> Done | None:
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        args, kwargs = tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
        copies = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        call(*args, **kwargs)
        tensors[0].copy_(copies[0])
        return Done(tensors) if async_op else None

    return isolated


class Quantizer:
    """ZeRO++'s kernels (csrc/quantization/pt_binding.cpp): what they return, with zeros in it."""

    Symmetric = 0

    def load(self) -> "Quantizer":
        return self

    @staticmethod
    def new(size: int, dtype: torch.dtype) -> torch.Tensor:
        tensor: torch.Tensor = hide(torch.zeros)(size, dtype=dtype)
        LEDGER.track(tensor)
        return tensor

    def quantize(self, x: torch.Tensor, groups: int, *_: object) -> tuple[torch.Tensor, ...]:
        scales = self.new(groups, torch.float32)
        return self.new(x.numel(), torch.int8), scales

    def dequantize(self, x: torch.Tensor, *given: Any) -> torch.Tensor:
        _, _, bits, _ = given
        wide = self.new(x.numel() * 8 // bits, torch.float16)
        return wide.view(x.shape) if bits == 8 else wide

    def swizzle_quant(
        self, x: torch.Tensor, groups: int, bits: int, *_: object
    ) -> tuple[torch.Tensor, ...]:
        scales = self.new(groups, torch.float32)
        return self.new(x.numel() * bits // 8, torch.int8), scales

    def quantized_reduction(self, x: torch.Tensor, *given: Any) -> tuple[torch.Tensor, ...]:
        _, _, groups, _, _, devices = given
        scales = self.new(groups, torch.float32)
        return self.new(x.numel() // devices, torch.int8), scales


class FusedNorm(torch.autograd.Function):
    """RMSNorm that allocates what CUDA's kernel does: its output and one fp32 value a row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> Any:
        out, rstd = hide(FusedNorm.compute)(x, weight)
        LEDGER.track(out)
        LEDGER.track(rstd)
        ctx.save_for_backward(x, weight, rstd)
        return out

    @staticmethod
    def compute(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rstd = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.float() * rstd * weight.float()).to(x.dtype), rstd

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        grads = hide(FusedNorm.gradients)(grad, *ctx.saved_tensors)
        kept = [
            g if needed else None for g, needed in zip(grads, ctx.needs_input_grad, strict=True)
        ]
        del grads
        for tensor in kept:
            if tensor is not None:
                LEDGER.track(tensor)
        return tuple(kept)

    @staticmethod
    def gradients(
        grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        normed, wide = x.float() * rstd, grad.float()
        weight_grad = (wide * normed).flatten(0, -2).sum(0).to(weight.dtype)
        scaled = wide * weight.float()
        x_grad = rstd * (scaled - normed * (scaled * normed).mean(-1, keepdim=True))
        return x_grad.to(x.dtype), weight_grad


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = FusedNorm.apply(x, self.weight)
        return out


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head_dim = hidden // heads
        self.q, self.k, self.v = (
            nn.Linear(hidden, n * self.head_dim, bias=False) for n in (heads, kv_heads, kv_heads)
        )
        self.o = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        q, k, v = (p(x).view(*x.shape[:-1], -1, self.head_dim) for p in (self.q, self.k, self.v))
        q, k = rotate(q, angles), rotate(k, angles)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        projected: torch.Tensor = self.o(out.transpose(1, 2).flatten(2))
        return projected


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    wide = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(wide * angles[None, :, None]).flatten(3).type_as(x)


class Mlp(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(hidden, width, bias=False) for _ in range(2))
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, width: int) -> None:
        super().__init__()
        self.norm1, self.attention = Norm(hidden), Attention(hidden, heads, kv_heads)
        self.norm2, self.mlp = Norm(hidden), Mlp(hidden, width)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), angles)
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


class Llama(nn.Module):
    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__()
        shape, hidden = case["shape"], case["shape"]["hidden"]
        block = (hidden, shape["heads"], shape["kv_heads"], shape["width"])
        self.embed = nn.Embedding(shape["vocabulary"], hidden)
        self.layers = nn.ModuleList(Block(*block) for _ in range(shape["layers"]))
        self.norm, self.head = Norm(hidden), nn.Linear(hidden, shape["vocabulary"], bias=False)
        if shape.get("tied"):
            self.head.weight = self.embed.weight
        angles = torch.polar(
            torch.ones(shape["tokens"], hidden // shape["heads"] // 2), torch.ones(())
        )
        self.register_buffer("angles", angles, persistent=False)
        self.checkpointing = case["checkpointing"]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            if self.checkpointing == "none":
                x = layer(x, self.angles)
            else:
                reentrant = self.checkpointing == "reentrant"
                x = checkpoint(layer, x, self.angles, use_reentrant=reentrant)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class Adapted(nn.Module):
    """A frozen linear layer and its adapter."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base_layer = layer
        self.lora_a = nn.Linear(layer.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base = self.base_layer(x)
        out: torch.Tensor = base + self.lora_b(self.lora_a(x)) * 2.0
        return out


def adapt(model: Llama, tuning: dict[str, Any]) -> None:
    """Freeze a model, put adapters beside the linear layers of its blocks, train some parts."""
    model.requires_grad_(False)
    for layer in model.layers:
        for parent in (layer.attention, layer.mlp):
            for name, child in list(parent.named_children()):
                if tuning["rank"]:
                    setattr(parent, name, Adapted(child, tuning["rank"]))
    for part in tuning["trained"]:
        count = int(part.removeprefix("last-")) if part.startswith("last-") else 0
        for trained in list(model.layers)[-count:] if count else [getattr(model, part)]:
            trained.requires_grad_(True)
    if model.checkpointing == "reentrant":
        model.embed.register_forward_hook(lambda *call: call[-1].requires_grad_(True))


def configuration(case: dict[str, Any]) -> dict[str, Any]:
    zero = {"stage": int(case["strategy"].removeprefix("zero")), **case["deepspeed"]}
    zero |= {f"offload_{name}": value for name, value in case.get("offload", {}).items()}
    config = {
        "zero_force_ds_cpu_optimizer": False,
        "train_micro_batch_size_per_gpu": case["sequences"],
        "gradient_accumulation_steps": case["micro_steps"],
        "gradient_clipping": case["clip"],
        "steps_per_print": 10**9,
        "zero_allow_untested_optimizer": True,
        "data_types": {"grad_accum_dtype": zero.pop("grad_accum_dtype", None)},
        "communication_data_type": zero.pop("communication_data_type", None),
        "zero_optimization": zero,
    }
    scale = {"loss_scale": 1.0} if case["dtype"] == "fp16" else {}
    low = {} if case["dtype"] == "fp32" else {case["dtype"]: {"enabled": True, **scale}}
    return {**config, **low}


def measure(case: dict[str, Any], deepspeed: Any) -> dict[str, Any]:
    """Run steps; what is measured is the last one."""
    os.environ["LOCAL_SIZE"] = str(case.get("ranks_per_node", dist.get_world_size()))
    torch.manual_seed(0)
    LEDGER.phase = "start"
    before, start = LEDGER.live, 0
    on_host_before = LEDGER.sides.held() if LEDGER.sides else 0
    with LEDGER:
        model = Llama(case)
        kind = {
            "foreach": case["implementation"] == "foreach",
            "fused": case["implementation"] == "fused",
        }
        if "tuning" in case:
            adapt(model, case["tuning"])
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, **kind)
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=configuration(case)
        )
        del optimizer, model, trained
        size = (case["sequences"], case["shape"]["tokens"])
        batches = [
            torch.randint(0, case["shape"]["vocabulary"], (2, *size))
            for _ in range(case["micro_steps"])
        ]
        for _ in range(STEPS):
            LEDGER.reset()
            start = LEDGER.live
            step(engine, batches)
        held_on_host = LEDGER.sides.held() if LEDGER.sides else 0
    engine.destroy()
    deepspeed.utils.groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None  # noqa: SLF001  # of this case
    peaks = {phase: peak - before for phase, peak in LEDGER.peaks.items()}
    host = {} if LEDGER.sides is None else {"host": held_on_host - on_host_before}
    return {"resident": start - before, "peaks": peaks, "calls": LEDGER.calls, **host}


def of_rank(rank: int, measured: dict[str, Any]) -> dict[str, Any]:
    """Return another rank's peaks: ZeRO-1 and ZeRO-2 divide gradients unevenly."""
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, measured["peaks"])
    return {**measured, "peaks": ranks[rank]}


def step(engine: Any, batches: list[torch.Tensor]) -> None:
    for number, (tokens, labels) in enumerate(batches, start=1):
        LEDGER.enter("forward")
        logits = engine(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        del logits
        LEDGER.enter("backward")
        engine.backward(loss)
        del loss
        if number == len(batches):
            LEDGER.enter("optimizer")
        engine.step()


def main() -> None:
    for name in COLLECTIVES:
        if hasattr(dist, name):
            setattr(dist, name, isolate(getattr(dist, name)))
    deepspeed = importlib.import_module("deepspeed")
    deepspeed.utils.logger.setLevel(logging.ERROR)
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    deepspeed.ops.op_builder.QuantizerBuilder = Quantizer
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    cases = json.loads(os.environ["CASES"])
    if any("offload" in case for case in cases):
        sides = importlib.import_module("deepspeed_two_sides")
        LEDGER.sides = sides.tell_apart(LEDGER, deepspeed.accelerator.get_accelerator())
    for case in cases:
        measured = of_rank(case.get("rank", 0), measure(case, deepspeed))
        if dist.get_rank() == 0:
            sys.stdout.write("\nMEASURED " + json.dumps(measured) + "\n")
            sys.stdout.flush()
        gc.collect()
        dist.barrier()


if __name__ == "__main__":
    main()
