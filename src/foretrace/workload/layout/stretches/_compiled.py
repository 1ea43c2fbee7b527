"""Compiled loops that run stretches of parts by themselves; see `part_times`."""

from __future__ import annotations

from typing import Any

import numpy as np

from foretrace.base import Int64s, njit
from foretrace.workload.layout._compiled import beside

_NONE = -1
# Of items of a stretch: stream, how long it takes alone or which exchange it is, host time of its
# launch, rules.
_STREAM, _TAKES, _LAUNCHED, _MARKS = range(4)
_ENTRY, _EXIT, _OUTSIDE = 1, 2, 4  # `part_times` marks items so
_TIMED, _FREE, _LEFT_OUT = range(3)
# Ways to run a stretch: alone; slowed by what runs beside; so and behind a host that comes to it
# just now; slowed throughout.
_ALONE, _OWN, _LATE, _SLOWED, _WAYS = range(5)
_NEVER = 2**62


@njit
def run_stretch(
    parts: Int64s,
    table: tuple[Any, ...],
    lags: tuple[int, ...],
    layers: tuple[Any, ...],
    room: tuple[Any, ...],
    ends_ns: Int64s,
    totals_ns: Int64s,
) -> None:
    """Run parts one after the other by themselves, kernel by kernel.

    In: `parts` int64[parts], numbers in `table`: where the items of each begin; int64[items, 4];
    how much slower each is with communication beside it, less 1; where what each waits for begins;
    that, int64[waits], counted from its part's first item. Left out are exchanges of other streams
    and those that the first part begins and the last one ends with; those that nothing holds up
    are over in time. `lags` of streams, between streams, of launches; `layers` as in `run_step`.
    `room`: int64[items, 3] twice, float64[2, items], and how long exchanges take that items name.
    Out: `ends_ns` int64[operators, 4], when each ends once slowed, behind a late host and slowed
    throughout, and host time until its launch; `totals_ns` int64[4], when the first one begins,
    so too slowed throughout, host time of all, and of all operators once slowed.
    """
    part_begin, items, slower, wait_begin, wait_item = table
    stream_lag, inter_lag, launch_lag = lags
    more, counts = layers
    rows, span_ns, share, exchange_ns = room  # of rows: begin, end, state
    num_streams = counts.shape[1]
    lane_begin = np.zeros((1, num_streams + 1), np.int64)
    leave_ns = np.empty(num_streams, np.int64)
    cursor = np.empty(num_streams, np.int64)
    is_held = np.empty(num_streams, np.bool_)
    for part in parts:
        for item in range(part_begin[part], part_begin[part + 1]):
            lane_begin[0, items[item, _STREAM] + 1] += 1
    for stream in range(num_streams):
        lane_begin[0, stream + 1] += lane_begin[0, stream]
    span_ns[: lane_begin[0, num_streams], 0] = _NEVER
    totals_ns[:] = 0
    for way in range(_WAYS):
        leave_ns[:] = _NONE
        is_held[:] = False
        cursor[:] = lane_begin[0, :num_streams]
        host = number = at = before = np.int64(0)
        for place in range(parts.size):
            begin = at
            for item in range(part_begin[parts[place]], part_begin[parts[place] + 1]):
                stream = items[item, _STREAM]
                marks = items[item, _MARKS]
                is_operator = stream == 0
                if not is_operator and (
                    marks & _OUTSIDE
                    or (place == 0 and marks & _ENTRY)
                    or (place == parts.size - 1 and marks & _EXIT)
                ):
                    rows[at, 2] = _LEFT_OUT
                    at += 1
                    continue
                host += items[item, _LAUNCHED]
                ready = host + launch_lag if way == _LATE else np.int64(0)
                if leave_ns[stream] >= 0:
                    ready = max(ready, leave_ns[stream] + stream_lag)
                for wait in range(wait_begin[item], wait_begin[item + 1]):
                    source = begin + wait_item[wait]
                    is_held[stream] |= rows[source, 2] != _LEFT_OUT
                    if rows[source, 2] == _TIMED:
                        ready = max(ready, rows[source, 1] + inter_lag)
                for source in range(before, begin if marks & _ENTRY else before):
                    other = part_begin[parts[place - 1]] + source - before
                    if items[other, _MARKS] & _EXIT and items[other, _STREAM] != stream:
                        is_held[stream] |= rows[source, 2] != _LEFT_OUT
                        if rows[source, 2] == _TIMED:
                            ready = max(ready, rows[source, 1] + inter_lag)
                takes = items[item, _TAKES]
                if not is_operator:
                    takes = exchange_ns[takes]
                elif way != _ALONE:
                    takes = span_ns[number, 2]
                    if way == _SLOWED:
                        takes = np.int64(np.rint(items[item, _TAKES] * (1 + slower[item])))
                leave = ready + takes
                rows[at, 0], rows[at, 1] = ready, leave
                rows[at, 2] = _TIMED if is_operator or is_held[stream] else _FREE
                leave_ns[stream] = leave
                at += 1
                if way == _ALONE:
                    span = cursor[stream]
                    cursor[stream] = span + 1
                    span_ns[span, 0], span_ns[span, 1], span_ns[span, 2] = ready, leave, item
                elif is_operator:
                    ends_ns[number, way - 1] = leave
                    if way == _OWN:
                        ends_ns[number, 3] = host
                        totals_ns[3] += takes
                    if number == 0 and way != _LATE:
                        totals_ns[way // 2] = ready
                    number += 1
            before = begin
        totals_ns[2] = host
        if way == _ALONE:
            share[0, : lane_begin[0, 1]] = 0.0
            for layer in range(more.size):
                beside(lane_begin, span_ns, counts[layer], share[1])
                for own in range(lane_begin[0, 1]):
                    share[0, own] += more[layer] * share[1, own]
            for own in range(lane_begin[0, 1]):
                item = span_ns[own, 2]
                grown = items[item, _TAKES] * (1 + slower[item] * share[0, own])
                span_ns[own, 2] = np.int64(np.rint(grown))


@njit
def run_stretches(
    stretches: tuple[Int64s, ...],
    table: tuple[Any, ...],
    lags: tuple[int, ...],
    layers: tuple[Any, ...],
    room: tuple[Any, ...],
    ends_ns: Int64s,
    totals_ns: Int64s,
) -> None:
    """Run stretches by themselves, each as `run_stretch` does.

    In: of `stretches`, where the parts of each begin, their numbers, where what is known of its
    exchanges begins, which these are, how long each takes; where its operators begin. All else is
    as in `run_stretch`; there is room for the longest.
    Out: `ends_ns` int64[operators, 4], `totals_ns` int64[stretches, 4].
    """
    begin, parts, known_begin, known, known_ns, operator_begin = stretches
    for at in range(begin.size - 1):
        for one in range(known_begin[at], known_begin[at + 1]):
            room[3][known[one]] = known_ns[one]
        run_stretch(
            parts[begin[at] : begin[at + 1]],
            table,
            lags,
            layers,
            room,
            ends_ns[operator_begin[at] : operator_begin[at + 1]],
            totals_ns[at],
        )
