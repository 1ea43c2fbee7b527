"""`Baseline`: what all predictions about one recording start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from foretrace import workload
from foretrace.analyze import step_time_ns
from foretrace.base import NetworkUse, ScenarioError
from foretrace.cost import CostModel
from foretrace.graph import Recording, Timeline
from foretrace.machine import Chip
from foretrace.simulate import Cores, alone_ns, simulate, simulate_shared
from foretrace.whatif import arrange
from foretrace.whatif.arrange.arranged import Arranged, unchanged
from foretrace.whatif.inflation import Slowdowns, slowdowns_of
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.recorded.read import program_of
from foretrace.whatif.resize.named import Sizes
from foretrace.whatif.resize.read import read_sizes
from foretrace.whatif.resize.resized import Resizing, resizing
from foretrace.whatif.scenario import Scenario
from foretrace.workload import PlanDraft

if TYPE_CHECKING:  # what recordings of which no machine and no model is stated need not load
    from foretrace.machine import Machine
    from foretrace.whatif.recorded_links import RecordedLinks
    from foretrace.workload import Model, Transformer


@dataclass(frozen=True)
class Baseline:
    """What predictions about one recording start from; made once for many of them."""

    program: Program
    before: Scenario
    replayed: Timeline
    measured_step_ns: int
    replayed_step_ns: int
    costs: CostModel | None  # `None`: what the recording itself shows
    cores: Cores | None
    model: Model | None
    chip: Chip | None = None  # what the files name, or the stated machine has
    network: NetworkUse = NetworkUse.PRIVATE

    @property
    def transformer(self) -> Transformer | None:
        """The stated model, if layers can be made of it."""
        if self.model is None or not isinstance(self.model, workload.Transformer):
            return None
        return self.model

    @cached_property
    def links(self) -> RecordedLinks | None:
        """Those that transfers share; `None`: each finds its links empty."""
        machine = self.before.machine
        if self.network is NetworkUse.PRIVATE or machine is None:
            return None
        from foretrace.whatif.recorded_links import RecordedLinks  # here: where links are shared

        return RecordedLinks.of(self.replayed, self.before.plan, machine)

    def costed(self, scenario: Scenario) -> Scenario:
        """The scenario as cost models are asked: where links are shared, of empty ones."""
        machine = scenario.machine
        if machine is None or self.links is None:
            return scenario
        return replace(scenario, machine=machine.unshared())

    @cached_property
    def slowdowns(self) -> Slowdowns:
        """How much slower communication beside them made its kernels."""
        return slowdowns_of(self.replayed)

    @cached_property
    def as_recorded(self) -> tuple[Arranged, Resizing]:
        """The recorded job as it is: what edits of work alone begin with."""
        return self._with_its_shapes(unchanged(self.program.graph))

    @cached_property
    def as_settled(self) -> tuple[Arranged, Resizing]:
        """The same of a job without devices, whose waits were seen only where one had to wait.

        Where work changes, others may have to.
        """
        job = replace(arrange.same_job(self.program), settles=True)
        return self._with_its_shapes(arrange.arranged(self.program, job))

    def _with_its_shapes(self, start: Arranged) -> tuple[Arranged, Resizing]:
        return start, resizing(start, self.program, self.before, self.before, costs=self.costs)


def baseline_of(
    recording: Recording,
    *,
    machine: Machine | None = None,
    model: Model | None = None,
    plan: PlanDraft | None = None,
    sizes: Sizes | None = None,
    costs: CostModel | None = None,
    cores: Cores | None = None,
    chip: Chip | None = None,
    network: NetworkUse = NetworkUse.PRIVATE,
) -> Baseline:
    """What a recording's predictions start from.

    Args:
        recording: of any number of ranks of one job.
        machine: what it ran on.
        model: what was trained, for memory, and for what pieces cannot answer.
        plan: keys of its plan that the recording does not show, or shows wrongly.
        sizes: widths of the model, where its shapes do not tell.
        costs: what predicts durations at other sizes; the machine's, if that is stated, else what
            the recording itself shows.
        cores: processor cores that the recorded ranks shared, where the host is what computes.
        chip: what the files name; that of the machine, if left out.
        network: whether transfers that meet on a link of the machine divide it.

    Raises:
        ScenarioError: if what is stated contradicts the recording, or its steps take no time.
    """
    measured_step_ns = step_time_ns(recording.measured)
    replayed = simulate(recording.graph)
    if min(measured_step_ns, step_time_ns(replayed)) <= 0:
        raise ScenarioError(
            "the recording's steps take no time, so nothing can be scaled: its files hold no "
            "durations, or steps without any work; load the profiler's own files of whole steps"
        )
    if machine is not None and not recording.graph.has_device:
        raise ScenarioError(
            f"the recording shows no device, only work of CPUs, so that its times say nothing of "
            f"{machine.chip.name} of {machine.name}: leave the machine out (--machine) for what "
            "the recording itself shows, or record the job with its device's activity"
        )
    if network is NetworkUse.SHARED and machine is None:
        raise ScenarioError(
            "which links transfers share is the machine's to say: state the one that was recorded "
            "(--machine, machine=)"
        )
    if cores is not None:
        graph = replace(recording.graph, measured_ns=alone_ns(replayed, cores))
        recording = replace(recording, graph=graph)
        replayed = simulate_shared(graph, graph.measured_ns, cores)
    if costs is None and machine is not None:
        from foretrace.cost import step_costs  # here: a recording alone needs no fitted models

        costs = step_costs(machine.unshared() if network is NetworkUse.SHARED else machine)
    program = program_of(recording, stated=plan)
    return Baseline(
        program=program,
        before=base_scenario(program, machine=machine, sizes=sizes),
        replayed=replayed,
        measured_step_ns=measured_step_ns,
        replayed_step_ns=step_time_ns(replayed),
        costs=costs,
        cores=cores,
        model=model,
        chip=chip if machine is None else machine.chip,
        network=network,
    )


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
