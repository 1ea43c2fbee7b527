"""Compiled loops that run a step at unit grain without its graph; see `unit_program`."""

from __future__ import annotations

from typing import Any

import numpy as np

from foretrace.base import Bools, Float64s, Int64s, njit

Job = Any  # what `run_step` takes: a tuple of arrays and of tuples of these

_NONE = -1
_MIRRORED = 3  # `piece_program.JOINS`
# What an item waits for, `Wait`.
_INSIDE, _RESULT, _HELD, _GATHERED, _USE, _LAST, _BARRIER = range(7)
# Of stages on the way: when the host is free, its work behind the last launch, what holds the next
# operator up, and how often gathered parameters were used.
_HOST, _REST, _HELD_UNTIL, _NUM_USED = range(4)
# Of units: stage, units of its turn (0: not its first), who makes what it works on, the chunk that
# tells how long its transfers take, before and behind; its stage's next turn; chunk; rules.
_STAGE, _SIZE, _MAKER, _FROM, _TO, _NEXT, _CHUNK, _RULES = range(8)
_IS_FIRST, _OPENS = 1, 2  # a chunk's first forward pass, a stage's first turn
_TURNS, _KINDS = 8, 4  # of meetings of several stages: most of a stage, `JOINS` and none


@njit
def lanes(job: Job, closings: tuple[Int64s, ...], lane_begin: Int64s) -> int:
    """Count the spans of every stream of every stage.

    Out: `lane_begin` int64[stages, streams + 1], where those of each begin. Returns their number.
    """
    rows, program, programs, _, firsts, _, lags, _ = job
    item_begin, columns = programs[0], programs[1]
    first_begin, first_chunk, gather_program = firsts
    closing_begin, closing = closings
    num_stages, num_streams = lane_begin.shape[0], lane_begin.shape[1] - 1
    tally = np.zeros((num_stages, item_begin.size - 1), np.int64)
    counts = np.zeros((num_stages, num_streams), np.int64)
    for row in range(program.size):
        stage = rows[row, _STAGE]
        if rows[row, _SIZE] > 0:
            tally[stage, program[row]] += 1
        counts[stage, num_streams - 1] += rows[row, _FROM] >= 0
        counts[stage, lags[5]] += rows[row, _TO] >= 0
    for stage in range(num_stages):
        for at in range(closing_begin[stage], closing_begin[stage + 1]):
            tally[stage, closing[at]] += 1
        for at in range(first_begin[stage], first_begin[stage + 1]):
            if gather_program[first_chunk[at]] >= 0:
                tally[stage, gather_program[first_chunk[at]]] += 1
    total = 0
    for stage in range(num_stages):
        for number in range(item_begin.size - 1):
            if tally[stage, number] > 0:
                for item in range(item_begin[number], item_begin[number + 1]):
                    counts[stage, columns[item, 0]] += tally[stage, number]
        for stream in range(num_streams):
            lane_begin[stage, stream] = total
            total += counts[stage, stream]
        lane_begin[stage, num_streams] = total
    return total


@njit
def _run_once(
    job: Job,
    closings: tuple[Int64s, ...],
    lane_begin: Int64s,
    spans: tuple[Int64s, ...],
    state: tuple[Int64s, ...],
    known: tuple[Int64s, ...],
    is_slowed: bool,
) -> int:
    """Run all units, turn by turn, and what follows them on each stage.

    The first time spans are written down; once that told what slows them, these additions are read.
    Returns how long it takes; below 0: a stage waits for ever at an exchange that others do not
    come to. All in one function: what is called would count the arrays it is given at each call.
    """
    rows, program, programs, ends, firsts, times, lags, rules = job
    item_begin, columns, wait_begin, waits, exit_begin, exit_item = programs
    loose_begin, loose_item, use_begin, use_item, has_operators = ends
    first_begin, first_chunk, gather_program = firsts
    exchange_ns, transfer_ns = times
    closing_begin, closing = closings
    extra_ns, span_ns = spans
    launch_lag, stream_lag, inter_lag, wake_lag, exchange_host, sends = lags
    is_posted_ahead, is_gathered_ahead = rules
    stage_ns, leave_ns, cursor, used_ns, before_ns, local_ns = state
    result_ns, received_ns, gathered_ns, post_ns, sent_ns = known
    num_stages, num_streams = leave_ns.shape
    receives = num_streams - 1
    for stage in range(num_stages):
        for at in range(4):
            stage_ns[stage, at] = 0
        stage_ns[stage, _HELD_UNTIL] = _NONE
        for stream in range(num_streams):
            leave_ns[stage, stream] = _NONE
            cursor[stage, stream] = lane_begin[stage, stream]
    num_first = np.zeros(num_stages, np.int64)
    place = closing_begin[:-1].copy()
    item_of = np.zeros(num_stages, np.int64)
    waits_for = np.zeros(num_stages, np.bool_)
    turn = np.zeros((num_stages, _KINDS), np.int64)
    party_ns = np.full((_TURNS, _KINDS, num_stages), _NONE, np.int64)
    party_left = np.full((_TURNS, _KINDS, num_stages), 2, np.int64)
    party_left[:, 1, :] = num_stages
    end = np.int64(0)
    num_idle = 0  # stages in a row that could not go on
    while num_idle < num_stages:
        lead = end
        low = high = np.int64(0)
        is_unit = end < program.size
        is_waiting = False
        from_item = np.int64(0)
        if is_unit:
            end = lead + rows[lead, _SIZE]
            stage = rows[lead, _STAGE]
            number = program[lead]
            # Receives are posted one turn ahead of their use, or in their turn.
            for posted in range(2):
                turn_lead = lead if posted == 0 else rows[lead, _NEXT]
                if posted == 0 and is_posted_ahead and not rows[lead, _RULES] & _OPENS:
                    continue
                if posted == 1 and (not is_posted_ahead or turn_lead < 0):
                    continue
                for unit in range(turn_lead, turn_lead + rows[turn_lead, _SIZE]):
                    if rows[unit, _FROM] >= 0:
                        stage_ns[stage, _HOST] += exchange_host + stage_ns[stage, _REST]
                        stage_ns[stage, _REST] = 0
                        post = stage_ns[stage, _HOST] + launch_lag
                        if leave_ns[stage, 0] >= 0:
                            post = max(post, leave_ns[stage, 0] + inter_lag)
                        post_ns[unit] = post
            for unit in range(lead, end):
                received_ns[unit] = _NONE
                if rows[unit, _FROM] >= 0:
                    maker = rows[unit, _MAKER]
                    ready = post_ns[unit]
                    if result_ns[maker, 1] >= 0:
                        ready = max(ready, result_ns[maker, 1] + inter_lag)
                    if leave_ns[stage, receives] >= 0:
                        ready = max(ready, leave_ns[stage, receives] + stream_lag)
                    leave = max(ready, sent_ns[maker]) + transfer_ns[rows[unit, _FROM]]
                    if not is_slowed:
                        span = cursor[stage, receives]
                        cursor[stage, receives] = span + 1
                        span_ns[span, 0], span_ns[span, 1] = ready, leave
                    leave_ns[stage, receives] = received_ns[unit] = leave
                if is_gathered_ahead and rows[unit, _RULES] & _IS_FIRST:
                    # A chunk's parameters are gathered one chunk ahead of their first use.
                    seen = first_begin[stage] + num_first[stage]
                    if high == low:
                        low = seen if num_first[stage] == 0 else seen + 1
                    high = min(seen + 2, first_begin[stage + 1])
                    num_first[stage] += 1
        else:
            stage = (stage + 1) % num_stages
            num_idle += 1
            if place[stage] == closing_begin[stage + 1]:
                continue
            number = closing[place[stage]]
            from_item, is_waiting = item_of[stage], waits_for[stage]
            for stream in range(num_streams if from_item == 0 and not is_waiting else 0):
                before_ns[stage, stream] = leave_ns[stage, stream]
        host = stage_ns[stage, _HOST]
        rest = stage_ns[stage, _REST]
        is_still = False
        for other in range(low, max(low, high) + 1):
            chunk = first_chunk[other] if other < high else np.int64(_NONE)
            own = gather_program[chunk] if chunk >= 0 else number
            begin = item_begin[own]
            for at in range(from_item, item_begin[own + 1] - begin):
                item = begin + at
                stream = columns[item, 0]
                ready = local_ns[stage, at]
                if not is_waiting:
                    host += columns[item, 3] + rest
                    rest = columns[item, 4]
                    ready = host + launch_lag
                    if leave_ns[stage, stream] >= 0:
                        ready = max(ready, leave_ns[stage, stream] + stream_lag)
                    for wait in range(wait_begin[item], wait_begin[item + 1]):
                        kind = waits[wait, 0]
                        which = waits[wait, 1]
                        until = np.int64(_NONE)
                        if kind == _INSIDE:
                            until = local_ns[stage, which]
                        elif kind == _RESULT:
                            until = received_ns[lead + which]
                            maker = rows[lead + which, _MAKER]
                            if until < 0 and maker >= 0:
                                member = result_ns[maker, 0]
                                if member < 0:
                                    until = result_ns[maker, 1]
                                else:
                                    first = exit_begin[member]
                                    for left_at in range(first, exit_begin[member + 1]):
                                        if columns[exit_item[left_at], 0] != stream:
                                            until = max(
                                                until, result_ns[maker, 2 + left_at - first]
                                            )
                        elif kind == _HELD:
                            until = stage_ns[stage, _HELD_UNTIL]
                        elif kind == _GATHERED:
                            until = gathered_ns[rows[lead + waits[wait, 2], _CHUNK], which]
                        elif kind == _USE:
                            used = stage_ns[stage, _NUM_USED]
                            if used >= which:
                                until = used_ns[stage, (used - which) % used_ns.shape[1]]
                        elif kind == _LAST:
                            until = before_ns[stage, 0]
                        else:
                            for beside_it in range(1, num_streams - 1):
                                if beside_it not in (stream, sends):
                                    until = max(until, before_ns[stage, beside_it])
                        if until >= 0:
                            ready = max(ready, until + inter_lag)
                start = ready
                joins = columns[item, 5]
                if joins > 0 and not is_unit:
                    met = turn[stage, joins]
                    pair = min(stage, num_stages - 1 - stage) if joins == _MIRRORED else 0
                    if not is_waiting:
                        local_ns[stage, at] = ready
                        party_ns[met, joins, pair] = max(party_ns[met, joins, pair], ready)
                        party_left[met, joins, pair] -= 1
                        num_idle = 0
                    is_still = party_left[met, joins, pair] > 0
                    if is_still:
                        item_of[stage] = at
                        break
                    turn[stage, joins] += 1
                    start = party_ns[met, joins, pair]
                is_waiting = False
                span = cursor[stage, stream]
                cursor[stage, stream] = span + 1
                exchange = columns[item, 1]
                if exchange >= 0:
                    leave = start + exchange_ns[exchange, stage]
                elif is_slowed:
                    leave = start + columns[item, 2] + extra_ns[span]
                else:
                    leave = start + columns[item, 2]
                    span_ns[span, 2] = columns[item, 6]
                if not is_slowed:
                    span_ns[span, 0], span_ns[span, 1] = ready, leave
                local_ns[stage, at] = leave_ns[stage, stream] = leave
                if chunk >= 0:
                    gathered_ns[chunk, at] = leave
        stage_ns[stage, _HOST], stage_ns[stage, _REST] = host, rest
        waits_for[stage] = is_still
        if is_still:
            continue
        num_idle = 0
        if has_operators[number]:
            stage_ns[stage, _HELD_UNTIL] = _NONE
        if not is_unit:
            item_of[stage] = 0
            place[stage] += 1
            continue
        for at in range(loose_begin[number], loose_begin[number + 1]):
            stage_ns[stage, _HELD_UNTIL] = max(
                stage_ns[stage, _HELD_UNTIL], local_ns[stage, loose_item[at]]
            )
        for at in range(use_begin[number], use_begin[number + 1]):
            used = stage_ns[stage, _NUM_USED]
            used_ns[stage, used % used_ns.shape[1]] = local_ns[stage, use_item[at]]
            stage_ns[stage, _NUM_USED] = used + 1
        begin = item_begin[number]
        for unit in range(lead, end):
            member = 2 * number + unit - lead
            first, last = exit_begin[member], exit_begin[member + 1]
            left = np.int64(_NONE)
            result_ns[unit, 0] = member
            if first == last:
                # A chunk without layers leaves what it works on.
                left = received_ns[unit]
                result_ns[unit, 0] = _NONE
                if left < 0 and rows[unit, _MAKER] >= 0:
                    for at in range(result_ns.shape[1]):
                        result_ns[unit, at] = result_ns[rows[unit, _MAKER], at]
                    left = result_ns[unit, 1]
            for at in range(first, last):
                over = local_ns[stage, exit_item[at] - begin]
                result_ns[unit, 2 + at - first] = over
                left = max(left, over)
            result_ns[unit, 1] = left
        for unit in range(lead, end):
            if rows[unit, _TO] >= 0:
                stage_ns[stage, _HOST] += exchange_host + stage_ns[stage, _REST]
                stage_ns[stage, _REST] = 0
                ready = stage_ns[stage, _HOST] + launch_lag
                if result_ns[unit, 1] >= 0:
                    ready = max(ready, result_ns[unit, 1] + inter_lag)
                if leave_ns[stage, sends] >= 0:
                    ready = max(ready, leave_ns[stage, sends] + stream_lag)
                sent_ns[unit] = ready
                leave = ready + transfer_ns[rows[unit, _TO]]
                if not is_slowed:
                    span = cursor[stage, sends]
                    cursor[stage, sends] = span + 1
                    span_ns[span, 0], span_ns[span, 1] = ready, leave
                leave_ns[stage, sends] = leave
                if not is_posted_ahead:
                    stage_ns[stage, _HELD_UNTIL] = max(stage_ns[stage, _HELD_UNTIL], leave)
    step = np.int64(0)
    for own in range(num_stages):
        if place[own] < closing_begin[own + 1]:
            return _NONE
        step = max(step, stage_ns[own, _HOST])
        for stream in range(num_streams):
            if leave_ns[own, stream] >= 0:
                step = max(step, leave_ns[own, stream] + wake_lag)
    return int(step)


@njit
def run_step(
    job: Job,
    closings: tuple[Int64s, ...],
    lane_begin: Int64s,
    spans: tuple[Int64s, ...],
    state: tuple[Int64s, ...],
    known: tuple[Int64s, ...],
    more: Float64s,
    counts: Bools,
    share: Float64s,
) -> int:
    """Run a step, and again with what communication slows.

    In: `job`, whose parts are: rows of units, int32[units, 8], in an order in which they can run;
    each unit's program; of programs where their items begin, int64[items, 7] columns, what they
    wait for and leave; what they hold up and use; chunks by first use, and what gathers them; how
    long exchanges and transfers take; lags; rules. `closings`: programs behind each stage's units.
    `lane_begin` as `lanes` says. Of layers of weight, how high each is and, bool[layers, streams],
    which streams reach its top. Room for spans, for what is kept of stages and of units, and for
    shares, float64[2, spans], is given, since arrays that are made here would be counted at each
    use. Returns how long the step takes; below 0: something waits for ever.
    """
    extra_ns, span_ns = spans
    step = int(_run_once(job, closings, lane_begin, spans, state, known, False))
    if step < 0 or more.size == 0:
        return step
    for layer in range(more.size):
        beside(lane_begin, span_ns, counts[layer], share[1])
        for stage in range(lane_begin.shape[0]):
            for at in range(lane_begin[stage, 0], lane_begin[stage, 1]):
                before = share[0, at] if layer > 0 else 0.0
                share[0, at] = before + more[layer] * share[1, at]
                extra_ns[at] = np.int64(np.rint(share[0, at] * span_ns[at, 2]))
    return int(_run_once(job, closings, lane_begin, spans, state, known, True))


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
