"""`outcome`: one scenario of a recording, simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import newly_at_once_ns, step_time_ns, windows
from foretrace.base import NS_PER_MS, NotShownError, ScenarioError, WorkloadError, key_text
from foretrace.cost import Costs
from foretrace.estimate import SimulatedStep, interval
from foretrace.graph import Timeline
from foretrace.simulate import simulate, simulate_shared
from foretrace.whatif import arrange, rearrange
from foretrace.whatif.arrange.arranged import Arranged, unchanged
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.edits.changed import changed
from foretrace.whatif.edits.loading import DataLoading, loading_nodes
from foretrace.whatif.inflation import uninflated
from foretrace.whatif.resize.notes import resize_notes
from foretrace.whatif.resize.of_model import model_with
from foretrace.whatif.resize.resized import Resizing, costs_of, resizing
from foretrace.workload import plan_changes

if TYPE_CHECKING:  # what edits of recorded work alone need not load
    from foretrace.estimate import StepTraffic
    from foretrace.whatif.recorded.program import NewJob
    from foretrace.whatif.scenario import Scenario
    from foretrace.workload import Plan, Transformer

ARRANGED = "arranged"
SCALED = "scaled"
# What runs beside communication depends on how long kernels take, and the other way round. On
# generated jobs with contention 1.4 errors of up to 2.4% fall to 0.6% after one correction, to
# 0.06% after two; a third changes nothing for the better.
_NUM_CORRECTIONS = 2
_STEPS_TO_DIFFER = 2
# What edits miss otherwise, as a logarithmic width each way: with it 19 of the 21 runs of
# `foretrace validate live` lie inside their intervals (docs/accuracy.md). On the device, generated
# jobs are missed by 3% at most.
_MISSED = 0.05
# More ranks than recorded need links that the recording did not show. As far as published series of
# one job on 4 times as many chips go (docs/accuracy.md), what cost models do not know stays; each
# tenfold beyond is taken to be as uncertain as a step all of which is new (`scaled._CHANGED`).
_KNOWN_GROWTH, _PER_TENFOLD = 4.0, 0.25
# Of the device's work and of a step: what changes, and what stays, to a reader.
_TOLD, _STAYS = 0.05, 0.002
_WIDTH_80 = 1.2816  # of a normal distribution: its 90th percentile, in standard deviations

# By table; `None`: all of its keys.
_ARRANGEABLE: dict[str, tuple[str, ...] | None] = {
    "parallelism": ("tp", "cp", "dp", "pp", "ep", "etp", "order", "sequence_parallel"),
    "batch": None,
    "pipeline": None,
    "sharding": ("level", "ranks", "bucket_bytes"),
    "memory": None,
    "overlap": ("gradients",),
}

# Of layers alone: those of a stated model can take the place of recorded ones.
_OF_LAYERS = (("precision", "products"),)


@dataclass(frozen=True)
class ScenarioOutcome:
    """One scenario, simulated."""

    costs: Costs
    timeline: Timeline
    step_ns: int
    low_ns: int
    high_ns: int
    method: str
    notes: tuple[str, ...] = ()
    shared: SimulatedStep | None = None  # where transfers that meet on a link divide it
    at_once_ns: int = 0  # of a step: kernels beside others, as none was recorded to run


def outcome(baseline: Baseline, scenario: Scenario) -> ScenarioOutcome:
    """A scenario's step: arranged from recorded pieces, else scaled by the ratio of estimates.

    Raises:
        ScenarioError: if it is illegal, or no way to it is known.
    """
    is_same_job = replace(scenario, changes=()) == baseline.before
    try:
        job = None if is_same_job else _rearranged(baseline, scenario)
    except NotShownError as err:
        return _by_estimates(baseline, scenario, err)
    settles = scenario != baseline.before and not _has_device(baseline)
    if is_same_job:
        start, found = baseline.as_settled if settles else baseline.as_recorded
    else:
        if job is not None:
            start = arrange.arranged(baseline.program, job)
        elif settles:
            start, _ = baseline.as_settled
        else:
            start = unchanged(baseline.program.graph)
        found = resizing(
            start,
            baseline.program,
            baseline.costed(baseline.before),
            baseline.costed(scenario),
            costs=baseline.costs,
        )
    costs = costs_of(start, found)
    notes = (
        *(() if job is None else job.notes),
        *start.notes,
        *resize_notes(start, found, costs, baseline.before, scenario),
    )
    start, costs = changed(
        start,
        costs,
        scenario.changes,
        program=baseline.program,
        model=baseline.costs,
        plan=scenario.plan,
        transformer=_transformer(baseline, scenario),
        chip=baseline.chip if scenario.machine is None else scenario.machine.chip,
    )
    alone = costs
    traffic = _traffic(baseline, scenario, start, costs, found)
    timeline = _simulated(baseline, scenario, start, costs, traffic)
    for _ in range(_NUM_CORRECTIONS if scenario != baseline.before else 0):
        costs = uninflated(start, alone, baseline.slowdowns, timeline)
        timeline = _simulated(baseline, scenario, start, costs, traffic)
    done = SimulatedStep(timeline, costs, costs.duration_ns, traffic)
    step_ns = step_time_ns(timeline)
    edited = 0.0 if scenario == baseline.before else math.hypot(_MISSED, _grown(baseline, scenario))
    unmodelled = _unmodelled(baseline, edited)
    low_ns, high_ns = _ends(done, step_ns, unmodelled=unmodelled)
    at_once_ns = _newly_at_once_ns(baseline, timeline)
    notes = (
        *notes,
        *_growth(baseline, scenario),
        *_loading(baseline, scenario),
        *_hidden(baseline, timeline, step_ns),
        *_at_once(at_once_ns),
        *(() if baseline.links is None else baseline.links.notes),
    )
    return ScenarioOutcome(
        costs,
        timeline,
        step_ns,
        low_ns,
        high_ns + at_once_ns,
        ARRANGED,
        notes,
        shared=None if traffic is None else done,
        at_once_ns=at_once_ns,
    )


def _rearranged(baseline: Baseline, scenario: Scenario) -> NewJob | None:
    """Pieces of another plan, or of other layers; `None` where every piece stays at its place."""
    check_arrangeable(baseline.before.plan, scenario.plan, has_layers=_has_layers(baseline))
    return rearrange.rearranged(
        baseline.program,
        baseline.before,
        scenario,
        model=baseline.transformer,
        costs=baseline.costs,
    )


def check_outcome(baseline: Baseline, scenario: Scenario) -> None:
    """Refuse a scenario that is not arranged from recorded pieces, as far as it is quick to tell.

    Raises:
        ScenarioError: if it is illegal; `NotShownError`: if the recording does not show it.
    """
    before = baseline.before
    check_arrangeable(before.plan, scenario.plan, has_layers=_has_layers(baseline))
    has_model, has_costs = baseline.transformer is not None, baseline.costs is not None
    rearrange.check(baseline.program, before, scenario, has_model=has_model, has_costs=has_costs)


def _grown(baseline: Baseline, scenario: Scenario) -> float:
    """Width, logarithmic, each way, of what far more ranks than were recorded may meet."""
    times = scenario.plan.num_ranks / baseline.before.plan.num_ranks
    return _PER_TENFOLD * max(0.0, math.log10(times / _KNOWN_GROWTH))


def _growth(baseline: Baseline, scenario: Scenario) -> tuple[str, ...]:
    if not _grown(baseline, scenario):
        return ()
    recorded, asked = baseline.before.plan.num_ranks, scenario.plan.num_ranks
    text = (
        f"{asked:,} ranks are {asked / recorded:,.0f} times the {recorded:,} that were recorded, "
        "over links that the recording does not show: the interval is wider for it"
    )
    return (text,)


def _transformer(baseline: Baseline, scenario: Scenario) -> Transformer | None:
    model = baseline.transformer
    return None if model is None else model_with(model, scenario.sizes)


def _has_device(baseline: Baseline) -> bool:
    return baseline.program.graph.has_device


def _has_layers(baseline: Baseline) -> bool:
    """Whether layers of the model could be made in other number formats, and costed."""
    is_known = baseline.transformer is not None and baseline.costs is not None
    return is_known and _has_device(baseline)


def _loading(baseline: Baseline, scenario: Scenario) -> tuple[str, ...]:
    """Loading of batches that become other ones, and whose time stays."""
    graph, plan = baseline.program.graph, scenario.plan
    is_stated = any(isinstance(change, DataLoading) for change in scenario.changes)
    if plan.micro_batch == baseline.before.plan.micro_batch or is_stated:
        return ()
    try:
        nodes = loading_nodes(graph, None)
    except ScenarioError:
        return ()
    num_steps = np.unique(np.stack([graph.rank[nodes], graph.step[nodes]]), axis=1).shape[1]
    each_ns = int(graph.measured_ns[nodes].sum()) / num_steps
    if each_ns < _TOLD * baseline.replayed_step_ns:
        return ()
    text = (
        f"loading data takes {each_ns / NS_PER_MS:,.1f} ms of each step, and is taken to stay so "
        f"for microbatches of {plan.micro_batch}: state its time if it does not (data_loading)"
    )
    return (text,)


def _hidden(baseline: Baseline, timeline: Timeline, step_ns: int) -> tuple[str, ...]:
    """Work of the device that changes while the step does not."""
    before_ns, after_ns = _device_work_ns(baseline.replayed), _device_work_ns(timeline)
    change = after_ns / before_ns - 1 if before_ns else 0.0
    if abs(change) < _TOLD or abs(step_ns / baseline.replayed_step_ns - 1) > _STAYS:
        return ()
    text = (
        f"the device has {change:+.0%} work, and the step stays: the host bounds it, or other work "
        "hides the difference"
    )
    return (text,)


def _newly_at_once_ns(baseline: Baseline, timeline: Timeline) -> int:
    """Of a step, as far as it bears on it: kernels that newly run beside others."""
    run_ns = newly_at_once_ns(baseline.replayed, timeline)
    each_ns = round(run_ns / max(len(windows(timeline)), 1))
    return each_ns if each_ns > _STAYS * baseline.replayed_step_ns else 0


def _at_once(at_once_ns: int) -> tuple[str, ...]:
    if not at_once_ns:
        return ()
    text = (
        f"{at_once_ns / NS_PER_MS:,.3g} ms of kernels run beside other kernels of their device, "
        "which the recording does not show it to have room for: without it the step is longer by "
        "up to as much, as the interval's end says"
    )
    return (text,)


def _device_work_ns(timeline: Timeline) -> float:
    """Work and transfers of streams, of one rank on average."""
    graph = timeline.graph
    spans_ns = timeline.duration_ns[graph.is_on_stream]
    return float(spans_ns.sum()) / max(len(graph.ranks), 1)


def _traffic(
    baseline: Baseline, scenario: Scenario, start: Arranged, costs: Costs, found: Resizing
) -> StepTraffic | None:
    """What transfers ask of links that they share."""
    machine = scenario.machine
    if baseline.links is None or machine is None:
        return None
    return baseline.links.traffic(
        start.graph,
        costs.duration_ns,
        scenario.plan,
        machine=machine,
        num_bytes=found.exchanged.num_bytes,
    )


def _simulated(
    baseline: Baseline,
    scenario: Scenario,
    start: Arranged,
    costs: Costs,
    traffic: StepTraffic | None,
) -> Timeline:
    if traffic is not None:
        return simulate_shared(start.graph, costs.duration_ns, traffic=traffic.traffic)
    if baseline.cores is None:
        return simulate(start.graph, costs.duration_ns)
    # Ranks that do the same are arranged once; all of them want a core.
    copies = max(1, scenario.plan.num_ranks // max(1, len(start.graph.ranks)))
    return simulate_shared(start.graph, costs.duration_ns, baseline.cores.of_copies(copies))


def _ends(done: SimulatedStep, step_ns: int, *, unmodelled: float) -> tuple[int, int]:
    """Both ends of the interval of the mean step, in ns."""
    steps = windows(done.timeline)
    if not len(steps):
        return step_ns, step_ns
    row = int(np.argsort(steps.duration_ns, kind="stable")[len(steps) // 2])
    spread = interval(done, unmodelled=unmodelled, row=row)
    return (
        round(step_ns * spread.low_ns / spread.step_ns),
        round(step_ns * spread.high_ns / spread.step_ns),
    )


def _unmodelled(baseline: Baseline, edited: float) -> float:
    """What no cost model knows, logarithmic, each way.

    What the replay misses of the recording, how far its steps differ, and what edits miss.
    """
    missed = math.log(baseline.replayed_step_ns / baseline.measured_step_ns)
    lengths = windows(baseline.program.recording.measured).duration_ns
    lengths = lengths[lengths > 0]
    if len(lengths) < _STEPS_TO_DIFFER:
        return math.hypot(missed, edited)
    # Of the mean of so many steps.
    deviation = float(np.std(np.log(lengths), ddof=1)) / math.sqrt(len(lengths))
    return math.hypot(missed, edited, _WIDTH_80 * deviation)


def _by_estimates(baseline: Baseline, scenario: Scenario, reason: NotShownError) -> ScenarioOutcome:
    """What the recorded step becomes by the ratio of two estimates."""
    model, machine = baseline.transformer, baseline.before.machine
    if model is None or machine is None:
        if not _has_device(baseline):  # estimates are of devices
            raise reason
        raise ScenarioError(
            f"{_ended(reason)} With a model and a machine stated, the answer is the recorded step "
            "times the ratio of two estimates."
        ) from reason
    # Here: most scenarios are arranged, and need not load all that makes an estimate.
    from foretrace.estimate import estimate
    from foretrace.whatif.scaled import scaled_step

    if scenario.changes:
        raise ScenarioError(
            f"{_ended(reason)} By the ratio of two estimates alone it could be told, but durations "
            "of single operations cannot be changed there: leave those edits out."
        ) from reason
    recorded = model_with(model, baseline.before.sizes)
    edited = model_with(model, scenario.sizes)
    try:
        before = estimate(recorded, baseline.before.plan, machine, network=baseline.network)
        after = estimate(
            edited, scenario.plan, scenario.machine or machine, network=baseline.network
        )
    except WorkloadError:
        raise reason from None
    found = scaled_step(baseline.replayed_step_ns, before, after)
    further = _grown(baseline, scenario)
    note = (
        f"not arranged from recorded work, but the recorded step x {found.ratio:.3f}, the ratio of "
        f"two estimates: {reason}"
    )
    return ScenarioOutcome(
        costs=after.costs,
        timeline=_stretched(after.timeline, found.step_ns),
        step_ns=found.step_ns,
        low_ns=_further(found.low_ns, found.step_ns, further),
        high_ns=_further(found.high_ns, found.step_ns, further),
        method=SCALED,
        notes=(note, *_growth(baseline, scenario), *after.notes),
    )


def _further(end_ns: int, step_ns: int, width: float) -> int:
    """An end of an interval, moved away from the step by one more logarithmic width."""
    off = math.log(end_ns / step_ns)
    return round(step_ns * math.exp(math.copysign(math.hypot(off, width), off)))


def _stretched(timeline: Timeline, step_ns: int) -> Timeline:
    """An estimated timeline at the length that was found for its step."""
    factor = step_ns / max(step_time_ns(timeline), 1)
    start_ns, end_ns = (
        np.rint(each * factor).astype(np.int64) for each in (timeline.start_ns, timeline.end_ns)
    )
    return Timeline(timeline.graph, start_ns, end_ns, is_measured=False)


def _ended(reason: NotShownError) -> str:
    """A refusal as a whole sentence, for another to follow."""
    return f"{str(reason).removesuffix('.')}."


def check_arrangeable(before: Plan, after: Plan, *, has_layers: bool = False) -> None:
    """Refuse a change of the plan that no recorded work shows the effect of.

    Args:
        before: as recorded.
        after: as edited.
        has_layers: layers of a model are there, and costs of their operators.

    Raises:
        NotShownError: naming the keys, and what would answer.
    """
    lost = [
        f"{table}.{key} {key_text(was)} -> {key_text(now)}"
        for table, key, was, now in plan_changes(before, after)
        if not (_is_arrangeable(table, key) or (has_layers and (table, key) in _OF_LAYERS))
    ]
    if lost:
        raise NotShownError(
            f"{', '.join(lost)}: the recording does not show what that changes; say which work it "
            "makes faster (Speed, Fuse, CudaGraphs, Attention)"
        )


def _is_arrangeable(table: str, key: str) -> bool:
    keys = _ARRANGEABLE.get(table, ())
    return keys is None or key in keys
