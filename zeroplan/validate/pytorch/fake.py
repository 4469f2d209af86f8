"""A real step of the real framework on fake tensors, at the run's own world size."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from zeroplan.schedule.plan import Plan
from zeroplan.spec.architecture import Architecture
from zeroplan.validate.pytorch import ddp, fsdp2
from zeroplan.validate.pytorch.checkpointing import checkpoint_blocks
from zeroplan.validate.pytorch.decoder import Decoder
from zeroplan.validate.pytorch.environment import DTYPES, fake_group, fake_tensors, stored_as
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.optimizers import optimizer_factory
from zeroplan.validate.pytorch.step import Setup, observe, probe
from zeroplan.validate.pytorch.subject import Subject
from zeroplan.validate.record import Observation

__all__ = ["fake_step"]


def own(architecture: Architecture, plan: Plan) -> Subject:
    batch = plan.workload.batch
    module = Decoder(architecture, batch, DTYPES[batch.dtype])
    return Subject(
        module=module,
        embeddings=module.embeddings,
        blocks=module.blocks,
        tail=(module.norm, module.head),
        logits=lambda x: x,
        tied=module.head.weight is module.embeddings.weight,
    )


def fake_step(architecture: Architecture, plan: Plan) -> Observation:
    ranks = int(plan.groups.world.ranks)
    with fake_group(ranks):
        with stored_as(DTYPES[plan.training.parameter_dtype]), torch.device("meta"):
            subject = own(architecture, plan)
        checkpoint_blocks(subject.blocks, plan.training)
        module = subject.module
        if plan.row.framework == "fsdp2":
            module = fsdp2.shard(subject, plan)
        with fake_tensors() as mode:
            ledger = Ledger(mode)
            with ledger:
                materialise(module)
                if plan.row.framework in ("ddp", "torch-zero1"):
                    order = ddp.gradient_order(module, partial(probe, module, subject, plan))
                    module = ddp.data_parallel(module, plan, order)
            return observe(setup_of(subject, module, plan), ledger)


def materialise(module: nn.Module) -> None:
    """Give memory to a module on the meta device; tied parameters stay tied."""
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = defaultdict(list)
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            places[parameter].append((part, name))
    module.to_empty(device="cpu")
    for (first, name), *others in places.values():
        for part, other in others:
            setattr(part, other, getattr(first, name))


def setup_of(subject, module, plan):
    made = optimizer_factory(plan.training)
    if plan.row.framework == "fsdp2":

        def micro(last):
            fsdp2.before_micro_step(module, plan, last=last)
            return nullcontext()
    else:
        micro = ddp.micro_step(module, plan)
    optimizer = None
    if made:
        if plan.row.framework == "torch-zero1":
            optimizer = ZeroRedundancyOptimizer(
                module.parameters(),
                made[0],
                parameters_as_bucket_view=plan.choice.parameters_as_bucket_view,
                **made[1],
            )
        else:
            optimizer = made[0](module.parameters(), **made[1])
    return Setup(
        plan=plan,
        module=module,
        optimizer=optimizer,
        logits=subject.logits,
        micro_step=micro,
        clip=lambda c: torch.nn.utils.clip_grad_norm_(module.parameters(), c, foreach=True),
    )
