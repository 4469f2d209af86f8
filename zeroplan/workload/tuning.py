"""What of a model is trained, and in which form the frozen rest of it is there."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, get_args

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.spec.architecture import Role
from zeroplan.spec.tuning import Quantization

if TYPE_CHECKING:
    from zeroplan.workload.tape import Parameter
    from zeroplan.workload.unit import Unit

__all__ = ["Tuning", "projection_name"]

HELD_APART: Final = ("embedding", "head", "norm", "router", "expert")
"""Roles of weights that are no linear layer, or that peft and bitsandbytes leave as they are."""
WORDS: Final = ("all-linear", "attention", "mlp")
"""Targets that stand for several projections."""
PARTS: Final = ("all", "none", "embedding", "blocks", "last-K", "norm", "head")
MATRIX: Final = 2
"""Extents of its weight: convolutions and stacked experts have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """One way to train less than everything, as a strategy runs it."""

    rank: int = 0
    """Of the adapters; 0 has none. [elements]"""
    targets: tuple[str, ...] = ("all-linear",)
    """Words and names of projections."""
    dropout: bool = False
    """Whether an adapter drops some of its input."""
    adapter_itemsize: int = 2
    """Of the adapters in use. [B]"""
    autocast: bool = False
    """Whether torch.autocast runs them in the compute dtype."""
    trained: tuple[str, ...] = ()
    """Parts that are trained beside the adapters."""
    gradient_itemsize: int = 2
    """Of fresh gradients. [B]"""
    flattens: bool = False
    """Whether frozen parameters lie in one flat parameter with trained ones."""
    wraps_embedding: bool = False
    """Whether embeddings are wrapped by themselves, so that they lie in a flat parameter of their
    own."""
    input_requires_grad: bool = False
    """Whether the embedding's output asks for a gradient, as a reentrant checkpoint needs it."""
    quantization: Quantization = "none"
    double: bool = True
    """Whether the scales of 4-bit weights are quantised too."""
    storage_itemsize: int = 1
    """Of the elements that hold packed weights. [B]"""

    def quantizes(self, weight: "Parameter | None") -> bool:
        """Whether bitsandbytes replaces the layer of a weight."""
        return self.quantization != "none" and weight is not None and _of_linear(weight)

    def adapts(self, weight: "Parameter | None") -> bool:
        """Whether an adapter stands beside the layer of a weight."""
        if not self.rank or weight is None or not _of_linear(weight):
            return False
        return not {"all-linear", weight.role, projection_name(weight)}.isdisjoint(self.targets)

    def trains(self, unit: "Unit", from_last: int) -> frozenset[Role]:
        """Return the roles of a unit whose weights are trained beside the adapters.

        Parameters
        ----------
        unit
            One of the model's.
        from_last
            Where it is a block: how many blocks it is away from the last one [blocks].
        """
        everything = frozenset(get_args(Role))
        tower = unit.tower
        last = max((_last(part) for part in self.trained), default=0)
        if "all" in self.trained or (tower and tower in self.trained):
            return everything
        if unit.kind == "block":
            return everything if "blocks" in self.trained or from_last < last else frozenset()
        if unit.kind == "embedding":
            return everything if "embedding" in self.trained else frozenset()
        norm = frozenset[Role]({"norm"} if "norm" in self.trained else ())
        return norm | (everything - {"norm"} if "head" in self.trained else frozenset())

    def verify(self, units: Sequence["Unit"]) -> None:
        """Say which of the targets or parts the model does not have.

        Raises
        ------
        SpecError
            A target is no linear layer of it, or a part is none of its own.
        """
        weights = (p for unit in dict.fromkeys(units) for p in unit.parameters)
        names = dict.fromkeys(projection_name(w) for w in weights if w.matmul and _of_linear(w))
        towers = dict.fromkeys(u.tower for u in units)
        targets = self.targets if self.rank else ()
        parts = [part for part in self.trained if not _last(part)]
        _known("tuning.lora_targets", targets, (*WORDS, *names))
        _known("tuning.trainable", parts, (*PARTS, *filter(None, towers)))


def projection_name(weight: "Parameter") -> str:
    """Return the last name of the layer that a weight is of: q_proj."""
    return weight.name.removesuffix(".weight").rpartition(".")[2]


def _of_linear(weight: "Parameter") -> bool:
    """Whether a weight is of an `nn.Linear` that peft and bitsandbytes take."""
    return len(weight.shape) == MATRIX and weight.role not in HELD_APART


def _last(part: str) -> int:
    """Return the K of last-K; 0 for another part."""
    number = part.removeprefix("last-")
    return int(number) if number != part and number.isdigit() else 0


def _known(key: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            words = ", ".join(known)
            raise SpecError(f"{key}: {name!r} is no part of this model; it has {words}.")
