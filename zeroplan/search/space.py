"""What is searched: a run, and the values that some of its keys may take."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.sharding.strategies import COMPARED
from zeroplan.spec.applies import applies
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
            found[tuple(each[key] for key in each if key != GPUS)].append(each)
        return list(found.values())

    def structures(self) -> Iterator[dict[str, object]]:
        """Yield the values of the keys that a step depends on, but for its batch.

        A key that a strategy does not read takes its first value only.
        """
        for each in self._combined(lambda key: key not in (*BATCH_KEYS, *MACHINE_KEYS)):
            strategy: Any = each.get(STRATEGY) or self.fixed.get(STRATEGY)
            idle = (key for key in each if not applies(key, [strategy]))
            if all(each[key] == self.axes[key][0] for key in idle):
                yield each

    def machines(self) -> Iterator[dict[str, object]]:
        """Yield the values of the keys that price a step."""
        return self._combined(lambda key: key in MACHINE_KEYS)

    def values(self, key: str) -> tuple[object, ...]:
        """Return all values of a key; None is what zeroplan chooses."""
        return self.axes.get(key, (self.fixed.get(key),))

    @property
    def plans(self) -> int:
        """All combinations, also those that turn out to be impossible. [count]"""
        return sum(1 for _ in self.structures()) * sum(1 for _ in self.machines()) * self.batches

    @property
    def batches(self) -> int:
        """Plans of one structure on one machine. [count]"""
        return prod(len(self.values(key)) for key in BATCH_KEYS)

    def _combined(self, wanted: Callable[[str], bool]) -> Iterator[dict[str, object]]:
        names = [key for key in self.axes if wanted(key)]
        for values in product(*(self.axes[name] for name in names)):
            yield dict(zip(names, values, strict=True))


def space_of(
    values: Values, *, global_batch_size: int | None = None, profiles: Path | None = None
) -> Space:
    """Check values by dotted key, each one or a list of them.

    Where no strategy is named all that are usually compared are tried.

    Raises
    ------
    SpecError
        A key or a value is not known, or micro-steps are given twice.

    """
    if global_batch_size is not None and BATCH_KEYS[2] in values:
        raise SpecError(
            "global_batch_size sets training.gradient_accumulation_steps: leave one of the two out."
        )
    several = {STRATEGY: list(COMPARED), **values}
    lists = {key: value for key, value in several.items() if isinstance(value, list | tuple)}
    fixed = checked({key: value for key, value in several.items() if key not in lists})
    axes: dict[str, tuple[object, ...]] = {}
    for key, each in lists.items():
        if not each:
            raise SpecError(f"{key} = []: name one value or more.")
        found = [checked({key: value})[key] for value in each]
        axes[key] = tuple(dict.fromkeys(found))
    return Space(fixed=fixed, axes=axes, global_batch_size=global_batch_size, profiles=profiles)
