"""A real step of the real framework on fake tensors, at the run's own world size."""

from contextlib import nullcontext

import torch
from torch import nn

from zeroplan.schedule.plan import Plan
from zeroplan.spec.architecture import Architecture
from zeroplan.validate.pytorch import fsdp2
from zeroplan.validate.pytorch.checkpointing import checkpoint_blocks
from zeroplan.validate.pytorch.decoder import Decoder
from zeroplan.validate.pytorch.environment import DTYPES, fake_group, fake_tensors, stored_as
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.optimizers import optimizer_factory
from zeroplan.validate.pytorch.step import Setup, observe
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
        module = fsdp2.shard(subject, plan)
        with fake_tensors() as mode:
            ledger = Ledger(mode)
            with ledger:
                module.to_empty(device="cpu")
            return observe(setup_of(subject, module, plan), ledger)


def setup_of(subject, module, plan):
    made = optimizer_factory(plan.training)
    def micro(last):
        fsdp2.before_micro_step(module, plan, last=last)
        return nullcontext()
    return Setup(
        plan=plan, module=module,
        optimizer=made[0](module.parameters(), **made[1]) if made else None,
        logits=subject.logits, micro_step=micro,
        clip=lambda c: torch.nn.utils.clip_grad_norm_(module.parameters(), c, foreach=True),
    )
