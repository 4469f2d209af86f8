"""A step of the real framework on fake tensors, at the run's own world size."""

import torch

from zeroplan.errors import MissingPartError
from zeroplan.estimation.resolve import Question
from zeroplan.schedule.plan import Plan
from zeroplan.validate.pytorch.environment import by_reference_counts, fake_group, fake_tensors
from zeroplan.validate.pytorch.ledger import Ledger
from zeroplan.validate.pytorch.offload import two_sides
from zeroplan.validate.pytorch.optimizers import fullest_rank
from zeroplan.validate.pytorch.reference import frozen_plan
from zeroplan.validate.pytorch.setup import make_setup, make_subject
from zeroplan.validate.pytorch.step import observe
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
    subject = make_subject(question, plan, model_class)
    ranks = int(plan.groups.world.ranks)
    with fake_group(ranks, 0):
        rank = fullest_rank(subject.module, plan)
    frozen = frozen_plan(plan)
    copy = None if frozen is None else make_subject(question, frozen, model_class)
    with fake_group(ranks, rank):
        return _observed(subject, plan, copy)


def _observed(subject: Subject, plan: Plan, copy: Subject | None) -> Observation:
    try:
        with by_reference_counts(), fake_tensors() as mode:
            ledger = Ledger(mode)
            with ledger, ledger.following_resizes(), subject.conditions(), two_sides(ledger, plan):
                return observe(make_setup(subject, plan, copy, ledger), ledger)
    except RuntimeError as error:  # what PyTorch raises for a combination that it does not have
        reason, *_ = str(error).splitlines()
        raise MissingPartError(f"torch {torch.__version__} cannot run this: {reason}") from error
