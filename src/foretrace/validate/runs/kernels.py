"""What predicts durations in a published run: kernels under lasting load, of its software."""

from __future__ import annotations

from foretrace.cost import CostModel, step_costs
from foretrace.machine import Machine
from foretrace.validate.runs.software import software_of
from foretrace.validate.runs.table import PublishedRun


def costs_of(run: PublishedRun, machine: Machine) -> CostModel:
    """The cost model of a run on its machine."""
    factor = software_of(run).attention_factor
    return step_costs(machine, slower={"attention": factor})
