"""`substitute`: rules of substitution, tried on a job or an estimate."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.api.edited import Basis, Edited
from foretrace.api.estimates import EditableEstimate
from foretrace.api.job import Job
from foretrace.base import ScenarioError
from foretrace.whatif import OwnKernel, Substitutable, Substitutes, outcome, tried_substitutes


def substitute(
    subject: Job | Edited | EditableEstimate, kernels: Sequence[OwnKernel] = ()
) -> Substitutes:
    """Every rule of substitution against every family of kernels, what is worth most first.

    Args:
        subject: a job, one of which a machine is stated, or an estimate; without edits.
        kernels: operators in index notation, and the kernels of the job that they describe: these
            are placed under the roofline.

    Raises:
        ScenarioError: if it has edits, or names no chip that is known.
    """
    base = subject if isinstance(subject, Edited) else subject.edit()
    if base.edits:
        raise ScenarioError("rules are tried on a job without edits: give the job itself")
    basis = base.basis
    tried_on = _recorded(basis) if isinstance(basis, Basis) else _estimated(basis)
    return tried_substitutes(tried_on, kernels)


def _recorded(basis: Basis) -> Substitutable:
    """What rules are tried on of a recording."""
    found = basis.baseline
    return Substitutable(
        timeline=found.replayed,
        step_ns=found.replayed_step_ns,
        num_ranks=found.before.plan.num_ranks,
        chip=found.chip,
        step_ns_with=lambda edit: outcome(found, edit.applied(found.before)).step_ns,
    )


def _estimated(basis: EditableEstimate) -> Substitutable:
    """What rules are tried on of an estimate."""
    return Substitutable(
        timeline=basis.timeline,
        step_ns=basis.step_ns,
        num_ranks=basis.plan.num_ranks,
        chip=basis.machine.chip,
        step_ns_with=lambda edit: basis.predict((edit,)).step_ns,
    )
