"""The tape: a forward pass written down once, as an ordered list of leaf operations.

A component's builder (`attention.py`, `mlp.py`, ...) runs on a tape the way its PyTorch module runs
on tensors. The tape knows storages, not values: who reads and writes them, which ones autograd
keeps, what the operation costs. Nothing here knows GPUs, seconds or a strategy.
"""

from typing import Literal

from zeroplan.records import dataclass, field, replace
from zeroplan.spec.architecture import Role
from zeroplan.units import Size
from zeroplan.workload.batch import Batch

__all__ = ["Kernel", "Matmul", "Operation", "Parameter", "Purpose", "Summed", "Tape", "Tensor"]

Kernel = Literal["matmul", "attention", "scores", "memory", "lookup", "none"]
"""What runs an operation: a GEMM, a fused attention kernel, a batched product of scores in memory,
a kernel that streams through memory, a gather, nothing."""


Purpose = Literal["activations", "loss", "unsharded_parameters"]
"""What a tensor belongs to: the layers, the logits and what follows, or a copy of a weight."""

Summed = Literal["", "anew", "in place"]
"""How a gradient joins that of another user of a tied weight; empty where there is no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A weight as the framework sees it."""

    name: str
    shape: tuple[int, ...]
    role: Role
    tied_to: str | None = None
    """Name of the parameter whose storage this one shares; it is then counted and sharded there."""
    trainable: bool = True
    summed: Summed = ""
    matmul: bool = False
    """Used by a matmul, so that autocast keeps a low-precision copy until backward."""
    packed_itemsize: int = 0
    """Bytes per element of a quantised weight, which is stored and used as it is; 0: it is none."""
    unpacked_elements: int = 0
    """Of a quantised weight before it was packed; 0: it is none. [elements]"""
    flattened: bool = False
    """Frozen, but a view of a flat parameter that is trained: autograd makes a gradient all the
    same."""
    constants_bytes: int = 0
    """Scales of a quantised weight, which every rank holds whole. [B]"""
    float8: bool = False
    """Of a layer whose products run in fp8."""

    @property
    def gets_gradient(self) -> bool:
        """Whether autograd makes a gradient of it."""
        return self.trainable or self.flattened

    @property
    def elements(self) -> int:
        """Number of elements. [elements]"""
        total = 1
        for extent in self.shape:
            total *= extent
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor: a storage of its own, or a view of another tensor's."""

    name: str
    rows: Size
    """Product of the leading extents. [elements]"""
    width: int
    """Last extent. [elements]"""
    itemsize: int
    """[B]"""
    differentiable: bool = True
    base: "Tensor | None" = None
    """The tensor whose storage this one looks into; None where it owns one."""
    purpose: Purpose = "activations"

    @property
    def storage(self) -> "Tensor":
        """The tensor that owns the storage: what autograd counts once."""
        return self.base or self

    @property
    def bytes(self) -> Size:
        """Exact size, before the allocator rounds it. [B]"""
        return self.rows * self.width * self.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """`count` products of an [m, k] by a [k, n] matrix."""

    m: Size
    n: Size
    k: Size
    count: Size = 1

    @property
    def flop(self) -> Size:
        """Two per multiply-add. [FLOP]"""
        return 2.0 * self.m * self.n * self.k * self.count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """A leaf operation: its parameters, its output, what autograd keeps of it, what it costs."""

    name: str
    kernel: Kernel
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    saved: tuple[Tensor, ...] = ()
    """Storages that autograd holds until the operation's backward has run."""
    forward_temporaries: tuple[Size, ...] = ()
    """Storages that live only inside the forward kernel. [B]"""
    backward_temporaries: tuple[Size, ...] = ()
    """The same in its backward kernel. [B]"""
    passes_gradient: bool = False
    """Backward hands its incoming gradient on without a new storage (add, view)."""
    matmuls: tuple[Matmul, ...] = ()
    visible_share: Size = 1.0
    """Share of the matmuls that no mask removes (about 0.5 under a causal mask)."""
    saved_gradients: bool = False
    """What it saved are its inputs' gradients, computed in forward: backward hands them on."""
    backward_ratio: float = 2.0
    """Backward FLOPs over forward FLOPs; flash attention recomputes its scores: 2.5."""
    opens: tuple[Tensor, ...] = ()
    """Tensors of all blocks, to whose gradients backward adds from here on."""
    closes: tuple[Tensor, ...] = ()
    """Those whose gradients backward has done with here."""
    float8: bool = False
    """Its products run in fp8."""
    module: str = ""
    """The leaf `nn.Module` that runs it; empty for a function of the enclosing module."""
    exchanges: bool = False
    """A product: what it saves of one operand serves the other one's gradient alone."""
    shares: tuple[Parameter, ...] = ()
    """Weights of which it uses a part, and whose gradient another operation starts."""
    wanted: int = 2
    """Of a product: the operands whose gradient is wanted. [count]"""
    runs_backward: bool = True
    """Whether a gradient comes to it: not before the first thing that is trained."""

    @property
    def keeps(self) -> bool:
        """Whether autograd keeps anything of it, if only a frozen weight: checkpoints count that.

        What bitsandbytes keeps they do not see.
        """
        weights = [p for p in self.parameters if p.matmul and not p.packed_itemsize]
        return bool(self.saved) or (
            bool(weights) and self.runs_backward and any(t.differentiable for t in self.inputs)
        )

    @property
    def flop(self) -> Size:
        """Forward FLOPs of its matmuls, masked scores included. [FLOP]"""
        return sum(product.flop for product in self.matmuls)


@dataclass(slots=True)
class Tape:
    """Records operations in the order in which the forward pass runs them."""

    batch: Batch
    """What it runs on, and with which kernels."""
    prefix: str = ""
    """Put before the names of parameters: "attention."."""
    operations: list[Operation] = field(default_factory=list)
    purpose: Purpose = "activations"

    @property
    def itemsize(self) -> int:
        """Bytes per element of the compute dtype. [B]"""
        return self.batch.itemsize

    def tensor(
        self,
        name: str,
        rows: Size,
        width: int,
        *,
        itemsize: int | None = None,
        differentiable: bool = True,
    ) -> Tensor:
        """Return a new storage; it exists once an operation lists it among its outputs."""
        size = itemsize or self.itemsize
        return Tensor(name, rows, width, size, differentiable, purpose=self.purpose)

    def like(self, name: str, other: Tensor) -> Tensor:
        """Return a new storage of another one's shape and dtype."""
        return self.tensor(
            name,
            other.rows,
            other.width,
            itemsize=other.itemsize,
            differentiable=other.differentiable,
        )

    def view(self, name: str, other: Tensor, width: int) -> Tensor:
        """Return a view of `width` columns of another tensor (split, chunk)."""
        return replace(other, name=name, width=width, base=other.storage)

    def add(self, operation: Operation) -> None:
        """Append an operation."""
        self.operations.append(operation)

    def hold(self, *tensors: Tensor) -> None:
        """Keep local variables alive until here, as the returning Python function does."""
        self.add(Operation(name="return", kernel="none", inputs=tensors))
