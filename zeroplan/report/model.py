"""What a model is, as a person reads it."""

from collections.abc import Iterator

from zeroplan.report.terminal import Page, prose, table_text
from zeroplan.rows import Column, Table, readable
from zeroplan.units import DTYPE_BYTES, GIGA
from zeroplan.workload.count import ModelCount

__all__ = ["model_text"]


def model_text(model: ModelCount, on: Page) -> str:
    """Return blocks, exact parameter counts, bytes and FLOPs per token."""
    parts = [
        prose(_headlines(model), on),
        table_text(_parameters(model), on),
        table_text(_flop(model), on),
        prose((f"Assumed: {line}" for line in model.assumptions), on),
    ]
    return "\n".join(filter(None, parts))


def _headlines(model: ModelCount) -> Iterator[str]:
    yield f"{model.name} ({model.architecture}), from {model.source}"
    for name, blocks, hidden in model.stacks:
        yield f"{name}: {blocks} blocks of width {hidden:,}"
    sizes = (
        f"{readable(model.total_parameters * DTYPE_BYTES[dtype], 'B')} in {dtype}"
        for dtype in ("fp32", "bf16")
    )
    yield f"Weights: {', '.join(sizes)}"
    yield f"FLOPs are those of sequences of {model.flop.sequence_length:,} tokens"


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
            if count or part.startswith("head")
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
        title="FLOPs per token [GFLOP]",
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
