"""Memory before and after an edit, where the model is stated."""

from __future__ import annotations

from foretrace.base import WorkloadError
from foretrace.whatif.edited_model import model_with
from foretrace.whatif.prediction import Memory
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Footprint, Model, Transformer, footprint, schedule_of


def memory_of(model: Model | None, before: Scenario, after: Scenario) -> Memory | None:
    """What the worst rank holds, before and after; `None` where no transformer was stated."""
    if not isinstance(model, Transformer):
        return None
    try:
        return Memory(_footprint(model, before), _footprint(model, after))
    except WorkloadError:
        return None


def _footprint(model: Transformer, scenario: Scenario) -> Footprint:
    chip = None if scenario.machine is None else scenario.machine.chip
    edited = model_with(model, scenario.sizes)
    return footprint(edited, scenario.plan, schedule_of(scenario.plan), chip=chip)
