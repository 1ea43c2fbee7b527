"""What predicts durations in a published run: kernels under lasting load, of its software."""

from __future__ import annotations

from foretrace.cost import CostModel, step_costs
from foretrace.machine import Machine
from foretrace.validate.runs.left_out import products_factor
from foretrace.validate.runs.software import software_of
from foretrace.validate.runs.table import PublishedRun


def costs_of(run: PublishedRun, machine: Machine) -> CostModel:
    """The cost model of a run on its machine, with nothing that its own source taught."""
    return step_costs(
        machine,
        products=products_factor(machine.chip.architecture, run.family),
        slower={"attention": software_of(run).attention_factor},
    )


def costs_without_runs(run: PublishedRun, machine: Machine) -> CostModel:
    """The same without what any published run taught: what the constants are fitted around."""
    return step_costs(
        machine, products=1.0, slower={"attention": software_of(run).attention_factor}
    )
