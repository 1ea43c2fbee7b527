"""`MemoryUse`: how much memory was in use over a step, its peak, and what held it.

From the profiler's memory events, which carry totals but no addresses: the curve, the peak with
the operator and block at work then, and what operators asked for. From a snapshot of the CUDA
allocator: the same curve, and the allocations that were alive at the peak with where they were
asked for. Memory is only ever measured, so this takes a recording or a snapshot, no simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from foretrace.analyze.windows import windows
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Plain,
    Series,
    Shown,
    SideBySide,
    Table,
    Told,
    Unit,
    bytes_text,
)
from foretrace.base import Int32s, Int64s
from foretrace.graph import (
    NO_NODE,
    ExecutionGraph,
    MemoryEvents,
    Recording,
    Timeline,
    block_words,
)
from foretrace.trace import UNKNOWN_NS, AllocatorAction, DeviceSnapshot, Snapshot

NUM_BINS = 1000  # of a curve; more than a page has pixels
NUM_LISTED = 20  # largest rows that are listed
UNKNOWN_BYTES = -1
UNKNOWN_RANK = -1  # a snapshot does not say whose it is


@dataclass(frozen=True)
class MemoryCurve:
    """Bytes in use over time, in bins of equal length; no bin hides a minimum or a maximum."""

    begin_ns: Int64s  # int64[bins]
    low_bytes: Int64s  # int64[bins], least in use in the bin
    high_bytes: Int64s  # int64[bins], most in use in the bin
    reserved_bytes: Int64s  # int64[bins], most held by the allocator; UNKNOWN_BYTES


@dataclass(frozen=True)
class Holder(Plain):
    """Allocations that belong together."""

    what: str  # the operator, or the place in the code, that asked for them; "" unknown
    num_allocations: int
    num_bytes: int


@dataclass(frozen=True)
class Moment(Plain):
    """What was at work on the host when memory peaked; empty texts: unknown."""

    at_ns: int
    operator: str
    block: str  # "layer 3 forward"


@dataclass(frozen=True)
class MemoryPlace(Plain):
    """One memory of one rank, over a step or over a snapshot's history."""

    rank: int  # UNKNOWN_RANK
    is_device: bool
    device: int  # index; -1 of the host
    is_relative: bool  # totals were not recorded: bytes count from the least in use
    num_events: int
    begin_bytes: int  # in use when the step begins
    end_bytes: int
    peak_bytes: int
    peak: Moment
    peak_reserved_bytes: int  # most held by the allocator at any time; UNKNOWN_BYTES
    allocated_by: tuple[Holder, ...]  # all that was asked for, by operator or place; largest first
    alive_at_peak: tuple[Holder, ...]  # by place, largest first; empty: no addresses recorded
    curve: MemoryCurve

    @property
    def label(self) -> str:
        """`rank 0 device 0`, `rank 1 host`."""
        where = f"device {self.device}" if self.is_device else "host"
        return where if self.rank == UNKNOWN_RANK else f"rank {self.rank} {where}"


@dataclass(frozen=True, repr=False)
class MemoryUse(Answer):
    """One row per memory, by rank; devices before the host."""

    json_names: ClassVar = {"step_name": "step"}

    step_name: str | None  # None: all of the recording, or of the snapshot's history
    is_snapshot: bool
    places: tuple[MemoryPlace, ...]

    def __len__(self) -> int:
        """Number of memories; 0: none was recorded."""
        return len(self.places)

    @property
    def headline(self) -> str:
        """What was recorded, and the highest peak."""
        if not self.places:
            return (
                "the traces hold no memory events: record with foretrace.record(memory=True) or "
                "with profile_memory=True, or give an allocator snapshot with --snapshot"
            )
        source = "an allocator snapshot" if self.is_snapshot else "profiler memory events"
        where = f" of {self.step_name}" if self.step_name else ""
        fullest = self._fullest[0]
        return (
            f"{source}{where}: {fullest.label} holds {bytes_text(fullest.peak_bytes)} at its peak"
        )

    @property
    def note(self) -> str:
        """Where bytes are not totals."""
        relative = [one.label for one in self.places if one.is_relative]
        if not relative:
            return ""
        return f"Totals were not recorded of {', '.join(relative)}: bytes count from the least."

    @property
    def is_empty(self) -> bool:
        """Whether none was recorded."""
        return not self.places

    @property
    def _fullest(self) -> list[MemoryPlace]:
        return sorted(self.places, key=lambda one: (not one.is_device, -one.peak_bytes))

    def parts(self) -> tuple[Told, ...]:
        """The curves of the fullest, every memory's peak, and what holds it."""
        if not self.places:
            return ()
        first = self._fullest[0]
        curves = (_curve_table(one) for one in self._fullest[:2] if len(one.curve.begin_ns))
        asked = _holders_table("allocated-by", f"asked for, {first.label}", first.allocated_by)
        alive = _holders_table(
            "alive-at-peak", f"alive at the peak, {first.label}", first.alive_at_peak
        )
        held = SideBySide(tuple(one for one in (alive, asked) if one.rows))
        return (*curves, self._places_table(), held)

    def tables(self) -> tuple[Table, ...]:
        """Every memory, then what the parts show."""
        return self._places_table(), *(one for one in super().tables() if one.key != "places")

    def _places_table(self) -> Table:
        return Table.of(
            "places",
            self.places,
            Column("place", "memory", Unit.WORD, "label"),
            Column("rank", shown=Shown.FILES),
            Column("is_device", shown=Shown.FILES),
            Column("device", unit=Unit.IDENTIFIER, shown=Shown.FILES),
            Column("begin_bytes", "begin"),
            Column("peak_bytes", "peak"),
            Column("end_bytes", "end"),
            Column("peak_reserved_bytes", "reserved"),
            Column("peak_at_ns", value="peak.at_ns", shown=Shown.FILES),
            Column("peak_operator", "at the peak", Unit.NAME, "peak.operator"),
            Column("peak_block", "in block", value="peak.block"),
            Column("num_events", shown=Shown.FILES),
            Column("is_relative", shown=Shown.FILES),
            max_rows=16,
        )


def _curve_table(place: MemoryPlace) -> Table:
    curve = place.curve
    columns = [
        (Column("time_ns", "time", Unit.NS), curve.begin_ns - int(curve.begin_ns[0])),
        (Column("high_bytes", "most in use"), curve.high_bytes),
        (Column("low_bytes", "least in use"), curve.low_bytes),
    ]
    series = [
        Series("high_bytes", "most in use", "compute"),
        Series("low_bytes", "least in use", "compute", is_faint=True),
    ]
    if (curve.reserved_bytes >= 0).any():
        columns.append((Column("reserved_bytes", "reserved"), curve.reserved_bytes))
        series.append(Series("reserved_bytes", "reserved", "idle"))
    key, title = place.label.replace(" ", "-"), f"over the step, {place.label}"
    chart = Chart(
        kind=ChartKind.STEPS,
        label=f"memory in use over time, {place.label}",
        category="time_ns",
        category_unit=Unit.NS,
        series=tuple(series),
        unit=Unit.BYTES,
    )
    table = Table.of_columns(key, *columns, title=title)
    return replace(table, chart=chart, max_rows=10, shown=Shown.WIDE)


def _holders_table(key: str, title: str, holders: tuple[Holder, ...]) -> Table:
    return Table.of(
        key,
        holders,
        Column("what", "by", Unit.NAME, lambda one: one.what or "not known"),
        Column("num_allocations"),
        Column("num_bytes", "bytes"),
        title=title,
        max_rows=10,
    )


def memory(recording: Recording, *, step: str | int | None = None) -> MemoryUse:
    """Memory in use over a step, from the profiler's memory events.

    Args:
        recording: of traces with `profile_memory=True`; without events the result has no rows.
        step: by name or number; the step whose length is nearest the median without one, and
            all of the recording if it has no steps.

    Raises:
        GraphError: if there is no step of that name.
    """
    timeline = recording.measured
    found = windows(timeline)
    step_name, begin_ns = None, 0
    end_ns = max(int(timeline.end_ns.max(initial=0)), *_last_events(recording), 1)
    if len(found) or step is not None:
        row = found.row_of(step)
        step_name = found.step_names[int(found.step[row])]
        begin_ns, end_ns = int(found.begin_ns[row]), int(found.end_ns[row])
    places = [_place(timeline, events, begin_ns, end_ns) for events in recording.memory]
    return MemoryUse(step_name, is_snapshot=False, places=_ordered(places))


def snapshot_memory(snapshot: Snapshot) -> MemoryUse:
    """Memory in use over a CUDA allocator snapshot's history, and what was alive at its peak.

    Times count from the first entry, in entries (one per ns) where the file has none.
    """
    places = [_snapshot_place(device, snapshot.places) for device in snapshot.devices]
    return MemoryUse(None, is_snapshot=True, places=_ordered(places))


def _ordered(places: list[MemoryPlace]) -> tuple[MemoryPlace, ...]:
    return tuple(sorted(places, key=lambda one: (one.rank, not one.is_device, one.device)))


def _last_events(recording: Recording) -> list[int]:
    return [int(events.at_ns.max(initial=0)) for events in recording.memory] or [0]


def _place(timeline: Timeline, events: MemoryEvents, begin_ns: int, end_ns: int) -> MemoryPlace:
    """One memory over one window."""
    is_relative = bool((events.allocated_bytes < 0).any())
    total_bytes = events.allocated_bytes
    if is_relative:
        total_bytes = np.cumsum(events.change_bytes)
        total_bytes = total_bytes - min(int(total_bytes.min(initial=0)), 0)
    first, last = np.searchsorted(events.at_ns, [begin_ns, end_ns], side="left").tolist()
    inside = slice(first, last)
    before = int(total_bytes[first - 1]) if first else _first_total(total_bytes, events)
    series = _Series(events.at_ns[inside], total_bytes[inside], events.reserved_bytes[inside])
    at = int(np.argmax(series.used_bytes)) if last > first else -1
    is_peak_inside = at >= 0 and int(series.used_bytes[at]) >= before
    return MemoryPlace(
        rank=events.rank,
        is_device=events.is_device,
        device=events.device,
        is_relative=is_relative,
        num_events=last - first,
        begin_bytes=before,
        end_bytes=int(series.used_bytes[-1]) if last > first else before,
        peak_bytes=int(series.used_bytes[at]) if is_peak_inside else before,
        peak=_moment(timeline, events, first + at) if is_peak_inside else Moment(begin_ns, "", ""),
        peak_reserved_bytes=int(series.reserved_bytes.max(initial=UNKNOWN_BYTES)),
        allocated_by=_by_operator(events, inside),
        alive_at_peak=(),
        curve=_curve(series, before=before, begin_ns=begin_ns, end_ns=end_ns),
    )


def _first_total(total_bytes: Int64s, events: MemoryEvents) -> int:
    """In use before the first event."""
    return max(int(total_bytes[0] - events.change_bytes[0]), 0) if len(total_bytes) else 0


@dataclass(frozen=True)
class _Series:
    """Bytes after each event, in order of time."""

    at_ns: Int64s
    used_bytes: Int64s
    reserved_bytes: Int64s


def _curve(series: _Series, *, before: int, begin_ns: int, end_ns: int) -> MemoryCurve:
    """Least and most in use in each bin, what was in use at its begin included."""
    length_ns = max(end_ns - begin_ns, 1)
    num_bins = min(NUM_BINS, length_ns)
    edges_ns = begin_ns + np.arange(num_bins, dtype=np.int64) * length_ns // num_bins
    at_bin = np.searchsorted(edges_ns, series.at_ns, side="right") - 1
    latest = np.searchsorted(series.at_ns, edges_ns, side="left")
    carried = np.append(np.int64(before), series.used_bytes)[latest]
    low, high = carried.copy(), carried.copy()
    np.minimum.at(low, at_bin, series.used_bytes)
    np.maximum.at(high, at_bin, series.used_bytes)
    reserved = np.append(np.int64(UNKNOWN_BYTES), series.reserved_bytes)[latest]
    np.maximum.at(reserved, at_bin, series.reserved_bytes)
    return MemoryCurve(edges_ns, low, high, reserved)


def _moment(timeline: Timeline, events: MemoryEvents, event: int) -> Moment:
    """What was at work at an event: its operator, and the block of the host's work then."""
    at_ns = int(events.at_ns[event])
    operator = (*events.operators, "")[_operators(events)[event]]
    node = _host_node(timeline, events.rank, at_ns)
    return Moment(at_ns, operator, "" if node == NO_NODE else _block(timeline.graph, node))


def _host_node(timeline: Timeline, rank: int, at_ns: int) -> int:
    """The host's work at a moment: of all threads, what began last; NO_NODE: none."""
    graph = timeline.graph
    is_at_work = (
        (graph.rank == rank)
        & graph.is_host
        & (timeline.start_ns <= at_ns)
        & (timeline.end_ns >= at_ns)
    )
    nodes = np.flatnonzero(is_at_work)
    return int(nodes[np.argmax(timeline.start_ns[nodes])]) if len(nodes) else NO_NODE


def _block(graph: ExecutionGraph, node: int) -> str:
    return block_words(int(graph.part[node]), int(graph.phase[node]), int(graph.layer[node]))


def _by_operator(events: MemoryEvents, inside: slice) -> tuple[Holder, ...]:
    """What was asked for, by the operator at work; the largest NUM_LISTED."""
    grows = events.change_bytes[inside] > 0
    operator = _operators(events)[inside][grows].astype(np.int64)
    return _holders(operator, events.change_bytes[inside][grows], (*events.operators, ""))


def _operators(events: MemoryEvents) -> Int32s:
    """Position of each event's operator; -1 unknown."""
    return np.full(len(events.at_ns), -1, np.int32) if events.operator is None else events.operator


def _holders(
    what: Int64s | Int32s, num_bytes: Int64s, names: tuple[str, ...]
) -> tuple[Holder, ...]:
    """Rows added up by what they belong to, largest first, at most NUM_LISTED."""
    kinds, of_row = np.unique(what, return_inverse=True)
    sums = np.zeros(len(kinds), np.int64)
    np.add.at(sums, of_row.reshape(-1), num_bytes)
    counts = np.bincount(of_row.reshape(-1), minlength=len(kinds))
    order = np.argsort(-sums, kind="stable")[:NUM_LISTED].tolist()
    return tuple(Holder(names[kinds[at]], int(counts[at]), int(sums[at])) for at in order)


def _snapshot_place(device: DeviceSnapshot, places: tuple[str, ...]) -> MemoryPlace:
    """One device over its history."""
    is_change = np.isin(device.action, (AllocatorAction.ALLOC, AllocatorAction.FREE))
    sign = np.where(device.action == AllocatorAction.FREE, -1, 1)
    change = np.where(is_change, sign * device.num_bytes, 0)
    # The history may begin in the middle of a run: what is in use at its end is known.
    used = device.active_bytes - change.sum() + np.cumsum(change)
    reserved = device.reserved_bytes - _reserved_changes(device).sum()
    reserved = reserved + np.cumsum(_reserved_changes(device))
    before = int(device.active_bytes - change.sum())
    has_times = len(device.at_ns) > 0 and not bool((device.at_ns == UNKNOWN_NS).any())
    at_ns = device.at_ns - device.at_ns[0] if has_times else np.arange(len(used), dtype=np.int64)
    end_ns = int(at_ns[-1]) + 1 if len(at_ns) else 1
    at = int(np.argmax(used)) if len(used) and int(used.max()) >= before else -1
    is_asked = device.action == AllocatorAction.ALLOC
    return MemoryPlace(
        rank=UNKNOWN_RANK,
        is_device=True,
        device=device.device,
        is_relative=False,
        num_events=len(used),
        begin_bytes=before,
        end_bytes=device.active_bytes,
        peak_bytes=before if at < 0 else int(used[at]),
        peak=Moment(
            0 if at < 0 else int(at_ns[at]), "", "" if at < 0 else places[device.place[at]]
        ),
        peak_reserved_bytes=max(int(reserved.max(initial=0)), device.reserved_bytes),
        allocated_by=_holders(device.place[is_asked], device.num_bytes[is_asked], places),
        alive_at_peak=_alive(device, at, places),
        curve=_curve(_Series(at_ns, used, reserved), before=before, begin_ns=0, end_ns=end_ns),
    )


def _reserved_changes(device: DeviceSnapshot) -> Int64s:
    grows = (device.action == AllocatorAction.SEGMENT_ALLOC).astype(np.int64)
    shrinks = (device.action == AllocatorAction.SEGMENT_FREE).astype(np.int64)
    change: Int64s = (grows - shrinks) * device.num_bytes
    return change


def _alive(device: DeviceSnapshot, at: int, places: tuple[str, ...]) -> tuple[Holder, ...]:
    """What was in use after entry `at`, by place; `at` below 0: before the history.

    An address is in use from its allocation to the next free of it. What was freed without an
    allocation in the history, or is in use at its end without one, was there before it.
    """
    entry = np.flatnonzero(np.isin(device.action, (AllocatorAction.ALLOC, AllocatorAction.FREE)))
    order = entry[np.lexsort((entry, device.address[entry]))]
    is_alloc = device.action[order] == AllocatorAction.ALLOC
    is_same = np.append(device.address[order][1:] == device.address[order][:-1], False)
    follower = np.where(is_same, np.roll(order, -1), len(device.action))[: len(order)]
    is_first = ~np.append(False, is_same[:-1])[: len(order)]
    lives = is_alloc & (order <= at) & (follower > at)
    was_there = ~is_alloc & is_first & (order > at)
    last = np.append(device.address[order][1:] != device.address[order][:-1], True)[: len(order)]
    known = device.address[order][last]
    is_old = ~np.isin(device.block_address, known)
    what = [device.place[order[lives]], device.place[order[was_there]], device.block_place[is_old]]
    sizes = [
        device.num_bytes[order[lives]],
        device.num_bytes[order[was_there]],
        device.block_bytes[is_old],
    ]
    return _holders(np.concatenate(what), np.concatenate(sizes), places)
