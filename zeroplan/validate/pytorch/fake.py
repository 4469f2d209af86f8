"""A step of the real framework on fake tensors, at the run's own world size."""

import torch

from zeroplan.errors import MissingPartError
from zeroplan.estimation.resolve import Question
from zeroplan.schedule.plan import Plan
from zeroplan.spec.models import model_keys
from zeroplan.validate.pytorch.adapters import constants, tune
from zeroplan.validate.pytorch.environment import DTYPES, fake_group, fake_tensors, on_meta
from zeroplan.validate.pytorch.frameworks import wrap
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.model import own
from zeroplan.validate.pytorch.offload import two_sides
from zeroplan.validate.pytorch.optimizers import fullest_rank, make_optimizer
from zeroplan.validate.pytorch.published import published
from zeroplan.validate.pytorch.reference import frozen_copy, frozen_plan
from zeroplan.validate.pytorch.step import Setup, batches, observe
from zeroplan.validate.pytorch.subject import Subject
from zeroplan.validate.record import ModelClass, Observation

__all__ = ["fake_step"]


def fake_step(question: Question, plan: Plan, model_class: ModelClass) -> Observation:
    """Return what one step of one rank, the fullest, shows.

    Raises
    ------
    MissingPartError
        The module has no such layer, or PyTorch refuses the combination.
    """
    subject = _subject(question, plan, model_class)
    ranks = int(plan.groups.world.ranks)
    with fake_group(ranks, 0):
        rank = fullest_rank(subject.module, plan)
    frozen = frozen_plan(plan)
    copy = None if frozen is None else _subject(question, frozen, model_class)
    with fake_group(ranks, rank):
        return _observed(subject, plan, copy)


def _observed(subject: Subject, plan: Plan, copy: Subject | None) -> Observation:
    try:
        with fake_tensors() as mode:
            ledger = Ledger(mode)
            with ledger, ledger.following_resizes(), subject.conditions(), two_sides(ledger, plan):
                return observe(_setup(subject, plan, copy, ledger), ledger)
    except RuntimeError as error:  # what PyTorch raises for a combination that it does not have
        reason, *_ = str(error).splitlines()
        raise MissingPartError(f"torch {torch.__version__} cannot run this: {reason}") from error


def _subject(question: Question, plan: Plan, model_class: ModelClass) -> Subject:
    with on_meta(DTYPES[plan.training.parameter_dtype]):
        if model_class == "own":
            subject = own(question.architecture, plan)
        else:
            keys = model_keys(question.run.model.source)
            subject = published(keys, question.architecture, plan)
        tune(subject, plan, question.run.tuning)
        return subject


def _setup(subject: Subject, plan: Plan, copy: Subject | None, ledger: Ledger) -> Setup:
    module = wrap(subject, plan)
    if plan.offload:
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
