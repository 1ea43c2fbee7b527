"""A replay held against its recording, beside replays without one class of dependency each.

`duration_mix` says what the time of replayed steps rests on: durations that were recorded, split or
estimated.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from foretrace.analyze import (
    COMPONENTS,
    Parts,
    StepTable,
    breakdown,
    collective_times,
    path_time_ns,
    step_time_ns,
    steps,
)
from foretrace.base import Bools, Int64s, ModelError, UInt8s
from foretrace.graph import (
    NO_COLLECTIVE,
    Ablation,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Recording,
    Timeline,
    without,
)
from foretrace.simulate import simulate
from foretrace.validate.measures import no_such_steps
from foretrace.validate.results import (
    DurationMix,
    ErrorDistribution,
    NullModel,
    RankReplay,
    ReplayReport,
    ReplaySummary,
    StepReplay,
)
from foretrace.validate.verdict import verdict_of

# Labels of nodes in the order of `DurationMix`; lags come last, as `path_time_ns` has them.
_RECORDED_HOST, _RECORDED_DEVICE, _SPLIT, _ESTIMATED = range(4)
_NUM_LABELS = 4


def replay_report(
    recording: Recording,
    *,
    simulated: Timeline | None = None,
    null_models: Collection[Ablation] = tuple(Ablation),
    step_names: Collection[str] | None = None,
) -> ReplayReport:
    """How far a replay is from what was measured, for every step and rank.

    The measured timeline's and the replay's steps, parts and starts are found by the same code.

    Args:
        recording: the graph and what was measured.
        simulated: the replay to judge; the recording's own durations simulated, if left out.
        null_models: which classes of dependency to leave out, one at a time, for comparison.
        step_names: steps to report on, all if left out; the replay is of the whole trace anyway.

    Raises:
        ModelError: if `simulated` is of another graph, or there is no step to report on.
    """
    timeline = simulate(recording.graph) if simulated is None else simulated
    observed = _Observation(recording.measured, step_names)
    chosen_steps = observed.compared_with(timeline)
    summary, mix = summary_of(chosen_steps), duration_mix(timeline, observed.chosen_steps)
    return ReplayReport(
        verdict=verdict_of(recording, summary, mix),
        steps=chosen_steps,
        summary=summary,
        null_models=tuple(
            NullModel(
                ablation=ablation,
                summary=summary_of(observed.compared_with(_ablated(recording, ablation))),
            )
            for ablation in null_models
        ),
        mix=mix,
        constants=recording.graph.constants,
        clocks=recording.clocks,
        findings=recording.findings,
        step_time_ns=step_time_ns(recording.measured),
        replayed_step_time_ns=step_time_ns(timeline),
        unprofiled_step_ns=dict(recording.unprofiled_step_ns),
        edge_kinds=frozenset(map(EdgeKind, np.unique(recording.graph.edge_kind).tolist())),
    )


def _ablated(recording: Recording, ablation: Ablation) -> Timeline:
    """The replay without one class of dependency."""
    graph, duration_ns = without(recording, ablation)
    return simulate(graph, duration_ns)


class _Observation:
    """What was measured, worked out once and held against several replays."""

    def __init__(self, measured: Timeline, step_names: Collection[str] | None) -> None:
        names = measured.graph.step_names
        if not names or not set(step_names or ()) <= set(names):
            raise no_such_steps(step_names or (), names)
        wanted = set(names) if step_names is None else set(step_names)
        self.chosen_steps = tuple(index for index, name in enumerate(names) if name in wanted)
        self._measured = measured
        self._table = steps(measured)
        self._parts = breakdown(measured)
        self._collective_ns = _collective_ns(measured, self._table)
        self._starts = _starts_by_row(measured.graph, self._table)

    def compared_with(self, replayed: Timeline) -> tuple[StepReplay, ...]:
        """Every chosen step on every rank, measured beside replayed."""
        measured, graph = self._measured, replayed.graph
        table = steps(replayed)
        if graph.num_nodes != measured.graph.num_nodes or not _same_rows(self._table, table):
            raise ModelError(
                f"the replay is of another graph: {graph.num_nodes} nodes and {len(table)} steps "
                f"on ranks, expected {measured.graph.num_nodes} and {len(self._table)}. "
                "Simulate the recording's own graph, or one made from it by `without`."
            )
        parts, collective_ns = breakdown(replayed), _collective_ns(replayed, table)
        rows = [
            RankReplay(
                rank=int(table.rank[row]),
                measured_ns=int(self._table.duration_ns[row]),
                replayed_ns=int(table.duration_ns[row]),
                host_measured_ns=int(self._table.host_duration_ns[row]),
                host_replayed_ns=int(table.host_duration_ns[row]),
                measured_parts=self._parts.rows[row].parts,
                replayed_parts=parts.rows[row].parts,
                kernel_start_error=_distribution(
                    (replayed.start_ns[starts] - table.mark_ns[row])
                    - (measured.start_ns[starts] - self._table.mark_ns[row])
                ),
                collective_measured_ns=int(self._collective_ns[row]),
                collective_replayed_ns=int(collective_ns[row]),
            )
            for row, starts in enumerate(self._starts)
        ]
        return tuple(
            StepReplay(
                name=table.step_names[step],
                ranks=tuple(rows[row] for row in np.flatnonzero(table.step == step).tolist()),
            )
            for step in self.chosen_steps
        )


def _same_rows(table: StepTable, other: StepTable) -> bool:
    return np.array_equal(table.step, other.step) and np.array_equal(table.rank, other.rank)


def _row_of(table: StepTable, *, step: Int64s, rank: Int64s) -> Int64s:
    """The table's row of each step and rank; -1 where it has none."""
    width = np.int64(2**31)  # above any rank, so that step and rank make one number
    keys = table.step * width + table.rank  # rising: the table is by step, then rank
    wanted = step * width + rank
    row = np.searchsorted(keys, wanted)
    is_there = row < len(keys)
    is_there[is_there] = keys[row[is_there]] == wanted[is_there]
    found: Int64s = np.where(is_there, row, -1)
    return found


def _collective_ns(timeline: Timeline, table: StepTable) -> Int64s:
    """Arrival to finish, summed over each row's collectives; int64[rows]."""
    times = collective_times(timeline)
    row = _row_of(table, step=times.step.astype(np.int64), rank=times.rank.astype(np.int64))
    total_ns = np.zeros(len(table), dtype=np.int64)
    np.add.at(total_ns, row[row >= 0], times.total_ns[row >= 0])
    return total_ns


def _starts_by_row(graph: ExecutionGraph, table: StepTable) -> list[Int64s]:
    """Nodes whose starts are compared, for each row of the table."""
    nodes = np.flatnonzero(_has_compared_start(graph) & (graph.step >= 0))
    row = _row_of(
        table, step=graph.step[nodes].astype(np.int64), rank=graph.rank[nodes].astype(np.int64)
    )
    order = np.argsort(row, kind="stable")
    first = np.searchsorted(row[order], np.arange(len(table) + 1))
    return [nodes[order[first[at] : first[at + 1]]] for at in range(len(table))]


def _has_compared_start(graph: ExecutionGraph) -> Bools:
    """Device operations and arrivals; on a rank without a device operators and arrivals."""
    with_device = np.array(sorted({lane.rank for lane in graph.lanes if lane.is_device}), np.int32)
    on_device: Bools = graph.is_device
    on_host: Bools = (graph.kind == NodeKind.OPERATOR) & ~np.isin(graph.rank, with_device)
    is_arrival: Bools = graph.kind == NodeKind.ARRIVE
    return on_device | on_host | is_arrival


def _distribution(error_ns: Int64s) -> ErrorDistribution:
    """Median and 95th percentile of |error|, each rounded up to one that occurred."""
    if len(error_ns) == 0:
        return ErrorDistribution(median_ns=0, p95_ns=0, count=0)
    median_ns, p95_ns = np.percentile(np.abs(error_ns), [50, 95], method="higher")
    return ErrorDistribution(median_ns=int(median_ns), p95_ns=int(p95_ns), count=len(error_ns))


def duration_mix(timeline: Timeline, chosen_steps: Collection[int]) -> DurationMix:
    """Shares of the critical paths to the ends of these steps, over all ranks that have them.

    Each path is walked from the step's end on one rank back to its begin there, across whatever
    ranks it comes from; all paths count alike.
    """
    table = steps(timeline)
    rows = np.isin(table.step, np.array(sorted(chosen_steps), dtype=np.int32))
    spent_ns = path_time_ns(
        timeline,
        _origin(timeline.graph),
        num_labels=_NUM_LABELS,
        end_node=table.end_node[rows],
        begin_ns=table.begin_ns[rows],
    ).sum(axis=0)
    total_ns = max(int(spent_ns.sum()), 1)
    host, device, split, estimated, constant = (spent_ns / total_ns).tolist()
    return DurationMix(
        recorded_host=host,
        recorded_device=device,
        split=split,
        estimated=estimated,
        constant=constant,
    )


def _origin(graph: ExecutionGraph) -> UInt8s:
    """Where each node's duration comes from; uint8[nodes]."""
    is_estimated = np.array(
        graph.collectives.each(lambda each: each.is_transfer_estimated), dtype=bool
    )
    origin = np.full(graph.num_nodes, _RECORDED_HOST, dtype=np.uint8)
    origin[graph.is_device] = _RECORDED_DEVICE
    finish = np.flatnonzero((graph.kind == NodeKind.FINISH) & (graph.collective != NO_COLLECTIVE))
    estimated = is_estimated[graph.collective[finish]]
    origin[finish] = np.where(estimated, _ESTIMATED, _SPLIT)
    origin[graph.kind == NodeKind.GHOST] = _ESTIMATED
    return origin


def summary_of(chosen_steps: tuple[StepReplay, ...]) -> ReplaySummary:
    """The errors of these steps on all their ranks.

    Raises:
        ModelError: if no rank has any of the steps.
    """
    rows = [rank for step in chosen_steps for rank in step.ranks]
    if not rows:
        raise ModelError(
            f"nothing to compare: {len(chosen_steps)} steps, and no rank has a begin mark of one. "
            "Choose other steps."
        )
    biases = [_percent(row.replayed_ns - row.measured_ns, row.measured_ns) for row in rows]
    host_biases = [
        _percent(row.host_replayed_ns - row.host_measured_ns, row.host_measured_ns) for row in rows
    ]
    by_component = _component_errors(rows)
    worst_component = max(COMPONENTS, key=lambda part: by_component[part])
    collective = _collective_errors(rows)
    return ReplaySummary(
        mean_step_error_percent=_mean_size(biases),
        worst_step_error_percent=max(map(abs, biases)),
        mean_host_error_percent=_mean_size(host_biases),
        worst_component_error_percent=by_component[worst_component],
        worst_component=worst_component,
        component_error_percent=by_component,
        median_kernel_start_error_percent=max(
            _percent(row.kernel_start_error.median_ns, row.measured_ns) for row in rows
        ),
        p95_kernel_start_error_percent=max(
            _percent(row.kernel_start_error.p95_ns, row.measured_ns) for row in rows
        ),
        worst_collective_error_percent=max(collective) if collective else None,
        mean_collective_error_percent=_mean_size(collective) if collective else None,
        mean_step_bias_percent=sum(biases) / len(biases),
        measured_parts=sum((row.measured_parts for row in rows), Parts(0, 0, 0, 0)),
        replayed_parts=sum((row.replayed_parts for row in rows), Parts(0, 0, 0, 0)),
    )


def _component_errors(rows: list[RankReplay]) -> dict[str, float]:
    """Each part's largest |error| of any row, in percent of that row's step."""
    largest = dict.fromkeys(COMPONENTS, 0.0)
    for row in rows:
        measured, replayed = row.measured_parts.as_json(), row.replayed_parts.as_json()
        for part in COMPONENTS:
            error = abs(_percent(replayed[part] - measured[part], row.measured_ns))
            largest[part] = max(largest[part], error)
    return largest


def _collective_errors(rows: list[RankReplay]) -> list[float]:
    """|error| of collective time, of every row that has any, in percent of it."""
    return [
        abs(
            _percent(
                row.collective_replayed_ns - row.collective_measured_ns, row.collective_measured_ns
            )
        )
        for row in rows
        if row.collective_measured_ns > 0
    ]


def _percent(error_ns: int, whole_ns: int) -> float:
    """Signed error in percent of `whole_ns`; of 1 ns where the whole is empty."""
    return 100.0 * error_ns / max(whole_ns, 1)


def _mean_size(values: list[float]) -> float:
    """Mean of |value|."""
    return sum(map(abs, values)) / len(values)
