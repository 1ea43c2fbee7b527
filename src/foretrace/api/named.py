"""Machines, models, plans, software and modules of users by name, by file, or as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from foretrace import machine as machines
from foretrace.workload import PlanDraft

if TYPE_CHECKING:  # what nobody names need not be loaded
    from foretrace.machine import Machine
    from foretrace.operators import ModuleProgram
    from foretrace.software import TrainingSoftware
    from foretrace.workload import Model

Named: TypeAlias = str | Path


def machine_named(machine: Machine | Named, folders: Sequence[Path]) -> Machine:
    """The machine.

    Raises:
        MachineError: if there is none of that name.
    """
    return machines.load_machine(machine, folders) if isinstance(machine, str | Path) else machine


def model_named(model: Model | Named, folders: Sequence[Path]) -> Model:
    """The model.

    Raises:
        WorkloadError: if there is none of that name.
    """
    if not isinstance(model, str | Path):
        return model
    from foretrace.workload import load_model  # here: what nobody names need not be loaded

    return load_model(model, folders)


def draft_named(
    plan: PlanDraft | Mapping[str, object] | Named, folders: Sequence[Path]
) -> PlanDraft:
    """What is stated of a plan: as keys, by a name, in a file.

    Raises:
        WorkloadError: if there is none of that name, or it has no such key.
    """
    if isinstance(plan, PlanDraft):
        return plan
    if isinstance(plan, str | Path):
        from foretrace.workload import load_plan  # as above

        return load_plan(plan, folders)
    return PlanDraft().with_keys(plan)


def software_named(
    software: TrainingSoftware | Named | None, folders: Sequence[Path]
) -> TrainingSoftware | None:
    """The training software; `None` stays.

    Raises:
        WorkloadError: if its description is wrong.
    """
    if not isinstance(software, str | Path):
        return software
    from foretrace.software import software_called  # as above

    return software_called(str(software), folders)


def captured_for(named: str, draft: PlanDraft) -> ModuleProgram:
    """What a module runs under what is stated of a plan: its microbatch, sequence and tp.

    Args:
        named: "package.file:function", or "path/to/file.py:function".
        draft: sizes that it does not state are the function's own defaults.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        WorkloadError: if there is no such function, or its module cannot be captured.
    """
    from foretrace.capture import program_of  # as above

    plan = draft.plan()
    return program_of(
        named,
        micro_batch=plan.micro_batch if draft.states("micro_batch") else None,
        sequence=plan.sequence if draft.states("sequence") else None,
        tensor=plan.tensor,
    )
