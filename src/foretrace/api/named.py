"""Machines, models and plans by name, by file, or as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from foretrace.machine import Machine, load_machine
from foretrace.workload import Model, PlanDraft

Named: TypeAlias = str | Path


def machine_named(machine: Machine | Named | None, folders: Sequence[Path]) -> Machine | None:
    """The machine; `None` stays.

    Raises:
        MachineError: if there is none of that name.
    """
    return load_machine(machine, folders) if isinstance(machine, str | Path) else machine


def model_named(model: Model | Named | None, folders: Sequence[Path]) -> Model | None:
    """The model; `None` stays.

    Raises:
        WorkloadError: if there is none of that name.
    """
    if not isinstance(model, str | Path):
        return model
    from foretrace.workload import load_model  # here: what nobody names need not be loaded

    return load_model(model, folders)


def draft_named(
    plan: PlanDraft | Mapping[str, object] | Named | None, folders: Sequence[Path]
) -> PlanDraft | None:
    """What is stated of a plan; `None` stays.

    Raises:
        WorkloadError: if there is none of that name, or it has no such key.
    """
    if plan is None or isinstance(plan, PlanDraft):
        return plan
    if isinstance(plan, str | Path):
        from foretrace.workload import load_plan  # as above

        return load_plan(plan, folders)
    return PlanDraft().with_keys(plan)
