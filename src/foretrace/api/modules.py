"""A module of the user's own, as `estimate` takes it."""

from __future__ import annotations

from foretrace.capture import program_of
from foretrace.operators import ModuleProgram
from foretrace.workload import PlanDraft


def captured_for(named: str, draft: PlanDraft) -> ModuleProgram:
    """What a module runs under what is stated of a plan: its microbatch, sequence and tp.

    Args:
        named: "package.file:function", or "path/to/file.py:function".
        draft: sizes that it does not state are the function's own defaults.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        WorkloadError: if there is no such function, or its module cannot be captured.
    """
    plan = draft.plan()
    return program_of(
        named,
        micro_batch=plan.micro_batch if draft.states("micro_batch") else None,
        sequence=plan.sequence if draft.states("sequence") else None,
        tensor=plan.tensor,
    )
