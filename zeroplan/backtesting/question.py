"""From the columns of a row to the run that it describes."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, get_args

from zeroplan.backtesting.models import architecture_of_row
from zeroplan.backtesting.table import Cells
from zeroplan.errors import SpecError, perhaps
from zeroplan.estimation.resolve import Question, resolve
from zeroplan.records import replace
from zeroplan.sharding.dtypes import dtypes
from zeroplan.sharding.strategies import sharding
from zeroplan.spec.applies import applies
from zeroplan.spec.reading import checked, read_run
from zeroplan.spec.run import Run, Strategy
from zeroplan.units import DTYPE_BYTES, GIGABIT

__all__ = ["question_of_row"]

FABRICS: Final = {"infiniband": "ib", "tcp": "ethernet", "rdma": ""}
"""The table's words for links that zeroplan calls otherwise; a blank is the GPU's usual one."""

OPTIMIZERS: Final = {
    "8-bit": "adamw-8bit",
    "adamw": "adamw",
    "adam": "adam",
    "lamb": "adam",  # the same two states (You et al., arXiv 1904.00962, algorithm 2)
    "sgd": "sgd",
}
"""What an optimizer's name contains: the optimizer; the first that fits wins."""


def question_of_row(cells: Cells, profiles: Path | None) -> Question:
    """Return the question that a row answers; `cells` then knows which columns were filled in.

    Raises
    ------
    SpecError
        The row cannot be predicted; the message says why.

    """
    strategy = _strategy(cells)
    _refuse_unmodelled(cells)
    architecture = architecture_of_row(cells)
    values = {"model.source": architecture.name, **_values(cells, strategy)}
    run = read_run(checked(values, lambda dotted: _COLUMN_OF.get(dotted, dotted)))
    _verify_optimizer_dtype(cells, run, strategy)
    question = resolve(run, profiles, architecture=architecture)
    nics = cells.positive("node_nic_gbps")
    if nics is None:
        return question
    wires = replace(question.wires, node_bytes_per_second=nics * GIGABIT)
    return replace(question, wires=wires)


def _strategy(cells: Cells) -> Strategy:
    word = cells.text("strategy").lower()
    known: tuple[Strategy, ...] = get_args(Strategy)
    for strategy in known:
        if word == strategy:
            return strategy
    if not word:
        raise SpecError("strategy is blank")
    raise SpecError(f"strategy {word!r} is not modelled.{perhaps(word, known)}")


def _refuse_unmodelled(cells: Cells) -> None:
    """Refuse what changes a run and has no key in a spec."""
    for column in ("tp", "pp", "cp"):
        if cells.text(column) not in ("", "1"):
            raise SpecError(f"{column} = {cells.text(column)}: only data parallelism is modelled")
    for column, absent in (("offload", "none"), ("fp8", "no")):
        if _first_word(cells.text(column).lower()) not in ("", absent):
            raise SpecError(f"{column} = {cells.text(column)}: not modelled")


def _values(cells: Cells, strategy: Strategy) -> dict[str, object]:
    """Return a spec's values by dotted key, without those that a row leaves blank."""
    values: dict[str, object] = {
        "sharding.strategy": strategy,
        **{dotted: cells.whole(column) for column, dotted in REQUIRED.items()},
        "training.master_copy": "fp32 master" in cells.text("param_dtype").lower(),
    }
    implementation = _implementation(cells.text("optimizer").lower())
    if implementation is not None:
        values["training.optimizer_implementation"] = implementation
    for column, (dotted, read) in OPTIONAL.items():
        if not applies(dotted, (strategy,)):
            continue
        value = read(cells.text(column).lower())
        if value is None:
            cells.filled.append(column)
        else:
            values[dotted] = value
    if not cells.text("node_nic_gbps"):
        cells.filled.append("node_nic_gbps")
    return values


def _verify_optimizer_dtype(cells: Cells, run: Run, strategy: Strategy) -> None:
    """Refuse optimizer states in another dtype than the strategy's own."""
    word = _first_word(cells.text("optimizer_dtype").lower())
    held = dtypes(sharding(strategy), run.training)
    if word and DTYPE_BYTES.get(word) != held.state:
        raise SpecError(f"optimizer_dtype = {word}: only states of {held.state} bytes are modelled")


def _first_word(text: str) -> str:
    return text.split(maxsplit=1)[0] if text else ""


def _word(text: str) -> str | None:
    return text or None


def _number(text: str) -> object:
    """Return a number as such, and what is none as it is, for the spec's check to refuse."""
    return int(text) if text.isdecimal() else text or None


def _flag(text: str) -> object:
    return {"yes": True, "no": False}.get(text, text) if text else None


def _dtype(text: str) -> str | None:
    """Return the first word; a remark may follow, and a choice of two or a doubt says nothing."""
    word = _first_word(text)
    return None if "not stated" in text or "/" in word else word or None


def _link(text: str) -> str | None:
    return FABRICS.get(text, text) or None


def _optimizer(text: str) -> str | None:
    return next((known for word, known in OPTIMIZERS.items() if word in text), None)


def _implementation(text: str) -> str | None:
    return next((word for word in ("foreach", "fused") if word in text), None)


REQUIRED: Final = {
    "seq_len": "training.sequence_length",
    "micro_batch_per_gpu": "training.micro_batch_size",
    "gpus": "cluster.gpus",
}
"""Columns without which nothing can be said, and their keys in a spec."""

OPTIONAL: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "reshard_after_forward": ("sharding.reshard_after_forward", _flag),
    "grad_accum": ("training.gradient_accumulation_steps", _number),
    "gpus_per_node": ("cluster.gpus_per_node", _number),
    "shard_size": ("sharding.shard_size", _number),
    "gpu": ("cluster.gpu", _word),
    "fabric": ("cluster.link", _link),
    "param_dtype": ("training.parameter_dtype", _dtype),
    "compute_dtype": ("training.compute_dtype", _dtype),
    "reduce_dtype": ("training.reduce_dtype", _dtype),
    "optimizer": ("training.optimizer", _optimizer),
    "checkpointing": ("training.activation_checkpointing", _word),
    "attention_kernel": ("model.attention", _word),
    "compiled": ("model.compile", _flag),
}
"""Columns whose blanks get the strategy's default: the spec's key, and how their text is read."""

_COLUMN_OF: Final = {dotted: column for column, dotted in REQUIRED.items()} | {
    dotted: column for column, (dotted, _) in OPTIONAL.items()
}
