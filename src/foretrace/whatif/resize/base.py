"""`base_scenario`: a job as it was recorded, as the scenario that edits begin with."""

from __future__ import annotations

from dataclasses import replace

from foretrace.machine import Machine
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.resize.read import read_sizes
from foretrace.whatif.resize.sizes import Sizes
from foretrace.whatif.scenario import Scenario


def base_scenario(
    program: Program,
    *,
    machine: Machine | None = None,
    sizes: Sizes | None = None,
    micro_batch: int | None = None,
    sequence: int | None = None,
) -> Scenario:
    """The recorded job: its sizes, its plan with the microbatch that shapes show, its machine.

    Args:
        program: what was recorded.
        machine: what it ran on, if known.
        sizes: stated ones; they win over what shapes show.
        micro_batch: sequences of a microbatch, likewise.
        sequence: tokens of a sequence, likewise.

    Raises:
        ScenarioError: if stated sizes contradict the shapes.
    """
    read = read_sizes(program, stated=sizes)
    plan = program.plan
    micro = micro_batch or read.micro_batch or plan.micro_batch
    precision = plan.precision
    if read.dtype:
        precision = replace(precision, products=read.dtype, activations=read.dtype)
    new = replace(
        plan,
        micro_batch=micro,
        global_batch=plan.num_microbatches * micro * plan.data,
        sequence=sequence or read.sequence or plan.sequence,
        precision=precision,
    )
    return Scenario(sizes=read.sizes, plan=new, machine=machine)
