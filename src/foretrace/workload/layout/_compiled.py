"""Compiled loops that run a step at unit grain without its graph; see `unit_program`."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Float64s, Int64s, njit

_FORWARD, _BACKWARD, _WEIGHT = 0, 1, 3  # `Pass`
_NONE = -1
_MIRRORED = 3  # `unit_program.JOINS`
# What an item waits for, `Wait`.
_INSIDE, _RESULT, _HELD, _GATHERED, _USE, _LAST, _BARRIER = range(7)
# How gradients are reduced, `unit_program.Reducing`.
_BY_LAST, _BY_ALL, _BY_RUNS = 1, 2, 3
# Tuples of arrays are passed word by word: what each unit calls is part of its caller, which
# takes a sixth of its time away.
_IN_PLACE = "always"


@njit
def unit_codes(
    begin: Int64s, kind: Int64s, chunk: Int64s, reducing: int, code: Int64s, first: Int64s
) -> int:
    """What each unit does, as a number: chunk, pass, whether it reduces, whether it is the first.

    Out: `code` int64[units]; `first` int64[2, chunks], stage by stage the chunks in the order of
    their first forward passes, and where a stage's begin. Returns how many there are.
    """
    num_chunks = first.shape[1]
    is_seen = np.zeros(num_chunks, np.bool_)
    is_made = np.zeros(num_chunks, np.bool_)
    count = 0
    for stage in range(begin.size - 1):
        first[1, stage] = count
        for at in range(begin[stage], begin[stage + 1]):
            own = chunk[at]
            code[at] = (own * 4 + kind[at]) * 4
            if kind[at] == _FORWARD and not is_seen[own]:
                is_seen[own] = True
                code[at] += 1
                first[0, count] = own
                count += 1
        behind = _NONE
        for at in range(begin[stage + 1] - 1, begin[stage] - 1, -1):
            own = chunk[at]
            if kind[at] != _BACKWARD and kind[at] != _WEIGHT:
                continue
            if (
                reducing == _BY_ALL
                or (reducing != 0 and not is_made[own])
                or (reducing == _BY_RUNS and own != behind)
            ):
                code[at] += 2
            is_made[own] = True
            behind = own
    return count


@njit
def tallied(
    schedule: tuple[Int64s, ...], routes: tuple[Int64s, ...], tally: Int64s, ends: Int64s
) -> None:
    """How often each stage runs each program, and how many transfers it receives and sends.

    Out: `tally` int64[stages, programs] and `ends` int64[2, stages].
    """
    begin, kind, _, chunk, program, member = schedule
    before, behind, stage_of = routes
    for stage in range(begin.size - 1):
        for at in range(begin[stage], begin[stage + 1]):
            if member[at] == 0:
                tally[stage, program[at]] += 1
            source, _ = _source(kind[at], chunk[at], before, behind)
            if source >= 0 and stage_of[source] != stage:
                ends[0, stage] += 1
            if _sends(kind[at], chunk[at], routes, stage):
                ends[1, stage] += 1


@njit(inline=_IN_PLACE)
def _source(kind: int, chunk: int, before: Int64s, behind: Int64s) -> tuple[int, int]:
    """Chunk that makes what a unit works on, below 0 if none does; and in which direction."""
    if kind == _FORWARD:
        return before[chunk], 1
    if kind == _WEIGHT:
        return chunk, 0
    if behind[chunk] < 0:
        return chunk, 1
    return behind[chunk], 0


@njit(inline=_IN_PLACE)
def _sends(kind: int, chunk: int, routes: tuple[Int64s, ...], stage: int) -> bool:
    """Whether another stage works on what a unit makes."""
    before, behind, stage_of = routes
    if kind == _WEIGHT:
        return False
    to = behind[chunk] if kind == _FORWARD else before[chunk]
    return bool(to >= 0 and stage_of[to] != stage)


@njit(inline=_IN_PLACE)
def _left_ns(unit: int, stream: int, result_ns: Int64s, programs: tuple[Int64s, ...]) -> int:
    """When what a unit leaves on other streams than one is there; below 0: it leaves nothing."""
    columns, exit_begin, exit_item = programs[1], programs[4], programs[5]
    own = result_ns[unit, 0]
    if own < 0:
        return int(result_ns[unit, 1])
    until = _NONE
    for at in range(exit_begin[own], exit_begin[own + 1]):
        if columns[exit_item[at], 0] != stream:
            until = max(until, result_ns[unit, 1 + at - exit_begin[own]])
    return until


@njit(inline=_IN_PLACE)
def _run_items(
    stage: int,
    program: int,
    lead: int,
    first: int,
    programs: tuple[Int64s, ...],
    chunk: Int64s,
    made_by: Int64s,
    lags: tuple[int, ...],
    exchange_ns: Int64s,
    extra_ns: Int64s,
    hosts: tuple[Int64s, ...],
    lanes: tuple[Int64s, ...],
    known: tuple[Int64s, ...],
    parties: tuple[Int64s, ...],
) -> int:
    """Run a program's items from `first` on; returns where it stands still, or below 0.

    It stands still at an exchange of several stages that another one has not come to.
    """
    item_begin, item_columns, wait_begin, wait_columns, _, _ = programs
    launch_lag, stream_lag, inter_lag, _, _, sends = lags
    host_ns, rest_ns, held_ns, used_ns, num_used, waits_for = hosts
    leave_ns, cursor, span_ns = lanes
    local_ns, before_ns, result_ns, received_ns, gathered_ns = known
    party_ns, party_left, party_turn = parties
    num_stages, num_streams = leave_ns.shape
    begin = item_begin[program]
    if first == 0 and waits_for[stage] < 0:
        before_ns[stage] = leave_ns[stage]
    for at in range(first, item_begin[program + 1] - begin):
        item = begin + at
        stream = item_columns[item, 0]
        exchange = item_columns[item, 1]
        joins = item_columns[item, 5]
        party = waits_for[stage]
        if party >= 0:
            ready = local_ns[stage, at]
        else:
            host_ns[stage] += item_columns[item, 3] + rest_ns[stage]
            rest_ns[stage] = item_columns[item, 4]
            ready = host_ns[stage] + launch_lag
            if leave_ns[stage, stream] >= 0:
                ready = max(ready, leave_ns[stage, stream] + stream_lag)
            for wait in range(wait_begin[item], wait_begin[item + 1]):
                kind = wait_columns[wait, 0]
                number = wait_columns[wait, 1]
                until = _NONE
                if kind == _INSIDE:
                    until = local_ns[stage, number]
                elif kind == _RESULT:
                    unit = lead + number
                    until = received_ns[unit]
                    if until < 0 and made_by[unit] >= 0:
                        until = _left_ns(made_by[unit], stream, result_ns, programs)
                elif kind == _HELD:
                    until = held_ns[stage]
                elif kind == _GATHERED:
                    until = gathered_ns[chunk[lead + wait_columns[wait, 2]], number]
                elif kind == _USE:
                    if num_used[stage] >= number:
                        until = used_ns[stage, (num_used[stage] - number) % used_ns.shape[1]]
                elif kind == _LAST:
                    until = before_ns[stage, 0]
                else:
                    for other in range(1, num_streams - 1):
                        if other not in (stream, sends):
                            until = max(until, before_ns[stage, other])
                if until >= 0:
                    ready = max(ready, until + inter_lag)
            if joins > 0:
                turn = party_turn[stage, joins]
                party_turn[stage, joins] += 1
                pair = min(stage, num_stages - 1 - stage) if joins == _MIRRORED else 0
                party = (turn * 4 + joins) * num_stages + pair
                party_ns[party] = max(party_ns[party], ready)
                party_left[party] -= 1
        if party >= 0:
            waits_for[stage] = party
            local_ns[stage, at] = ready
            if party_left[party] > 0:
                return at
            waits_for[stage] = _NONE
        place = cursor[stage, stream]
        cursor[stage, stream] += 1
        leave = max(ready, party_ns[party]) if party >= 0 else ready
        if exchange < 0:
            leave += item_columns[item, 2] + extra_ns[place]
        else:
            leave += exchange_ns[exchange, stage]
        local_ns[stage, at] = leave
        leave_ns[stage, stream] = leave
        span_ns[place, 0], span_ns[place, 1] = ready, leave
        if exchange < 0:
            span_ns[place, 2] = item_columns[item, 6]
    return _NONE


@njit(inline=_IN_PLACE)
def _transfer(
    stage: int, ready: int, arrive: int, took: int, stream: int, lags: tuple[int, ...],
    lanes: tuple[Int64s, ...],
) -> int:  # fmt: skip
    """One end of a transfer; returns when it is over.

    It begins when `ready` and its stream is free; it takes `took` once the other end came too.
    """
    leave_ns, cursor, span_ns = lanes
    if leave_ns[stage, stream] >= 0:
        ready = max(ready, leave_ns[stage, stream] + lags[1])
    leave = max(ready, arrive) + took
    place = cursor[stage, stream]
    cursor[stage, stream] += 1
    span_ns[place, 0], span_ns[place, 1] = ready, leave
    leave_ns[stage, stream] = leave
    return leave


@njit
def run_step(
    schedule: tuple[Int64s, ...],
    routes: tuple[Int64s, ...],
    programs: tuple[Int64s, ...],
    ends: tuple[Int64s, ...],
    firsts: tuple[Int64s, ...],
    closings: tuple[Int64s, ...],
    times: tuple[Int64s, ...],
    lags: tuple[int, ...],
    rules: tuple[int, ...],
    extra_ns: Int64s,
    hosts: tuple[Int64s, ...],
    lanes: tuple[Int64s, ...],
    known: tuple[Int64s, ...],
    parties: tuple[Int64s, ...],
    makers: tuple[Int64s, ...],
) -> int:
    """Run a step, unit by unit on every stage as what they work on is there.

    Out: `span_ns` of `lanes`, and all that is kept of stages on the way. Returns how long the step
    takes; below 0: some unit waits for ever.
    """
    begin, kind, microbatch, chunk, program, member = schedule
    before, behind, stage_of = routes
    item_begin = programs[0]
    exit_begin, exit_item = programs[4], programs[5]
    loose_begin, loose_item, use_begin, use_item, has_operators = ends
    first_begin, first_chunk, gather_program, is_first = firsts
    closing_begin, closing = closings
    exchange_ns, transfer_ns = times
    launch_lag, _, inter_lag, wake_lag, exchange_host, sends = lags
    is_posted_ahead, is_gathered_ahead = rules
    host_ns, rest_ns, held_ns, used_ns, num_used, waits_for = hosts
    leave_ns = lanes[0]
    local_ns, _, result_ns, received_ns, gathered_ns = known
    made_by, unit_of, post_ns, sent_ns, place_of, item_of, count_first = makers
    num_stages, num_streams = leave_ns.shape
    receives = num_streams - 1
    moved = True
    while moved:
        moved = False
        for stage in range(num_stages):
            while place_of[stage] < begin[stage + 1]:
                lead = place_of[stage]
                end = lead + 1
                while end < begin[stage + 1] and member[end] > 0:
                    end += 1
                is_ready = True
                for unit in range(lead, end):
                    source, is_forward = _source(kind[unit], chunk[unit], before, behind)
                    if source >= 0:
                        made_by[unit] = unit_of[is_forward, source, microbatch[unit]]
                        if made_by[unit] < 0:
                            is_ready = False
                if not is_ready:
                    break
                # Receives are posted one turn ahead of their use, or in their turn.
                low = end if is_posted_ahead and lead > begin[stage] else lead
                high = end
                if is_posted_ahead and high < begin[stage + 1]:
                    high += 1
                    while high < begin[stage + 1] and member[high] > 0:
                        high += 1
                for unit in range(low, high):
                    source, _ = _source(kind[unit], chunk[unit], before, behind)
                    if source >= 0 and stage_of[source] != stage:
                        host_ns[stage] += exchange_host + rest_ns[stage]
                        rest_ns[stage] = 0
                        post_ns[unit] = host_ns[stage] + launch_lag
                        if leave_ns[stage, 0] >= 0:
                            post_ns[unit] = max(post_ns[unit], leave_ns[stage, 0] + inter_lag)
                if is_gathered_ahead:
                    for unit in range(lead, end):
                        if is_first[unit]:
                            at = first_begin[stage] + count_first[stage]
                            low = at if count_first[stage] == 0 else at + 1
                            for other in range(low, min(at + 2, first_begin[stage + 1])):
                                own = first_chunk[other]
                                _run_items(
                                    stage, gather_program[own], lead, 0, programs, chunk, made_by,
                                    lags, exchange_ns, extra_ns, hosts, lanes, known, parties,
                                )  # fmt: skip
                                size = (
                                    item_begin[gather_program[own] + 1]
                                    - item_begin[gather_program[own]]
                                )
                                gathered_ns[own, :size] = local_ns[stage, :size]
                            count_first[stage] += 1
                for unit in range(lead, end):
                    if post_ns[unit] >= 0:
                        maker = made_by[unit]
                        left = _left_ns(maker, _NONE, result_ns, programs)
                        ready = max(post_ns[unit], left + inter_lag if left >= 0 else 0)
                        far = chunk[unit] if kind[unit] == _FORWARD else behind[chunk[unit]]
                        received_ns[unit] = _transfer(
                            stage, ready, sent_ns[maker], transfer_ns[far], receives, lags, lanes
                        )
                number = program[lead]
                _run_items(
                    stage, number, lead, 0, programs, chunk, made_by,
                    lags, exchange_ns, extra_ns, hosts, lanes, known, parties,
                )  # fmt: skip
                if has_operators[number]:
                    held_ns[stage] = _NONE
                for at in range(loose_begin[number], loose_begin[number + 1]):
                    held_ns[stage] = max(held_ns[stage], local_ns[stage, loose_item[at]])
                for at in range(use_begin[number], use_begin[number + 1]):
                    used_ns[stage, num_used[stage] % used_ns.shape[1]] = local_ns[
                        stage, use_item[at]
                    ]
                    num_used[stage] += 1
                for unit in range(lead, end):
                    own = 2 * number + member[unit]
                    result_ns[unit, 0] = own
                    if exit_begin[own] == exit_begin[own + 1]:
                        # A chunk without layers leaves what it works on.
                        result_ns[unit, 0], result_ns[unit, 1] = _NONE, received_ns[unit]
                        if received_ns[unit] < 0 and made_by[unit] >= 0:
                            result_ns[unit] = result_ns[made_by[unit]]
                    for at in range(exit_begin[own], exit_begin[own + 1]):
                        result_ns[unit, 1 + at - exit_begin[own]] = local_ns[
                            stage, exit_item[at] - item_begin[number]
                        ]
                    if kind[unit] != _WEIGHT:
                        unit_of[
                            1 if kind[unit] == _FORWARD else 0, chunk[unit], microbatch[unit]
                        ] = unit
                for unit in range(lead, end):
                    if _sends(kind[unit], chunk[unit], routes, stage):
                        host_ns[stage] += exchange_host + rest_ns[stage]
                        rest_ns[stage] = 0
                        left = _left_ns(unit, _NONE, result_ns, programs)
                        ready = host_ns[stage] + launch_lag
                        ready = max(ready, left + inter_lag if left >= 0 else 0)
                        far = chunk[unit] if kind[unit] != _FORWARD else behind[chunk[unit]]
                        over = _transfer(stage, ready, 0, transfer_ns[far], sends, lags, lanes)
                        sent_ns[unit] = over - transfer_ns[far]
                        if not is_posted_ahead:
                            held_ns[stage] = max(held_ns[stage], over)
                place_of[stage] = end
                moved = True
            if place_of[stage] < begin[stage + 1]:
                continue
            # The number of closings is kept where units stood: behind the last.
            while (
                place_of[stage] - begin[stage + 1] < closing_begin[stage + 1] - closing_begin[stage]
            ):
                at = closing_begin[stage] + place_of[stage] - begin[stage + 1]
                number = closing[at]
                was = item_of[stage], waits_for[stage]
                still = _run_items(
                    stage, number, 0, item_of[stage], programs, chunk, made_by,
                    lags, exchange_ns, extra_ns, hosts, lanes, known, parties,
                )  # fmt: skip
                if still >= 0:
                    moved = moved or was != (still, waits_for[stage])
                    item_of[stage] = still
                    break
                item_of[stage] = 0
                if has_operators[number]:
                    held_ns[stage] = _NONE
                place_of[stage] += 1
                moved = True
    step = 0
    for stage in range(num_stages):
        if place_of[stage] - begin[stage + 1] < closing_begin[stage + 1] - closing_begin[stage]:
            return _NONE
        step = max(step, host_ns[stage])
        for stream in range(num_streams):
            if leave_ns[stage, stream] >= 0:
                step = max(step, leave_ns[stage, stream] + wake_lag)
    return step


@njit
def beside(lane_begin: Int64s, span_ns: Int64s, counts: Bools, share: Float64s) -> None:
    """Share of work's time that has communication of its stage beside it.

    In: `lane_begin` int64[stages, streams + 1], where spans of every stream stand, work's first;
    `span_ns` int64[spans, 3], begin, end, and what is not read here; `counts` bool[streams].
    Spans of a stream are in order and disjoint. Out: `share` float64[spans].
    """
    num_streams = lane_begin.shape[1] - 1
    place = np.zeros(num_streams, np.int64)
    for stage in range(lane_begin.shape[0]):
        place[:] = lane_begin[stage, :num_streams]
        low = high = np.int64(-1)  # of communication without a gap
        for at in range(lane_begin[stage, 0], lane_begin[stage, 1]):
            start, end = span_ns[at, 0], span_ns[at, 1]
            covered = max(min(high, end) - max(low, start), 0)
            while high < end:
                best = _NONE
                for stream in range(1, num_streams):
                    if (counts[stream] and place[stream] < lane_begin[stage, stream + 1]) and (
                        best < 0 or span_ns[place[stream], 0] < span_ns[place[best], 0]
                    ):
                        best = stream
                if best < 0 or span_ns[place[best], 0] >= end:
                    break
                # What overlaps counts once: from where the last ended.
                low = max(span_ns[place[best], 0], high)
                high = max(span_ns[place[best], 1], high)
                place[best] += 1
                covered += max(min(high, end) - max(low, start), 0)
            share[at] = covered / max(end - start, 1)
