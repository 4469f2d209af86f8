"""Every term of one strategy's estimate, and what would change it."""

from pathlib import Path

from zeroplan.estimation.choice import choose
from zeroplan.estimation.explain_assumptions import sensitivities
from zeroplan.estimation.explain_case import case_of
from zeroplan.estimation.explain_host import host_terms
from zeroplan.estimation.explain_peak import buffers_at_peak, highest, moment, next_moments
from zeroplan.estimation.explain_record import Explanation
from zeroplan.estimation.explain_remedies import remedies
from zeroplan.estimation.explain_terms import deepspeed_accounting, memory_terms
from zeroplan.estimation.explain_times import time_terms
from zeroplan.estimation.resolve import resolve
from zeroplan.spec.run import Run
from zeroplan.spec.toml import load_spec

__all__ = ["explain"]


def explain(run: Run | None = None, *, profiles: Path | None = None, **keys: object) -> Explanation:
    """Explain one strategy's estimate: the peak, its terms, what lowers it, what it rests on.

    Parameters
    ----------
    run
        The question; without one it is made of the keys. Where it names no strategy, the fastest
        that fits is explained, else the one that needs least memory.
    profiles
        Folder whose hardware profiles come before the shipped ones.
    **keys
        Keys of the spec file by name; `model` is the model's source.

    Raises
    ------
    SpecError
        The question names something unknown, contradictory or not modelled.

    Examples
    --------
    >>> explain(model="8b", gpus=8, strategy="fsdp2").peak.phase
    'backward'

    """
    chosen = choose(resolve(load_spec(**keys) if run is None else run, profiles))
    case = case_of(chosen.question, chosen.estimate, profiles)
    phase, peak = highest(case.found.phases)
    buffers = buffers_at_peak(case.step, phase, peak)
    return Explanation(
        inputs=chosen.inputs,
        chosen=chosen.why,
        estimate=chosen.estimate,
        peak=moment(phase, peak, peak.bytes),
        buffers=buffers,
        next_moments=next_moments(case.step, peak),
        remedies=remedies(case),
        memory_terms=memory_terms(case),
        host_terms=host_terms(case),
        accounting=deepspeed_accounting(case, buffers),
        time_terms=time_terms(case),
        sensitivities=sensitivities(case),
        notes=chosen.notes,
    )
