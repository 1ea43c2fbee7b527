"""`Edited`: a job under edits, a value that is predicted when it is first asked about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from foretrace.base import NS_PER_MS, NetworkUse, Remembering, ScenarioError
from foretrace.whatif import Baseline, Remedies, baseline_of, tried_remedies, unprofiled

if TYPE_CHECKING:  # what a job without edits need not load
    from foretrace.api.estimates import EditableEstimate
    from foretrace.api.job import Job
    from foretrace.cost import CostModel
    from foretrace.graph import ExecutionGraph, Recording, Timeline
    from foretrace.machine import Chip, Machine
    from foretrace.simulate import Cores
    from foretrace.whatif import Edit, Prediction, Sizes, Unprofiled
    from foretrace.workload import Model, PlanDraft


@dataclass(frozen=True, kw_only=True, eq=False)
class Basis(Remembering):
    """A recording, and what was stated about the job that was recorded."""

    recording: Recording
    machine: Machine | None = None
    model: Model | None = None
    plan: PlanDraft | None = None
    sizes: Sizes | None = None
    costs: CostModel | None = None
    cores: Cores | None = None
    chip: Chip | None = None  # what the files name
    without_profiler: bool = False  # as the job runs when nobody records it
    network: NetworkUse = NetworkUse.PRIVATE

    @cached_property
    def baseline(self) -> Baseline:
        """What all predictions from it start from; made once.

        Raises:
            ScenarioError: if what is stated contradicts the recording, or what the profiler cost
                is not known.
        """
        if not self.without_profiler:
            return self._baseline_of(self.recording)
        found = unprofiled(self.recording)
        baseline = self._baseline_of(found.recording)
        program = replace(baseline.program, notes=(*baseline.program.notes, _note_on(found)))
        return replace(baseline, program=program, measured_step_ns=found.target_ns)

    @property
    def title(self) -> str:
        """As the job's."""
        return ""

    def predict(self, edits: tuple[Edit, ...], name: str) -> Prediction:
        """The recorded job with these edits."""
        from foretrace.whatif import predict  # here: advice predicts no more than step times

        return predict(self.baseline, edits, name=name)

    def _baseline_of(self, recording: Recording) -> Baseline:
        return baseline_of(
            recording,
            machine=self.machine,
            model=self.model,
            plan=self.plan,
            sizes=self.sizes,
            costs=self.costs,
            cores=self.cores,
            chip=self.chip,
            network=self.network,
        )


def _note_on(found: Unprofiled) -> str:
    return (
        f"without the profiler: {found.event_ns:,} ns taken off for each recorded host event, so "
        f"that a step is as long as the {found.target_ns / NS_PER_MS:,.3f} ms that were measured "
        "without it"
    )


@dataclass(frozen=True, eq=False)
class Edited:
    """A job, and what is to be different about it; `edit` of a job or an estimate makes it."""

    job: Job | None  # `None`: of an estimate
    edits: tuple[Edit, ...]
    basis: Basis | EditableEstimate
    name: str = ""  # of the scenario, for tables

    @cached_property
    def prediction(self) -> Prediction:
        """The answer; made when first asked for.

        Raises:
            ScenarioError: if an edit is illegal, or cannot be made to this recording.
        """
        return self.basis.predict(self.edits, self.name)

    def predict(self) -> Prediction:
        """The answer: the step before and after, why, and how sure."""
        return self.prediction

    def edit(self, *edits: Edit, name: str = "") -> Edited:
        """The same job with further edits; nothing about the recording is worked out again.

        Args:
            edits: beside those that were made.
            name: of the scenario, for tables; what it was, if left out.
        """
        return replace(self, edits=(*self.edits, *edits), name=name or self.name)

    @property
    def timeline(self) -> Timeline:
        """When each node of the edited job starts and ends."""
        return self.prediction.timeline

    @property
    def graph(self) -> ExecutionGraph:
        """Who waits for whom in the edited job."""
        return self.timeline.graph

    @property
    def title(self) -> str:
        """The job's title, and the scenario's name."""
        title = self.basis.title if self.job is None else self.job.title
        return f"{title}: {self.name}" if self.name else title

    def _repr_html_(self) -> str:
        """What a notebook shows: the prediction."""
        return self.prediction._repr_html_()

    def __repr__(self) -> str:
        """One line: which job, which edits."""
        return f"Edited({self.title}, {', '.join(map(repr, self.edits)) or 'no edits'})"


def remedies(subject: Job | Edited) -> Remedies:
    """Real changes, each tried as a what-if; those that shorten the step, the best first.

    Args:
        subject: a job; or one of which something is stated, without edits: `job.edit(machine=...)`.

    Raises:
        ScenarioError: if it is an estimate, has edits, or its steps take no time.
    """
    return basis_of(subject, "changes are tried on").once(_tried_on)


def _tried_on(basis: Basis) -> Remedies:
    memory_bytes = None if basis.chip is None else basis.chip.memory_bytes
    return tried_remedies(basis.baseline, memory_bytes=memory_bytes)


def basis_of(subject: Job | Edited, doing: str) -> Basis:
    """A recording without edits, with what is stated about it.

    Raises:
        ScenarioError: if it is an estimate, or has edits.
    """
    base = subject if isinstance(subject, Edited) else subject.edit()
    if not isinstance(base.basis, Basis) or base.edits:
        raise ScenarioError(
            f"{doing} a recording without edits: give the job itself, or state what it is with "
            "`job.edit(machine=...)`"
        )
    return base.basis
