"""Other-step prediction: each step's time from durations that were measured in the other steps.

In: a recording of three steps or more. Out: predicted beside measured step times. The graph of
the predicted step is its own, so this judges durations and engine, not whether the next step
will do the same things.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import StepTable, alike_steps, steps
from foretrace.base import Bools, Float64s, Int64s, ModelError, numbered_rows, turns_within
from foretrace.graph import HOST_KINDS, NO_LANE, ExecutionGraph, NodeKind, Recording
from foretrace.simulate import simulate
from foretrace.validate.measures import no_such_steps
from foretrace.validate.results import OtherStepReport, StepPrediction

MIN_STEPS = 3  # with fewer, "the other steps" is one sample or none

# Kinds that never take time of their own: nothing to predict.
_TIMELESS = (
    NodeKind.RANK_START,
    NodeKind.STEP_BEGIN,
    NodeKind.STEP_END,
    NodeKind.ARRIVE,
    NodeKind.HUB,
)
_MARKS = (NodeKind.STEP_BEGIN, NodeKind.STEP_END)  # their names hold the step's number
_NUM_KINDS = len(NodeKind)
_FIRST_GHOST_LANE = NO_LANE - 1  # a stand-in for a lane; one per group, downwards


@dataclass(frozen=True)
class _Timed:
    """Nodes of steps whose durations are predicted, and what makes two of them counterparts."""

    node: Int64s  # int64[timed]
    step: Int64s  # int64[timed]
    kind: Int64s  # int64[timed]
    label: Int64s  # int64[timed], kind and name
    place: Int64s  # int64[timed], rank, lane, label and occurrence in the step, as one number
    duration_ns: Int64s  # int64[timed], as recorded


@dataclass(frozen=True)
class _Predicted:
    """Durations of one step's nodes, taken from the other steps."""

    node: Int64s  # int64[nodes of the step]
    duration_ns: Int64s  # int64[nodes of the step]
    is_matched: Bools  # bool[nodes of the step], from a counterpart
    is_same_name: Bools  # bool[nodes of the step], no counterpart, from its name


def other_step_report(
    recording: Recording, *, step_names: Collection[str] | None = None
) -> OtherStepReport:
    """Every step's time predicted from the other steps, beside what was measured.

    A node takes the median duration (host work: the mean, since interruptions move about and
    medians lose them) of its counterparts in the other steps: same rank, lane, kind, name and
    occurrence within the step. Host time between calls goes by the call that
    follows it, a missing rank's time by its collective's place in the step. A node without
    counterpart takes the median of its kind and name in the other steps, or, without those, of
    its kind; both are counted. Medians of an even number of durations are rounded down.
    Durations outside the predicted step stay as recorded.

    Args:
        recording: at least three steps.
        step_names: steps to predict, all if left out; the others still lend their durations.

    Raises:
        ModelError: if the recording has fewer than three steps or none of those named.
    """
    graph = recording.graph
    table = steps(recording.measured)
    chosen = _chosen_steps(table, step_names)
    timed = _timed(graph)
    rows: list[StepPrediction] = []
    num_matched = num_same_name = num_same_kind = 0
    time_ns = matched_time_ns = 0
    for step in chosen:
        predicted = _predicted(timed, step)
        duration_ns = graph.measured_ns.copy()
        duration_ns[predicted.node] = predicted.duration_ns
        rows.extend(_rows(table, steps(simulate(graph, duration_ns)), step))
        num_matched += int(predicted.is_matched.sum())
        num_same_name += int(predicted.is_same_name.sum())
        num_same_kind += int((~predicted.is_matched & ~predicted.is_same_name).sum())
        recorded_ns = graph.measured_ns[predicted.node]
        time_ns += int(recorded_ns.sum())
        matched_time_ns += int(recorded_ns[predicted.is_matched].sum())
    errors = [abs(row.error_percent) for row in rows]
    naive_errors = [abs(row.naive_error_percent) for row in rows]
    return OtherStepReport(
        rows=tuple(rows),
        mean_error_percent=sum(errors) / len(errors),
        worst_error_percent=max(errors),
        mean_naive_error_percent=sum(naive_errors) / len(naive_errors),
        worst_naive_error_percent=max(naive_errors),
        num_matched=num_matched,
        num_same_name=num_same_name,
        num_same_kind=num_same_kind,
        matched_time_share=matched_time_ns / max(time_ns, 1),
    )


def _chosen_steps(table: StepTable, step_names: Collection[str] | None) -> list[int]:
    """Positions of the steps to predict."""
    recorded = np.unique(table.step).tolist()
    if len(recorded) < MIN_STEPS:
        raise ModelError(
            f"too few steps to predict one from the others: {len(recorded)} recorded, expected "
            f"at least {MIN_STEPS}. Record more steps: foretrace.record(..., steps={MIN_STEPS})."
        )
    names = {table.step_names[step]: step for step in recorded}
    wanted = list(names) if step_names is None else list(step_names)
    if not wanted or not set(wanted) <= set(names):
        raise no_such_steps(wanted, list(names))
    return sorted(names[name] for name in set(wanted))


def _rows(measured: StepTable, predicted: StepTable, step: int) -> list[StepPrediction]:
    """One step's predictions, on every rank that recorded it and another step alike."""
    rows = []
    alike = alike_steps(measured.step_names)
    for row in np.flatnonzero(measured.step == step).tolist():
        rank = int(measured.rank[row])
        others = (measured.rank == rank) & (measured.step != step)
        others &= alike[measured.step] == alike[step]
        if not others.any():
            continue
        rows.append(
            StepPrediction(
                step_name=measured.step_names[step],
                rank=rank,
                measured_ns=int(measured.duration_ns[row]),
                predicted_ns=int(predicted.duration_ns[row]),
                naive_ns=int(np.median(measured.duration_ns[others])),
            )
        )
    return rows


def _timed(graph: ExecutionGraph) -> _Timed:
    """The nodes that take time in some step, each with its place within the step."""
    is_timeless = graph.is_of(*_TIMELESS)
    node = np.flatnonzero((graph.step >= 0) & ~is_timeless)
    label = _labels(graph)[node]
    step, lane = graph.step[node].astype(np.int64), graph.lane[node].astype(np.int64)
    rank = graph.rank[node].astype(np.int64)
    occurrence = turns_within(numbered_rows((label, lane, rank, step)))
    for index, (group, position) in _ghost_places(graph, node).items():
        lane[index], occurrence[index] = _FIRST_GHOST_LANE - group, position
    return _Timed(
        node=node,
        step=step,
        kind=graph.kind[node].astype(np.int64),
        label=label,
        place=numbered_rows((occurrence, label, lane, rank)),
        duration_ns=graph.measured_ns[node],
    )


def _ghost_places(graph: ExecutionGraph, timed: Int64s) -> dict[int, tuple[int, int]]:
    """Of each ghost among the timed nodes: its group, and its collective's place in the step.

    Not every step has a ghost before the same collectives, so counting ghosts would not do.
    """
    target = graph.edge_target
    is_ghost = graph.kind[graph.predecessor] == NodeKind.GHOST
    is_to_hub = is_ghost & (graph.kind[target] == NodeKind.HUB)
    met = dict(
        zip(
            graph.predecessor[is_to_hub].tolist(),
            graph.collective[target[is_to_hub]].tolist(),
            strict=True,
        )
    )
    finish = graph.nodes_of(NodeKind.FINISH)
    numbers: dict[str, int] = {}
    first: dict[tuple[str, int], int] = {}
    for index, step in zip(graph.collective[finish].tolist(), graph.step[finish], strict=True):
        collective = graph.collectives[index]
        numbers.setdefault(collective.group, len(numbers))
        key = collective.group, int(step)
        first[key] = min(first.get(key, collective.position), collective.position)
    places = {}
    for index in np.flatnonzero(graph.kind[timed] == NodeKind.GHOST).tolist():
        node = int(timed[index])
        if node in met:
            collective = graph.collectives[met[node]]
            begin = first.get((collective.group, int(graph.step[node])), 0)
            places[index] = (numbers[collective.group], collective.position - begin)
    return places


def _labels(graph: ExecutionGraph) -> Int64s:
    """Kind and name as one number; of host time between calls also the call that follows."""
    kind = graph.kind.astype(np.int64)
    is_mark = graph.is_of(*_MARKS)
    name = np.where(is_mark, 0, graph.name.astype(np.int64) + 1)
    label = name * _NUM_KINDS + kind
    in_lanes = graph.in_lanes(np.arange(graph.num_nodes))
    is_segment = kind[in_lanes] == NodeKind.HOST_SEGMENT
    follows = np.flatnonzero(is_segment[:-1] & (np.diff(graph.lane[in_lanes]) == 0))
    before, after = in_lanes[follows], in_lanes[follows + 1]
    highest = int(label.max(initial=0)) + 1
    label[before] += highest * (label[after] + 1)
    return label


def _predicted(timed: _Timed, step: int) -> _Predicted:
    """Durations of one step's nodes; no duration of the step itself is read."""
    own = timed.step == step
    lenders = ~own
    by_place = _medians(timed.place[lenders], timed.duration_ns[lenders], timed.place[own])
    by_label = _medians(timed.label[lenders], timed.duration_ns[lenders], timed.label[own])
    by_kind = _medians(timed.kind[lenders], timed.duration_ns[lenders], timed.kind[own])
    # Host work is interrupted now here, now there: only means of it add up to a step's time.
    is_host = np.isin(timed.kind[own], HOST_KINDS)
    mean_by_place = _means(timed.place[lenders], timed.duration_ns[lenders], timed.place[own])
    by_place = np.where(is_host, mean_by_place, by_place)
    is_matched, has_label = ~np.isnan(by_place), ~np.isnan(by_label)
    duration = np.where(is_matched, by_place, np.where(has_label, by_label, by_kind))
    return _Predicted(
        node=timed.node[own],
        duration_ns=np.nan_to_num(duration, nan=0.0).astype(np.int64),
        is_matched=is_matched,
        is_same_name=~is_matched & has_label,
    )


def _means(keys: Int64s, values: Int64s, wanted: Int64s) -> Float64s:
    """Mean of the values of each wanted key; NaN for a key that has none."""
    found, at_key = np.unique(keys, return_inverse=True)
    mean = np.append(np.bincount(at_key, weights=values) / np.bincount(at_key), np.nan)
    at = np.searchsorted(found, wanted)
    is_there = at < len(found)
    is_there[is_there] = found[at[is_there]] == wanted[is_there]
    means: Float64s = mean[np.where(is_there, at, len(found))]
    return means


def _medians(keys: Int64s, values: Int64s, wanted: Int64s) -> Float64s:
    """Median of the values of each wanted key; NaN for a key that has none."""
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    found, first, count = np.unique(keys, return_index=True, return_counts=True)
    median = np.full(len(found) + 1, np.nan)
    median[:-1] = (values[first + (count - 1) // 2] + values[first + count // 2]) / 2
    at = np.searchsorted(found, wanted)
    is_there = at < len(found)
    is_there[is_there] = found[at[is_there]] == wanted[is_there]
    medians: Float64s = median[np.where(is_there, at, len(found))]
    return medians
