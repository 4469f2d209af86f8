"""A run and what was measured of it as a row of the table of runs, in the table's own columns."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from zeroplan.backtesting.models import architecture_of_row
from zeroplan.backtesting.question import question_of_row
from zeroplan.backtesting.table import Cells
from zeroplan.errors import SpecError
from zeroplan.estimation.resolve import Question
from zeroplan.spec.applies import applies
from zeroplan.spec.architecture import Architecture, Attention, Mlp
from zeroplan.spec.presets import is_preset
from zeroplan.spec.reading import flatten
from zeroplan.spec.run import Run, Strategy
from zeroplan.spec.toml import to_dict

__all__ = ["COLUMNS", "losses", "run_cells"]

COLUMNS: Final = (
    *("id", "source_id", "strategy", "reshard_after_forward"),
    *("n_layers", "hidden", "n_heads", "n_kv_heads", "ffn", "vocab", "tied_embeddings"),
    *("arch", "model_name", "seq_len", "micro_batch_per_gpu", "grad_accum"),
    *("gpus", "gpus_per_node", "shard_size", "tp", "pp", "cp", "gpu", "fabric"),
    *("param_dtype", "compute_dtype", "reduce_dtype", "optimizer", "checkpointing"),
    *("attention_kernel", "compiled", "offload", "fp8", "outcome"),
    *("tokens_per_s_per_gpu", "step_time_s", "peak_mem_gib", "memory_kind"),
)
"""What a row that zeroplan writes has, in the order of the contract's table."""

EIGHT_BIT: Final = "adamw-8bit"


def run_cells(question: Question, strategy: Strategy) -> dict[str, str]:
    """Return the cells that describe a run; blank where it leaves the choice to its defaults."""
    run = question.run
    training, cluster = run.training, run.cluster
    optimizer = training.optimizer.replace(EIGHT_BIT, "adamw 8-bit")
    how = training.optimizer_implementation
    return {
        "strategy": strategy,
        **dict(_sharding(run, strategy)),
        **_model(question.architecture),
        "seq_len": str(training.sequence_length),
        "micro_batch_per_gpu": str(training.micro_batch_size),
        "grad_accum": str(training.gradient_accumulation_steps),
        "gpus": str(cluster.gpus),
        "gpus_per_node": str(cluster.gpus_per_node),
        **dict.fromkeys(("tp", "pp", "cp"), "1"),
        "gpu": str(cluster.gpu),
        "fabric": str(cluster.link),
        "param_dtype": f"{training.parameter_dtype}{' + fp32 master' * training.master_copy}",
        "compute_dtype": training.compute_dtype,
        "reduce_dtype": training.reduce_dtype or "",
        "optimizer": f"{optimizer} ({how})" if how else optimizer,
        "checkpointing": training.activation_checkpointing,
        "attention_kernel": run.model.attention,
        "compiled": _yes(run.model.compile),
        "offload": "yes" if run.offloads else "none",
        "fp8": "no" if training.fp8 == "none" else training.fp8,
        "outcome": "ok",
    }


def losses(row: Mapping[str, str], question: Question, profiles: Path | None) -> str | None:
    """Say what of a run its row cannot hold; None where it reads back as the same run."""
    cells = Cells(dict(row), line=0)
    try:
        if _shape(architecture_of_row(cells)) != _shape(question.architecture):
            return "the table has no columns for this model, so do not predict the row from it"
        found = question_of_row(cells, profiles).run
    except SpecError as error:
        return f"a table skips the row: {error}"
    strategy = question.strategies[0].strategy
    asked, read = flatten(to_dict(question.run)), flatten(to_dict(found))
    lost = [
        dotted
        for dotted, value in asked.items()
        if read[dotted] != value and dotted != "model.source" and applies(dotted, (strategy,))
    ]
    return f"the table has no column for {', '.join(lost)}" if lost else None


def _sharding(run: Run, strategy: Strategy) -> Iterator[tuple[str, str]]:
    keeps = run.sharding.reshard_after_forward
    if applies("sharding.reshard_after_forward", (strategy,)) and isinstance(keeps, bool):
        yield "reshard_after_forward", _yes(keeps)
    size = run.sharding.shard_size
    if applies("sharding.shard_size", (strategy,)) and size is not None:
        yield "shard_size", str(size)


def _model(architecture: Architecture) -> dict[str, str]:
    """Return the name of a preset, or the shape of the last stack's first block."""
    if is_preset(architecture.name):
        return {"model_name": architecture.name}
    stack, head = architecture.stacks[-1], architecture.head
    parts = [each.component for each in stack.blocks[0].sublayers] if stack.blocks else []
    attention = next((part for part in parts if isinstance(part, Attention)), None)
    mlp = next((part for part in parts if isinstance(part, Mlp)), None)
    cells = {"model_name": architecture.name, "arch": architecture.model_type}
    if attention is None or mlp is None or head is None:
        return cells
    return cells | {
        "n_layers": str(len(stack.blocks)),
        "hidden": str(stack.hidden),
        "n_heads": str(attention.heads),
        "n_kv_heads": str(attention.kv_heads),
        "ffn": str(mlp.width),
        "vocab": str(head.rows),
        "tied_embeddings": _yes(head.tied),
    }


def _shape(architecture: Architecture) -> tuple[object, ...]:
    return architecture.stacks, architecture.head


def _yes(value: object) -> str:
    return "yes" if value else "no"
