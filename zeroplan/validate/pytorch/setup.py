"""From a plan to a model that can be stepped."""

import torch

from zeroplan.estimation.resolve import Question
from zeroplan.schedule.plan import Plan
from zeroplan.spec.models import model_keys
from zeroplan.validate.pytorch.adapters import constants, tune
from zeroplan.validate.pytorch.environment import DTYPES, on_meta
from zeroplan.validate.pytorch.frameworks import wrap
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.model import own
from zeroplan.validate.pytorch.optimizers import make_optimizer
from zeroplan.validate.pytorch.published import published
from zeroplan.validate.pytorch.reference import frozen_copy
from zeroplan.validate.pytorch.step import Setup, batches
from zeroplan.validate.pytorch.subject import Subject
from zeroplan.validate.record import ModelClass

__all__ = ["make_setup", "make_subject"]


def make_subject(question: Question, plan: Plan, model_class: ModelClass) -> Subject:
    """Build a module on the meta device.

    Raises
    ------
    MissingPartError
        It has no such layer.
    """
    with on_meta(DTYPES[plan.training.parameter_dtype]):
        if model_class == "own":
            subject = own(question.architecture, plan)
        else:
            keys = model_keys(question.run.model.source)
            subject = published(keys, question.architecture, plan)
        tune(subject, plan, question.run.tuning)
        return subject


def make_setup(subject: Subject, plan: Plan, copy: Subject | None, ledger: Ledger | None) -> Setup:
    """Wrap a module and a frozen copy of it, give both memory, and make the optimizer."""
    module = wrap(subject, plan)
    if plan.offload and ledger is not None:
        ledger.send_to_host(module.parameters())
    optimizer = make_optimizer(module, torch.nn.ModuleList(subject.blocks), plan)
    if optimizer is not None and plan.updates_in_backward:
        optimizer.follow()
    if optimizer is not None and plan.training.ema != "none":
        optimizer.keep_averages()
    return Setup(
        reference=None if copy is None else frozen_copy(copy, plan),
        plan=plan,
        subject=subject,
        module=module,
        optimizer=optimizer,
        batches=batches(subject, plan),
        constants=constants(module),
    )
