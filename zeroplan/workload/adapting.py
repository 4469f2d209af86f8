"""A counted model made one of which only a part is trained.

The forward pass is written down as if everything were trained. Here adapters are put beside their
layers, frozen weights lose their gradients, and what then no gradient needs is neither saved nor
computed: autograd keeps an operand of a product for the other operand's gradient alone, and runs no
backward before the first thing that is trained (torch/csrc/autograd, 2.13).
"""

from collections.abc import Iterator, Sequence

from zeroplan.errors import SpecError
from zeroplan.records import dataclass, field, replace
from zeroplan.spec.architecture import Role
from zeroplan.workload.adapters import beside, packed
from zeroplan.workload.batch import Batch
from zeroplan.workload.primitives import weight_copy
from zeroplan.workload.tape import Operation, Parameter, Summed, Tape, Tensor
from zeroplan.workload.tuning import Tuning
from zeroplan.workload.unit import Unit

__all__ = ["tuned"]


def tuned(units: Sequence[Unit], batch: Batch, tuning: Tuning) -> tuple[Unit, ...]:
    """Train a part of a model; equal blocks stay one and the same where equal things come in."""
    tuning.verify(units)
    blocks = sum(unit.kind == "block" for unit in units)
    known: dict[tuple[int, bool, frozenset[Role]], Unit] = {}
    arrives, made = False, []
    outputs: dict[Tensor, Tensor] = {}
    flat = _flattened_together(units, tuning)
    biased = _biased(units, tuning)
    for unit in units:
        blocks -= unit.kind == "block"
        roles = tuning.trains(unit, blocks)
        mixes = bool(roles) or _adapted(unit, tuning) or unit in flat
        key = (id(unit), arrives, roles)
        if key not in known:
            flattened = tuning.flattens and mixes
            tuner = _Tuner(unit, batch, tuning, roles, arrives=arrives, flattened=flattened)
            tuner.now |= outputs
            tuner.biased = unit.tower in biased
            known[key] = tuner.unit()
        made.append(known[key])
        arrives = known[key].output.differentiable
        outputs[unit.output] = known[key].output
    _verify_trained(units, made, tuning)
    _verify_tied(made, tuning)
    return tuple(made)


def _biased(units: Sequence[Unit], tuning: Tuning) -> frozenset[str]:
    """Return the towers whose blocks share a position bias that is trained (T5)."""
    from_last, found = sum(unit.kind == "block" for unit in units), set[str]()
    for unit in units:
        from_last -= unit.kind == "block"
        roles = tuning.trains(unit, from_last)
        if any("relative_attention_bias" in p.name and p.role in roles for p in unit.parameters):
            found.add(unit.tower)
    return frozenset(found)


def _flattened_together(units: Sequence[Unit], tuning: Tuning) -> frozenset[Unit]:
    """Return the units of FSDP1's root, if any of them is trained: they share a flat parameter."""
    tied = any(p.tied_to for unit in units for p in unit.parameters)
    apart = ("block", "embedding") if tuning.wraps_embedding and not tied else ("block",)
    root = [unit for unit in units if unit.kind not in apart]
    blocks = sum(unit.kind == "block" for unit in units)
    return frozenset(root if any(tuning.trains(unit, blocks) for unit in root) else ())


def _adapted(unit: Unit, tuning: Tuning) -> bool:
    return any(tuning.adapts(p) for p in unit.parameters if p.matmul)


def _verify_trained(units: Sequence[Unit], made: Sequence[Unit], tuning: Tuning) -> None:
    """Refuse adapters without a layer, and parts without a weight."""
    if tuning.rank and not any(_adapted(unit, tuning) for unit in dict.fromkeys(units)):
        raise SpecError(
            f"tuning.lora_targets = {','.join(tuning.targets)!r}: this model has no such linear "
            "layers; name others, or all-linear."
        )
    if not any(p.trainable for unit in dict.fromkeys(made) for p in unit.parameters):
        raise SpecError(
            f"tuning.trainable = {','.join(tuning.trained)!r}: this model has no weights there; "
            "name another part."
        )


def _verify_tied(units: Sequence[Unit], tuning: Tuning) -> None:
    """Refuse to train one name of a weight that has several: it is one parameter to autograd."""
    weights = [p for unit in units for p in unit.parameters if p.role in ("embedding", "head")]
    owner = next((p for p in weights if p.tied_to is None), None)
    for each in weights:
        if owner and each.tied_to and each.trainable != owner.trainable:
            raise SpecError(
                f"tuning.trainable = {','.join(tuning.trained)!r}: {each.name} is the same "
                f"parameter as {owner.name}: add both embedding and head, or leave both out."
            )


@dataclass(slots=True)
class _Tuner:
    """Rewrites one unit."""

    source: Unit
    batch: Batch
    tuning: Tuning
    trained: frozenset[Role]
    """Roles of the weights that are trained."""
    arrives: bool
    """Whether a gradient of what enters is wanted."""
    flattened: bool
    """Whether its frozen weights are views of what is trained."""
    biased: bool = False
    """Whether the bias that its stack's blocks share is trained."""
    now: dict[Tensor, Tensor] = field(default_factory=dict)
    """What stands in the place of a tensor from here on."""
    weights: dict[Tensor, Parameter] = field(default_factory=dict)
    """Weights of which autocast has made a copy."""
    operations: list[Operation] = field(default_factory=list)

    def unit(self) -> Unit:
        """Return the unit as it is trained."""
        entering = self.source.input
        if entering is not None:
            self.now[entering] = replace(entering, differentiable=self.arrives)
        for operation in self.source.operations:
            self._rewrite(operation)
        output = self._current(self.source.output)
        if self.source.kind == "embedding" and self.tuning.input_requires_grad:
            output = self._asking(output)
        return replace(
            self.source,
            operations=tuple(self.operations),
            input=None if entering is None else self._current(entering),
            output=output,
            gradient_itemsize=self.tuning.gradient_itemsize,
        )

    def _rewrite(self, operation: Operation) -> None:
        """Take an operation over, and put an adapter beside it."""
        weight = self._weight(operation)
        adapted = self.tuning.adapts(weight)
        if adapted:
            operation = replace(operation, module=f"{operation.module}.base_layer")
        if set(operation.outputs) & set(self.weights) and not operation.inputs:
            copied = self.weights[operation.outputs[0]]
            if self.tuning.quantizes(copied) and copied.role not in self.trained:
                return  # a packed weight is not copied
        reads = [self._current(t) for t in operation.inputs]
        if weight is not None and weight.role in self.trained:
            operation = self._with_copy(operation, weight)
        elif weight is not None and self.tuning.quantizes(weight):
            operation = packed(operation, weight, self.tuning)
        self._add(operation)
        if weight is not None and adapted:
            (out,) = operation.outputs
            base = self._current(out)
            steps = beside(self.batch, self.tuning, weight, reads[0], base)
            for each in steps.operations:
                self._add(each, adapter=True)
            self.now[out] = self._current(steps.result)

    def _with_copy(self, operation: Operation, weight: Parameter) -> Operation:
        """Let autocast copy a weight that is trained, where the frozen ones need no copy."""
        if self.batch.autocast or not self.tuning.autocast:
            return operation
        tape = Tape(self.batch)
        copy = weight_copy(tape, weight)
        self._add(tape.operations[0])
        return replace(
            operation,
            inputs=(*operation.inputs, copy),
            parameters=tuple([p for p in operation.parameters if p is not weight]),
            saved=(*operation.saved, copy),
        )

    def _weight(self, operation: Operation) -> Parameter | None:
        """Return the weight of a matmul, which under autocast stands with its copy."""
        own = next((p for p in operation.parameters if p.matmul), None)
        if operation.kernel == "matmul":
            copied = (self.weights[t] for t in operation.inputs if t in self.weights)
            return own or next(copied, None)
        if own is not None:
            self.weights |= dict.fromkeys(operation.outputs, own)
        return None

    def _add(self, operation: Operation, *, adapter: bool = False) -> None:
        """Take an operation in; what it makes asks for a gradient if anything it reads does."""
        inputs = tuple([self._current(t) for t in operation.inputs])
        parameters = tuple([self._parameter(p, adapter=adapter) for p in operation.parameters])
        shares = tuple([self._parameter(p, adapter=adapter) for p in operation.shares])
        weights = (*parameters, *shares)
        trained = any(p.gets_gradient for p in weights)
        asking = [t for t in inputs if t.differentiable]
        runs = trained or bool(asking)
        for tensor in operation.outputs:
            self.now[tensor] = self._made(tensor, runs=runs)
        lost = operation.exchanges and weights and not trained
        temporaries = () if lost else operation.backward_temporaries
        if operation.kernel == "attention":  # its kernel makes the gradients of q, k and v at once
            unasked = (t.bytes for t in inputs if not t.differentiable)
            temporaries = (*temporaries, *unasked)
        self.operations.append(
            replace(
                operation,
                inputs=inputs,
                outputs=tuple([self._current(t) for t in operation.outputs]),
                parameters=parameters,
                shares=shares,
                opens=tuple(self._summing(operation.opens)),
                closes=tuple(self._summing(operation.closes)),
                saved=tuple(self._saved(operation, inputs, trained=trained)) if runs else (),
                backward_temporaries=temporaries,
                wanted=min(2, len(asking) + trained),  # also of attention: q and k, then v
                runs_backward=runs or not operation.outputs,
            )
        )

    def _parameter(self, parameter: Parameter, *, adapter: bool) -> Parameter:
        trains = parameter.trainable and (adapter or parameter.role in self.trained)
        flattened = self.flattened and not (trains or parameter.packed_itemsize)
        summed: Summed = parameter.summed if trains or flattened else ""
        return replace(parameter, trainable=trains, summed=summed, flattened=flattened)

    def _summing(self, shared: tuple[Tensor, ...]) -> Iterator[Tensor]:
        """Yield what blocks still sum a gradient of: states of the stack before, a bias."""
        for tensor in shared:
            wanted = self.now[tensor].differentiable if tensor in self.now else self.biased
            if wanted:
                yield tensor

    def _saved(
        self, operation: Operation, inputs: tuple[Tensor, ...], *, trained: bool
    ) -> Iterator[Tensor]:
        """Yield what an operation still saves: an operand only for another one's gradient."""
        for tensor in operation.saved:
            now = self._current(tensor)
            others = [t for t in inputs if t is not now and t.differentiable]
            if not operation.exchanges or now not in inputs or trained or others:
                yield now

    def _made(self, tensor: Tensor, *, runs: bool) -> Tensor:
        """Return what an operation makes: without a gradient if nothing before asks for one."""
        if tensor.base is not None:
            base = self._current(tensor.base).storage
            view = replace(tensor, base=base, differentiable=runs and tensor.differentiable)
            self.now[view] = view
            return view
        return tensor if runs else replace(tensor, differentiable=False)

    def _current(self, tensor: Tensor) -> Tensor:
        """Return what stands in a tensor's place; of a view, the same view of that."""
        if tensor not in self.now:
            if tensor.base is None or tensor.base not in self.now:
                return tensor
            view = replace(tensor, base=self.now[tensor.base].storage)
            self.now |= {tensor: view, view: view}
        return self.now[tensor]

    def _asking(self, output: Tensor) -> Tensor:
        """Let what leaves the embedding ask for a gradient (`enable_input_require_grads`)."""
        asking = replace(output, differentiable=True)
        for place, operation in enumerate(self.operations):
            if output in operation.outputs:
                outputs = tuple([asking if t is output else t for t in operation.outputs])
                made = replace(operation, outputs=outputs, runs_backward=True)
                self.operations[place] = made
        return asking
