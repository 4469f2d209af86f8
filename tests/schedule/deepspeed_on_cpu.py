"""Run real DeepSpeed steps on CPU ranks and print what rank 0 sends and holds, as JSON.

Read cases from stdin. A storage counts from the operation that first returns it until Python drops
it, rounded up to 512 bytes as on CUDA. Two things that CPU does otherwise are left out: what gloo
copies inside a collective, and what the fused RMSNorm kernel of CUDA does in registers.
"""

import gc
import json
import logging
import os
import sys
import weakref

os.environ |= {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "DEEPSPEED_LOG_LEVEL": "error"}

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "broadcast",
    "reduce",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
)
STEPS = 4
"""The third micro-step is the first in ZeRO-3's steady state."""


class Ledger(TorchDispatchMode):
    """Live bytes and collectives, by phase."""

    def __init__(self):
        super().__init__()
        self.sizes, self.guards, self.hidden = {}, {}, 0
        self.live, self.phase, self.peaks, self.calls = 0, "start", {}, {}
        self.resize = torch.UntypedStorage.resize_

    def enter(self, phase):
        self.phase = phase
        self._mark()

    def reset(self):
        gc.collect()
        self.peaks, self.calls = {}, {}

    def track(self, tensor):
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, -(-storage.nbytes() // 512) * 512
        known = self.sizes.get(key)
        self.sizes[key] = size
        self.live += size - (known or 0)
        if known is None:
            self.guards[key] = weakref.ref(storage, lambda _, key=key: self._drop(key))
        self._mark()

    def _drop(self, key):
        self.live -= self.sizes.pop(key)
        del self.guards[key]

    def _mark(self):
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), self.live)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.namespace == "c10d" and "barrier" not in func._opname:
            self._call(func._opname, args)
        if not self.hidden:
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    self.track(leaf)
        return out

    def _call(self, name, args):
        sizes = [t.nbytes for t in tree_leaves(args) if isinstance(t, torch.Tensor)]
        kept, sent = (sizes[0], sizes[1]) if "base" in name else (sum(sizes), sum(sizes))
        key = f"{self.phase.rstrip('0123456789')} {name}"
        count, before, after = self.calls.get(key, (0, 0, 0))
        self.calls[key] = (count + 1, before + sent, after + kept)


LEDGER = Ledger()


def hide(call):
    def hidden(*args, **kwargs):
        LEDGER.hidden += 1
        try:
            return call(*args, **kwargs)
        finally:
            LEDGER.hidden -= 1

    return hidden


class Done:
    def wait(self):
        return True

    def is_completed(self):
        return True


def isolate(call):
    """Let a collective work on copies: gloo's threads hold on to its tensors for a while."""

    @hide
    def isolated(*args, async_op=False, **kwargs):
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        args, kwargs = tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
        copies = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        call(*args, **kwargs)
        tensors[0].copy_(copies[0])
        return Done() if async_op else None

    return isolated


class FusedNorm(torch.autograd.Function):
    """RMSNorm that allocates what CUDA's kernel does: its output and one fp32 value a row."""

    @staticmethod
    def forward(ctx, x, weight):
        out, rstd = hide(FusedNorm.compute)(x, weight)
        LEDGER.track(out)
        LEDGER.track(rstd)
        ctx.save_for_backward(x, weight, rstd)
        return out

    @staticmethod
    def compute(x, weight):
        rstd = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.float() * rstd * weight.float()).to(x.dtype), rstd

    @staticmethod
    def backward(ctx, grad):
        grads = hide(FusedNorm.gradients)(grad, *ctx.saved_tensors)
        for tensor in grads:
            LEDGER.track(tensor)
        return grads

    @staticmethod
    def gradients(grad, x, weight, rstd):
        normed, wide = x.float() * rstd, grad.float()
        weight_grad = (wide * normed).flatten(0, -2).sum(0).to(weight.dtype)
        scaled = wide * weight.float()
        x_grad = rstd * (scaled - normed * (scaled * normed).mean(-1, keepdim=True))
        return x_grad.to(x.dtype), weight_grad


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return FusedNorm.apply(x, self.weight)


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads):
        super().__init__()
        self.head_dim = hidden // heads
        self.q, self.k, self.v = (
            nn.Linear(hidden, n * self.head_dim, bias=False) for n in (heads, kv_heads, kv_heads)
        )
        self.o = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, angles):
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)) for p in (self.q, self.k, self.v))
        q, k = rotate(q, angles), rotate(k, angles)
        heads = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(
            *heads, is_causal=True, enable_gqa=q.shape != k.shape
        )
        return self.o(out.transpose(1, 2).flatten(2))


def rotate(x, angles):
    wide = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(wide * angles[None, :, None]).flatten(3).type_as(x)


class Mlp(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate, self.up = (nn.Linear(hidden, width, bias=False) for _ in range(2))
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, width):
        super().__init__()
        self.norm1, self.attention = Norm(hidden), Attention(hidden, heads, kv_heads)
        self.norm2, self.mlp = Norm(hidden), Mlp(hidden, width)

    def forward(self, x, angles):
        x = x + self.attention(self.norm1(x), angles)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, vocabulary, hidden, layers, heads, kv_heads, width, tokens, reentrant):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        blocks = (Block(hidden, heads, kv_heads, width) for _ in range(layers))
        self.layers = nn.ModuleList(blocks)
        self.norm, self.head = Norm(hidden), nn.Linear(hidden, vocabulary, bias=False)
        angles = torch.polar(torch.ones(tokens, hidden // heads // 2), torch.rand(()))
        self.register_buffer("angles", angles, persistent=False)
        self.reentrant = reentrant

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            if self.reentrant is None:
                x = layer(x, self.angles)
            else:
                x = checkpoint(layer, x, self.angles, use_reentrant=self.reentrant)
        return self.head(self.norm(x))


def run(case, deepspeed):
    shape, gas = case["shape"], case.get("gas", 1)
    config = {
        "train_micro_batch_size_per_gpu": case["sequences"],
        "gradient_accumulation_steps": gas,
        "gradient_clipping": case.get("clip", 0.0),
        "steps_per_print": 10**9,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": case["zero"],
        **case.get("config", {}),
    }
    if case["dtype"] != "fp32":
        config[case["dtype"]] = {"enabled": True}
    torch.manual_seed(0)
    before = LEDGER.live
    with LEDGER:
        model = Llama(**shape, reentrant=case.get("reentrant"))
        optimizer = torch.optim.AdamW(model.parameters(), **case["optimizer"])
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        del optimizer, model
        tokens = torch.randint(0, shape["vocabulary"], (case["sequences"], shape["tokens"]))
        for _ in range(STEPS):
            LEDGER.reset()
            start = LEDGER.live
            for _ in range(gas):
                LEDGER.enter("forward")
                logits = engine(tokens)
                loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
                del logits
                LEDGER.enter("backward")
                engine.backward(loss)
                del loss
                LEDGER.enter("optimizer")
                engine.step()
    engine.destroy()
    peaks = {phase: peak - start for phase, peak in LEDGER.peaks.items()}
    return {"resident": start - before, "peaks": peaks, "calls": LEDGER.calls}


def main():
    for name in COLLECTIVES:
        if hasattr(dist, name):
            setattr(dist, name, isolate(getattr(dist, name)))
    import deepspeed

    deepspeed.utils.logger.setLevel(logging.ERROR)
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for case in json.loads(os.environ["CASES"]):
        result = run(case, deepspeed)
        if dist.get_rank() == 0:
            sys.stdout.write("\nRESULT " + json.dumps(result) + "\n")
            sys.stdout.flush()
        gc.collect()
        dist.barrier()


if __name__ == "__main__":
    main()
