"""`Scenario`: everything that a what-if can change about a job, as one value.

An edit maps a scenario to a scenario. A prediction depends on the last one alone, never on the
way to it: so edits of different things commute, an edit back to what was recorded is no edit,
and the order in which changes are made is always this: model sizes, batch, plan, machine,
durations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretrace.whatif.edits.edit import WorkEdit
from foretrace.whatif.resize.named import Sizes
from foretrace.workload import Plan

if TYPE_CHECKING:  # what a job whose machine nobody states need not load
    from foretrace.machine import Machine


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A job as it is to be predicted."""

    sizes: Sizes
    plan: Plan  # degrees, microbatch, global batch, sequence, schedule, buckets, overlap, ...
    machine: Machine | None = None  # what it runs on; `None`: nobody said
    changes: tuple[WorkEdit, ...] = field(default=())
