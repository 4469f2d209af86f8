"""The one table of what each strategy divides; nothing else in zeroplan knows a ZeRO stage.

Sources: ZeRO (arXiv 1910.02054, section 5), deepspeed/runtime/zero (0.19.8),
torch/distributed/fsdp/_fully_shard and _flat_param.py (2.13), torch/nn/parallel/distributed.py and
torch/distributed/optim/zero_redundancy_optimizer.py (2.13).
"""

from typing import Literal

from zeroplan.errors import SpecError
from zeroplan.records import dataclass
from zeroplan.spec.run import Strategy

__all__ = ["COMPARED", "STRATEGIES", "Framework", "Sharding", "sharding"]

Framework = Literal["single", "ddp", "torch-zero1", "deepspeed", "fsdp1", "fsdp2"]
Padding = Literal["none", "flat", "dim0", "per-parameter", "even", "packed"]
Offloads = Literal["nothing", "optimizer", "optimizer or parameters", "everything"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What a strategy divides among the ranks of its shard group, and how."""

    strategy: Strategy
    title: str
    framework: Framework
    divides_parameters: bool = False
    divides_gradients: bool = False
    divides_optimizer: bool = False
    padding: Padding = "none"
    """none; flat: the parameter group to a multiple of 2N; dim0: each parameter's rows to N;
    per-parameter: each parameter's elements to N; even: all elements to N; packed: whole parameters
    dealt to ranks, none of them padded."""
    replicates: bool = False
    """Shards inside groups and copies across them (HSDP)."""
    distributed: bool = True
    offloads: Offloads = "nothing"
    """What can live in host memory; everything: parameters, gradients and states, all or none."""

    @property
    def steps_without_states(self) -> bool:
        """Whether the first step runs before there are optimizer states.

        torch.optim makes them in its first update, DeepSpeed in `initialize_optimizer_states`.
        """
        return self.framework != "deepspeed"


STRATEGIES = {
    row.strategy: row
    for row in (
        Sharding(strategy="none", title="one GPU", framework="single", distributed=False),
        Sharding(strategy="ddp", title="DDP", framework="ddp"),
        Sharding(strategy="zero0", title="ZeRO-0", framework="deepspeed"),
        Sharding(
            strategy="zero1",
            title="ZeRO-1",
            framework="deepspeed",
            divides_optimizer=True,
            padding="flat",
            offloads="optimizer",
        ),
        Sharding(
            strategy="zero2",
            title="ZeRO-2",
            framework="deepspeed",
            divides_gradients=True,
            divides_optimizer=True,
            padding="flat",
            offloads="optimizer",
        ),
        Sharding(
            strategy="zero3",
            title="ZeRO-3",
            framework="deepspeed",
            divides_parameters=True,
            divides_gradients=True,
            divides_optimizer=True,
            padding="per-parameter",
            offloads="optimizer or parameters",
        ),
        Sharding(
            strategy="fsdp1",
            title="FSDP1",
            framework="fsdp1",
            divides_parameters=True,
            divides_gradients=True,
            divides_optimizer=True,
            padding="even",
            offloads="everything",
        ),
        Sharding(
            strategy="fsdp2",
            title="FSDP2",
            framework="fsdp2",
            divides_parameters=True,
            divides_gradients=True,
            divides_optimizer=True,
            padding="dim0",
            offloads="everything",
        ),
        Sharding(
            strategy="hsdp",
            title="HSDP",
            framework="fsdp2",
            divides_parameters=True,
            divides_gradients=True,
            divides_optimizer=True,
            padding="dim0",
            offloads="everything",
            replicates=True,
        ),
        Sharding(
            strategy="torch-zero1",
            title="DDP + ZeroRedundancyOptimizer",
            framework="torch-zero1",
            divides_optimizer=True,
            padding="packed",
        ),
    )
}

COMPARED: tuple[Strategy, ...] = ("ddp", "zero1", "zero2", "zero3", "fsdp2", "hsdp")
"""What is laid side by side where no strategy is named."""


def sharding(strategy: Strategy) -> Sharding:
    """Return a strategy's row of the table; SpecError for one that is not modelled yet."""
    if strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise SpecError(
            f"sharding.strategy: {strategy!r} is not modelled by this version; use one of {known}"
        )
    return STRATEGIES[strategy]
