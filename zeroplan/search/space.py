"""What is searched: a run, and the values that some of its keys may take."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final, TypeGuard

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.sharding.strategies import COMPARED
from zeroplan.spec.applies import applies
from zeroplan.spec.hints import AUTO
from zeroplan.spec.reading import checked

__all__ = ["BATCH_KEYS", "GPUS", "Space", "space_of"]

BATCH_KEYS: Final = (
    "training.micro_batch_size",
    "training.sequence_length",
    "training.gradient_accumulation_steps",
)
"""What one step takes in as arrays."""

MACHINE_KEYS: Final = (
    "cluster.node",
    "cluster.gpu",
    "cluster.intra_link",
    "cluster.link",
    "cluster.oversubscription",
)
"""What only prices a step."""

DEMANDED: Final = ("sharding.offload_optimizer", "sharding.offload_parameters")
"""What a strategy that cannot do it refuses, where others ignore what they do not read."""

STRATEGY: Final = "sharding.strategy"
GPUS: Final = "cluster.gpus"

Values = Mapping[str, object]
"""Values by dotted key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Every combination of the values that keys may take."""

    fixed: dict[str, object]
    """Checked values of the keys that have one."""
    axes: dict[str, tuple[object, ...]]
    """Checked values of the keys that have several."""
    global_batch_size: int | None = None
    """Sequences that all GPUs together take in per step, which sets the micro-steps. [count]"""
    profiles: Path | None = None

    def families(self) -> list[list[dict[str, object]]]:
        """Return the structures, together those that differ in their number of GPUs alone."""
        found: defaultdict[object, list[dict[str, object]]] = defaultdict(list)
        for each in self.structures():
            found[tuple(pair for pair in each.items() if pair[0] != GPUS)].append(each)
        return list(found.values())

    def structures(self) -> Iterator[dict[str, object]]:
        """Return the values of the keys that a step depends on, but for its batch.

        What a strategy does not read is left out.
        """
        every = map(self._read, self._combined(self.structural))
        return map(dict, dict.fromkeys(tuple(each.items()) for each in every))

    def machines(self) -> Iterator[dict[str, object]]:
        """Yield the values of the keys that price a step."""
        return self._combined([key for key in self.axes if key in MACHINE_KEYS])

    def whole(self, values: Values) -> dict[str, object]:
        """Return the values of a plan with those that all have, of what its strategy reads."""
        return self._read({**self.fixed, **values})

    def values(self, key: str) -> tuple[object, ...]:
        """Return all values of a key; None is what zeroplan chooses."""
        return self.axes.get(key, (self.fixed.get(key),))

    @property
    def structural(self) -> list[str]:
        """The keys with several values that a step depends on, but for its batch."""
        return [key for key in self.axes if key not in (*BATCH_KEYS, *MACHINE_KEYS)]

    @property
    def plans(self) -> int:
        """All combinations, also those that turn out to be impossible. [count]"""
        return sum(1 for _ in self.structures()) * sum(1 for _ in self.machines()) * self.batches

    @property
    def batches(self) -> int:
        """Plans of one structure on one machine. [count]"""
        return prod(len(self.values(key)) for key in BATCH_KEYS)

    def _read(self, values: Values) -> dict[str, object]:
        """Leave out what a strategy does not read; a demand stays that nothing is offered for."""
        strategy: Any = values.get(STRATEGY, self.fixed.get(STRATEGY))
        demands = [key for key in DEMANDED if "none" not in self.values(key)]
        return {k: v for k, v in values.items() if k in demands or applies(k, [strategy])}

    def _combined(self, names: Sequence[str]) -> Iterator[dict[str, object]]:
        for values in product(*(self.axes[name] for name in names)):
            yield dict(zip(names, values, strict=True))


def space_of(
    values: Values, *, global_batch_size: int | None = None, profiles: Path | None = None
) -> Space:
    """Check values by dotted key, each one or a sequence of them.

    Where no strategy is named all that are usually compared are tried. Arrays and columns of tables
    are sequences, too.

    Raises
    ------
    SpecError
        A key or a value is not known, or micro-steps are given twice.

    """
    if global_batch_size is not None and BATCH_KEYS[2] in values:
        raise SpecError(
            "global_batch_size sets training.gradient_accumulation_steps: leave one of the two out."
        )
    several = {STRATEGY: AUTO} | {key: _plain(value) for key, value in values.items()}
    if several[STRATEGY] in (None, AUTO):
        several[STRATEGY] = COMPARED
    lists = {key: each for key, each in several.items() if _is_sequence(each)}
    fixed = checked({key: value for key, value in several.items() if key not in lists})
    axes: dict[str, tuple[object, ...]] = {}
    for key, each in lists.items():
        if not each:
            raise SpecError(f"{key} = []: name one value or more.")
        found = [checked({key: _plain(value)})[key] for value in each]
        axes[key] = tuple(dict.fromkeys(found))
    return Space(fixed=fixed, axes=axes, global_batch_size=global_batch_size, profiles=profiles)


def _plain(value: Any) -> Any:
    """Return what an array, a scalar of one or a column of a table holds as Python has it."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)
