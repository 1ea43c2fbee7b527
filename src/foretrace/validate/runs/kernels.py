"""What predicts durations in a published run: fitted kernels, as much slower as steps make them.

Every factor comes from elsewhere than the runs that are predicted with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.cost import CostModel, FittedCosts, Slower
from foretrace.machine import Machine
from foretrace.validate.runs.software import software_of
from foretrace.validate.runs.table import PublishedRun

# Products within a model, kernel after kernel, over the same products alone. Ampere and Hopper:
# medians over all products of 2e10 and more multiply-adds that Vidur profiled inside models
# (microsoft/vidur, data/profiling/compute; A100 1,230 rows, H100 752), against the model fitted to
# benchmarks of single products. Blackwell: nobody published such a table; taken as Hopper.
_PRODUCTS_IN_MODEL = {"Ampere": 1.10, "Hopper": 1.14, "Blackwell": 1.14}


def costs_of(run: PublishedRun, machine: Machine) -> CostModel:
    """The cost model of a run on its machine."""
    factors: Mapping[str, float] = {
        "gemm": _PRODUCTS_IN_MODEL.get(machine.chip.architecture, 1.0),
        "attention": software_of(run).attention_factor,
    }
    return Slower(FittedCosts(machine), factors)
