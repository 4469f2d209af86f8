"""Loading a model to be counted: a preset, a path, a size, or a `torch.nn.Module` in memory.

Nothing here imports torch: a module is asked for its parameters by name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from zeroplan.errors import SpecError, UsageError
from zeroplan.spec.models import architecture_of, load_architecture
from zeroplan.workload.count import FlopCount, ModelCount, count_model

__all__ = ["Module", "count_module", "load_model"]

DEFAULT_SEQUENCE_LENGTH: Final = 4096
"""Where the model allows no less. [tokens]"""


class Weight(Protocol):
    """What is asked of a `torch.nn.Parameter`."""

    shape: tuple[int, ...]
    requires_grad: bool

    def numel(self) -> int:
        """Return the number of elements."""


@runtime_checkable
class Module(Protocol):
    """What is asked of a `torch.nn.Module`."""

    def named_parameters(self, *, remove_duplicate: bool) -> Iterable[tuple[str, Weight]]:
        """Yield names and parameters, tied ones under each of their names."""

    def named_modules(self) -> Iterable[tuple[str, object]]:
        """Yield names and submodules."""


def load_model(source: str | Path | Module, sequence_length: int | None = None) -> ModelCount:
    """Count a model; FLOPs are per token of a sequence of 4096, or of what the model allows.

    Parameters
    ----------
    source
        A preset, the path to a `config.json` or its folder, a size such as `70b`, or a module, which
        may live on the meta device.
    sequence_length
        For the FLOPs [tokens].
    """
    if isinstance(source, str | Path):
        architecture = load_architecture(source)
        return count_model(architecture, _length(sequence_length, architecture.max_positions))
    if isinstance(source, Module):
        return count_module(source, sequence_length)
    raise UsageError(
        f"load_model: {type(source).__name__} is no model;"
        " give a preset, a path, a size or a torch.nn.Module"
    )


def count_module(module: Module, sequence_length: int | None = None) -> ModelCount:
    """Count a module: by its family's rule where that agrees, else by its parameters alone."""
    unique, _ = _distinct(module)
    total = sum(weight.numel() for weight in unique.values())
    trainable = sum(weight.numel() for weight in unique.values() if weight.requires_grad)
    ruled = _by_rule(module, sequence_length)
    if ruled is not None and ruled.total_parameters == total:
        return replace(ruled, trainable_parameters=trainable)
    return _by_name(module, total, trainable, _length(sequence_length, None))


def _by_rule(module: Module, sequence_length: int | None) -> ModelCount | None:
    """Count by the configuration that a transformers model carries; None without a usable one."""
    to_dict = getattr(getattr(module, "config", None), "to_dict", None)
    config = to_dict() if callable(to_dict) else None
    if not isinstance(config, Mapping):
        return None
    name = type(module).__name__
    try:
        architecture = architecture_of({**config, "architectures": [name]}, f"module {name}", name)
    except SpecError:
        return None
    return count_model(architecture, _length(sequence_length, architecture.max_positions))


def _by_name(module: Module, total: int, trainable: int, sequence_length: int) -> ModelCount:
    unique, owners = _distinct(module)
    kinds = {name: type(part).__name__ for name, part in module.named_modules()}
    table = _token_table(unique, kinds)
    parts: Counter[str] = Counter()
    for name, weight in unique.items():
        parts["embedding" if name == table else _part(name, kinds)] += weight.numel()
    tied = table is not None and owners[table] > 1
    matmul = sum(
        weight.numel()
        for name, weight in unique.items()
        if len(weight.shape) > 1 and (not _is_table(name, kinds) or (name == table and tied))
    )
    blocks = _blocks(kinds)
    hidden = 0 if table is None else unique[table].shape[-1]
    name = type(module).__name__
    return ModelCount(
        name=name,
        architecture=name,
        total_parameters=total,
        trainable_parameters=trainable,
        embedding_parameters=parts["embedding"],
        non_embedding_parameters=total - parts["embedding"] - parts["head"],
        active_parameters_per_token=total,
        blocks=blocks,
        hidden_size=hidden,
        **{f"{part}_parameters": parts[part] for part in (*WORDS, "other")},
        tied=tied,
        attention_width=0,
        stacks=((name, blocks, hidden),),
        max_positions=None,
        source=f"module {name}",
        assumptions=UNKNOWN,
        flop=FlopCount(
            sequence_length=sequence_length,
            matmul_flop=2.0 * matmul,
            attention_flop=0.0,
            visible_attention_flop=0.0,
            recompute_flop=0.0,
        ),
    )


def _blocks(kinds: Mapping[str, str]) -> int:
    """Return the length of the longest module list."""
    lists = Counter(name.rpartition(".")[0] for name in kinds if name.rpartition(".")[2].isdigit())
    return max(lists.values(), default=0)


UNKNOWN: Final = (
    "parts are told apart by the names of the modules, and every parameter counts as active",
    "FLOPs are those of the weights alone: a module does not say what its attention computes",
)
"""What a bare module leaves open."""

WORDS: Final = {
    "norm": ("norm", "ln_"),
    "expert": ("expert",),
    "router": ("router", "gate."),
    "attention": ("attn", "attention"),
    "mlp": ("mlp", "ffn", "feed_forward", "feedforward"),
    "mixer": ("mixer", "mamba"),
    "head": ("head",),
}
"""Part of a model: what occurs in the names of its modules; the first that fits counts."""


def _part(name: str, kinds: Mapping[str, str]) -> str:
    owner = name.rpartition(".")[0]
    words = f"{name} {kinds.get(owner, '')}".lower()
    for part, hints in WORDS.items():
        if any(hint in words for hint in hints):
            return part
    return "other"


def _is_table(name: str, kinds: Mapping[str, str]) -> bool:
    return "Embedding" in kinds.get(name.rpartition(".")[0], "")


def _token_table(unique: Mapping[str, Weight], kinds: Mapping[str, str]) -> str | None:
    """Return the name of the longest embedding table."""
    tables = [name for name in unique if _is_table(name, kinds)]
    return max(tables, key=lambda name: unique[name].shape[0], default=None)


def _distinct(module: Module) -> tuple[dict[str, Weight], Counter[str]]:
    """Return each parameter object once under its first name, and how many names it has.

    Tied weights are one object; on the meta device they share no address, so addresses do not tell.
    """
    first: dict[int, str] = {}
    unique: dict[str, Weight] = {}
    owners: Counter[str] = Counter()
    for name, weight in module.named_parameters(remove_duplicate=False):
        known = first.setdefault(id(weight), name)
        unique.setdefault(known, weight)
        owners[known] += 1
    return unique, owners


def _length(asked: int | None, allowed: int | None) -> int:
    if asked is not None:
        return asked
    return min(DEFAULT_SEQUENCE_LENGTH, allowed or DEFAULT_SEQUENCE_LENGTH)
