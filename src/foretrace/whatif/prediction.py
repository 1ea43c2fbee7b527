"""`Prediction`: a job as it was replayed, the same job edited, and what makes the difference."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretrace.cost import Costs
from foretrace.graph import Timeline
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Footprint


@dataclass(frozen=True)
class EditEffect:
    """What one edit does to the step, made after those before it."""

    edit: Edit
    sentence: str  # one line: what it changes, and what it cannot know
    step_ns: int  # with this edit and those before it
    change_ns: int


@dataclass(frozen=True)
class Memory:
    """Memory before and after, of the worst stage; `None` where no model was stated."""

    before: Footprint
    after: Footprint


@dataclass(frozen=True)
class Prediction:
    """The answer to a what-if.

    All times are of the job's step: from the end of the step before on all ranks to its own;
    the mean over the recorded steps.
    """

    name: str
    before: Scenario
    after: Scenario
    effects: tuple[EditEffect, ...]  # in the order in which edits were given
    replayed: Timeline  # of the recording
    timeline: Timeline  # of the edited job
    costs: Costs  # of the edited graph's nodes: durations, intervals, sources
    measured_step_ns: int  # of the recording
    replayed_step_ns: int
    step_ns: int  # predicted
    low_ns: int  # 10th percentile
    high_ns: int  # 90th
    method: str  # "arranged": from recorded pieces; "scaled": by the ratio of two estimates
    memory: Memory | None = None
    notes: tuple[str, ...] = field(default=())
