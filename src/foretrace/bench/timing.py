"""What a Kineto trace says of an execution trace's operators: how long, on which stream, how busy.

The two are joined as `graph` joins them. Where the Kineto trace is of another run of the same
program, so that most operators find no event, an operator is given the mean time of its name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foretrace.base import Int64s
from foretrace.bench.tree import Tree
from foretrace.graph import NO_EVENT, link
from foretrace.trace import (
    NO_ID,
    Category,
    LaneKind,
    Trace,
    load_traces,
    read_execution_trace,
)

_ON_DEVICE = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
# A name that occurs more or less often a step than the others do was called for something else.
_ALIKE = 0.2
_NEARLY_ALL = 0.95  # of the operators must have their event for a span to be the step's
_ON_HOST = (Category.OPERATOR, Category.ANNOTATION)


@dataclass(frozen=True)
class OperatorTimes:
    """Times of operators, by node."""

    duration_ns: Mapping[int, int]  # of its device operations; on the host where it has none
    stream: Mapping[int, int]  # of its longest device operation
    span_ns: int  # from the first operator's start to the end of the last, on host and device
    busy_ns: int  # of that, time in which a device operation runs; an operator, without a device
    is_joined: bool  # operator by operator; else times are means of their names, and no span

    @property
    def busy_share(self) -> float | None:
        """Busy time as a share of the span; none where there is none."""
        return self.busy_ns / self.span_ns if self.span_ns else None


NOTHING_MEASURED = OperatorTimes({}, {}, 0, 0, is_joined=False)


def measured_of(tree: Tree, topmost: Sequence[int], *, path: Path, kineto: Path) -> OperatorTimes:
    """Times of these operators.

    Args:
        tree: the execution trace.
        topmost: operators that lie inside no other.
        path: the execution trace's file.
        kineto: the Kineto trace of the same run.

    Raises:
        TraceError: if a file cannot be read.
    """
    (trace,) = load_traces([kineto])
    joined_rows = link(trace, read_execution_trace(path))
    pairs = zip(joined_rows.execution_trace.node_id, joined_rows.event, strict=True)
    row_by_node = {int(node): int(row) for node, row in pairs if row != NO_EVENT}
    begins, ends = trace.start_ns, trace.start_ns + trace.duration_ns
    joined = [(node, row_by_node[node]) for node in topmost if node in row_by_node]
    if 2 * len(joined) < len(topmost):
        return _means(tree, topmost, trace)
    launched = _launched(trace, [row for _, row in joined])
    has_device = any(launched.values())
    duration_ns: dict[int, int] = {}
    stream: dict[int, int] = {}
    busy: list[int] = []
    for node, row in joined:
        device_rows = launched[row]
        if device_rows:
            longest = max(device_rows, key=lambda one: int(trace.duration_ns[one]))
            stream[node] = int(trace.lanes.number[trace.lane[longest]])
        elif not has_device:
            inside = (row_by_node[one] for one in tree.below(node) if one in row_by_node)
            device_rows = [max((row, *inside), key=lambda one: int(trace.duration_ns[one]))]
        duration_ns[node] = int(sum(int(trace.duration_ns[one]) for one in device_rows))
        busy += device_rows
    rows = np.array([*(row for _, row in joined), *busy])
    span_ns = int(ends[rows].max() - begins[rows].min())
    counted = np.array(busy if has_device else [row for _, row in joined])
    busy_ns = _covered_ns(begins[counted], ends[counted])
    if len(joined) < _NEARLY_ALL * len(topmost):  # of another run: first and last mean nothing
        span_ns = busy_ns = 0
    return OperatorTimes(duration_ns, stream, span_ns, busy_ns, is_joined=True)


def _means(tree: Tree, topmost: Sequence[int], trace: Trace) -> OperatorTimes:
    """Mean times of the operators' names."""
    rows = _outermost(trace, {tree.nodes[node].name for node in topmost})
    launched = _launched(trace, rows)
    has_device = any(launched.values())
    times: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        counted = launched[row] if has_device else [row]
        taken = sum(int(trace.duration_ns[one]) for one in counted)
        times[trace.strings[trace.name[row]]].append(taken)
    wanted = Counter(tree.nodes[node].name for node in topmost)
    num_steps = {name: len(each) / wanted[name] for name, each in times.items()}
    rates = [num_steps[name] for name in wanted.elements() if name in num_steps]
    usual = float(np.median(rates)) if rates else 0.0
    mean_ns = {
        name: sum(each) // len(each)
        for name, each in times.items()
        if abs(num_steps[name] - usual) <= _ALIKE * usual
    }
    duration_ns = {
        node: mean_ns[name] for node in topmost if (name := tree.nodes[node].name) in mean_ns
    }
    return replace(NOTHING_MEASURED, duration_ns=duration_ns)


def _outermost(trace: Trace, names: set[str]) -> list[int]:
    """Rows of these names that lie inside no other of them, by thread and time."""
    wanted = np.array([name in names for name in trace.strings], dtype=bool)
    is_host = np.isin(trace.category, _ON_HOST) & wanted[trace.name]
    found: list[int] = []
    reached: dict[int, int] = {}
    for row in np.flatnonzero(is_host).tolist():  # rows stand by start, longer first
        lane, begin = int(trace.lane[row]), int(trace.start_ns[row])
        if begin >= reached.get(lane, begin):
            found.append(row)
            reached[lane] = begin + int(trace.duration_ns[row])
    return found


def _launched(trace: Trace, rows: Sequence[int]) -> dict[int, list[int]]:
    """Device operations that were launched during each of these rows, on its thread."""
    by_correlation: dict[int, list[int]] = defaultdict(list)
    is_device = np.isin(trace.category, _ON_DEVICE)
    for row in np.flatnonzero(is_device & (trace.correlation != NO_ID)):
        by_correlation[int(trace.correlation[row])].append(int(row))
    found: dict[int, list[int]] = {row: [] for row in rows}
    calls = np.flatnonzero((trace.category == Category.RUNTIME) & (trace.correlation != NO_ID))
    for lane in np.unique(trace.lane[list(rows)]):
        if trace.lanes.kind[lane] != LaneKind.HOST:
            continue
        here = np.array([row for row in rows if trace.lane[row] == lane])
        here = here[np.argsort(trace.start_ns[here], kind="stable")]
        begins = trace.start_ns[here]
        ends = begins + trace.duration_ns[here]
        for call in calls[trace.lane[calls] == lane]:
            at = int(np.searchsorted(begins, trace.start_ns[call], side="right")) - 1
            if at >= 0 and trace.start_ns[call] < ends[at]:
                found[int(here[at])] += by_correlation.get(int(trace.correlation[call]), [])
    return found


def _covered_ns(begins: Int64s, ends: Int64s) -> int:
    """Length of what these spans cover together."""
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    reached = np.concatenate((begins[:1], np.maximum.accumulate(ends)[:-1]))
    return int(np.maximum(ends - np.maximum(begins, reached), 0).sum())
