"""`ranks_within`: a file into which the traces of several ranks were merged, as a trace for each.

Tools that lay ranks beside each other on one time line write such files. A rank is a process that
launches device work, or, where there is none, one that marks steps; device work is the process's
whose call launched it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrace.base import Int64s, TraceError
from foretrace.trace.columns import NO_ID, Category, LaneKind, Lanes, Trace
from foretrace.trace.marks import STEP_MARK
from foretrace.trace.steps import KeptRows, with_rows

OF_NO_RANK = "of none of the ranks that were merged into the file"


def ranks_within(trace: Trace) -> tuple[Trace, ...]:
    """The trace, or where several processes are ranks in it, one for each: their ranks.

    Ranks are in the order of their devices. Device work whose launch is not recorded belongs to
    the rank that launched most of its stream.

    Raises:
        TraceError: if what launched what cannot be told, since ranks number their calls alike.
    """
    on_host = trace.lanes.kind == LaneKind.HOST
    if len(np.unique(trace.lanes.process[on_host])) < 2:  # noqa: PLR2004  one is no merge
        return (trace,)
    process = np.where(on_host, trace.lanes.process, NO_ID)[trace.lane]
    launched = _launchers(trace, process)
    if not np.any(trace.category >= Category.KERNEL):
        launched = _marked(trace, process)
    ranks = np.unique(launched[launched != NO_ID])
    if len(ranks) < 2:  # noqa: PLR2004  as above
        return (trace,)
    process = np.where(launched == NO_ID, process, launched)
    of_lane = _owners(trace, process)
    process = np.where(process == NO_ID, of_lane[trace.lane], process)
    least = [int(trace.lanes.device[trace.lane[launched == one]].min()) for one in ranks]
    ordered = [int(one) for _, one in sorted(zip(least, ranks.tolist(), strict=True))]
    kept = [_rows_of(trace, process, of_lane, one) for one in ordered]
    first, *others = (_part(trace, one, place, len(kept)) for place, one in enumerate(kept))
    return (_with_dropped(first, trace, kept), *others)


def _rows_of(trace: Trace, process: Int64s, of_lane: Int64s, one: int) -> KeptRows:
    devices = np.unique(trace.lanes.device[(of_lane == one) & (trace.lanes.device != NO_ID)])
    on_device = trace.memory.device_type != 0  # the host's memory does not say whose it is
    return KeptRows(
        process == one,
        on_device & np.isin(trace.memory.device, devices),
        of_lane[trace.flows.from_lane] == one,
    )


def _launchers(trace: Trace, process: Int64s) -> Int64s:
    """Of device work, the process whose call launched it; else NO_ID; int64[events]."""
    found = np.full(trace.num_events, NO_ID, np.int64)
    has_id = trace.correlation != NO_ID
    calls = np.flatnonzero(has_id & (trace.category == Category.RUNTIME) & (process != NO_ID))
    work = np.flatnonzero(has_id & (trace.category >= Category.KERNEL))
    calls = calls[np.argsort(trace.correlation[calls], kind="stable")]
    numbers = trace.correlation[calls]
    if not len(numbers):
        return found
    at = np.minimum(np.searchsorted(numbers, trace.correlation[work]), len(numbers) - 1)
    is_launched = numbers[at] == trace.correlation[work]
    work, at = work[is_launched], at[is_launched]
    last = np.searchsorted(numbers, trace.correlation[work], side="right") - 1
    if np.any(process[calls[at]] != process[calls[last]]):
        raise TraceError(
            f"cannot read {trace.meta.path}: the traces of several processes were merged into it, "
            "and two of them launch device work under one correlation id, so that which of them "
            "did is not told; name the files of the ranks instead"
        )
    found[work] = process[calls[at]]
    return found


def _marked(trace: Trace, process: Int64s) -> Int64s:
    """Of the profiler's step marks, their process; else NO_ID; int64[events]."""
    marks = [at for at, text in enumerate(trace.strings) if text.startswith(STEP_MARK)]
    is_mark = (trace.category == Category.ANNOTATION) & np.isin(trace.name, marks)
    return np.where(is_mark, process, NO_ID)


def _owners(trace: Trace, process: Int64s) -> Int64s:
    """The process that most of a lane's events are of, NO_ID of none; int64[lanes]."""
    owners = np.full(len(trace.lanes), NO_ID, np.int64)
    known = process != NO_ID
    pairs, counts = np.unique(
        np.stack([trace.lane[known], process[known]]), axis=1, return_counts=True
    )
    order = np.argsort(counts, kind="stable")  # the most last, which stays
    owners[pairs[0, order]] = pairs[1, order]
    return owners


def _part(trace: Trace, kept: KeptRows, place: int, num_ranks: int) -> Trace:
    """The trace of one rank, with its own lanes alone."""
    meta = trace.meta
    note = (
        f"the traces of {num_ranks} ranks were merged into the file: they are told by the "
        "processes that launch device work or mark steps, and numbered in the order of their "
        "devices"
    )
    meta = replace(
        meta,
        rank=place,
        world_size=meta.world_size or num_ranks,
        num_events=_num_kept(kept),
        dropped={},
        notes=(*meta.notes, note),
    )
    part = with_rows(trace, kept, meta)
    lanes, flows = part.lanes, part.flows
    used = np.unique(np.concatenate([part.lane, flows.from_lane, flows.to_lane]))
    return replace(
        part,
        lane=np.searchsorted(used, part.lane).astype(np.int32),
        lanes=Lanes(
            kind=lanes.kind[used],
            process=lanes.process[used],
            device=lanes.device[used],
            number=lanes.number[used],
        ),
        flows=replace(
            flows,
            from_lane=np.searchsorted(used, flows.from_lane).astype(np.int32),
            to_lane=np.searchsorted(used, flows.to_lane).astype(np.int32),
        ),
    )


def _num_kept(kept: KeptRows) -> int:
    everything = len(kept.events) + len(kept.memory) + 2 * len(kept.flows)
    return everything - kept.num_left


def _with_dropped(first: Trace, whole: Trace, kept: Sequence[KeptRows]) -> Trace:
    """The first rank's, with what was read of the file and belongs to no rank."""
    dropped = {**whole.meta.dropped}
    told = sum(_num_kept(one) for one in kept)
    if num_left := whole.num_accounted - sum(dropped.values()) - told:
        dropped[OF_NO_RANK] = num_left
    num_events = first.meta.num_events + sum(dropped.values())
    return replace(first, meta=replace(first.meta, num_events=num_events, dropped=dropped))
