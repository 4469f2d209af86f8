"""What a model is, as a person reads it."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from zeroplan.report.terminal import show_table
from zeroplan.rows import Column, Table, readable
from zeroplan.units import DTYPE_BYTES
from zeroplan.workload.count import ModelCount

__all__ = ["show_model"]

GIGA: Final = 10**9


def show_model(model: ModelCount, out: Console) -> None:
    """Print blocks, exact parameter counts, bytes and FLOPs per token."""
    for line in _headlines(model):
        out.print(Text(line))
    out.print()
    show_table(_parameters(model), out)
    show_table(_flop(model), out)
    for line in model.assumptions:
        out.print(Text(f"Assumed: {line}"))


def _headlines(model: ModelCount) -> Iterator[str]:
    yield f"{model.name} ({model.architecture}), from {model.source}"
    for name, blocks, hidden in model.stacks:
        yield f"{name}: {blocks} blocks of width {hidden:,}"
    sizes = (
        f"{readable(model.total_parameters * DTYPE_BYTES[dtype], 'B')} in {dtype}"
        for dtype in ("fp32", "bf16")
    )
    yield f"Weights: {', '.join(sizes)}"


def _parameters(model: ModelCount) -> Table:
    parts = {
        "token embedding": model.embedding_parameters,
        "head" + (", tied to the embedding" if model.tied else ""): model.head_parameters,
        "norms": model.norm_parameters,
        "attention": model.attention_parameters,
        "MLP": model.mlp_parameters,
        "experts": model.expert_parameters,
        "routers": model.router_parameters,
        "mixers": model.mixer_parameters,
        "other": model.other_parameters,
        "total": model.total_parameters,
        "trainable": model.trainable_parameters,
        "without embedding and head": model.non_embedding_parameters,
        "active per token": model.active_parameters_per_token,
    }
    always = ("token embedding", "norms", "attention", "MLP", "total")
    return Table(
        title="Parameters",
        columns=(
            Column(name="part", is_text=True),
            Column(name="count"),
            Column(name="share", unit="%"),
        ),
        rows=tuple(
            (part, f"{count:,}", 100 * count / model.total_parameters)
            for part, count in parts.items()
            if count or part in always
        ),
    )


def _flop(model: ModelCount) -> Table:
    flop = model.flop
    hidden = flop.attention_flop - flop.visible_attention_flop
    passes = {
        "forward": (flop.forward_flop, hidden),
        "forward and backward": (flop.forward_flop + flop.backward_flop, 3 * hidden),
        "with full recomputation": (
            flop.forward_flop + flop.backward_flop + flop.recompute_flop,
            4 * hidden,
        ),
    }
    return Table(
        title=f"FLOPs per token at sequence length {flop.sequence_length:,} [GFLOP]",
        columns=(
            Column(name="pass", is_text=True),
            Column(name="all scores"),
            Column(name="causal half only"),
        ),
        rows=tuple(
            (name, total / GIGA, (total - masked) / GIGA)
            for name, (total, masked) in passes.items()
        ),
    )
