"""Compiled loops of an engine's scheduler and its blocks, step after step; they check nothing.

See `engine_steps` for the safe way in. An engine's ranks go in step: one, or the copies of a model
whose experts lie over all of them.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Float64s, Int64s, njit
from foretrace.serve.step._compiled import Grids, Stages, Times, step_ns

# Positions in `limits`, int64[12]. SPECULATIVE: tokens that are guessed beyond the next one;
# MOST_STEPS: steps that are put together before the first of them is done; SEQUENCE_BLOCKS: that a
# sequence has whatever its length.
BLOCKS, BLOCK_TOKENS, MOST_SEQUENCES, TOKEN_BUDGET = 0, 1, 2, 3
IS_CHUNKED, RESERVES_PROMPT, IS_AHEAD, KEEPS_BLOCKS, IS_STATIC = 4, 5, 6, 7, 8
SPECULATIVE, MOST_STEPS, SEQUENCE_BLOCKS = 9, 10, 11
NUM_LIMITS = 12
# Columns of `steps`; what waits, runs and is used when all before are done; GAPS_NS: of decodes.
START_NS, DURATION_NS, DECODES, PREFILL_TOKENS, PREFILLS, WAITING, RUNNING, USED_BLOCKS = range(8)
GAPS_NS = 8
NUM_COLUMNS = 9
# Columns of a request's row: tokens computed, made, in flight, blocks held, blocks kept though
# free, its segment of the free list, times preempted, rank, and when it was first scheduled, made
# its first token, its last, and its latest.
COMPUTED, MADE, IN_FLIGHT, HELD, KEPT, SEGMENT, PREEMPTED, RANK, SCHEDULED, FIRST, LAST = range(11)
LATEST = 11
NUM_FIELDS = 12
# Columns of a scheduled part: request, tokens, tokens before, whether a token is made.
_REQUEST, _TOKENS, _BEFORE, _MAKES = range(4)
# Of a rank: sequences running, first and end of those waiting, those preempted, free blocks, first
# and end of the free list, and the first request that is not of a static batch.
_RUNS, _HEAD, _TAIL, _AGAIN, _FREE, _FIRST_FREE, _END_FREE, _CLOSES = range(8)
_NUM_OF_RANK = 8
_NOBODY = -1
_ODD = 131  # requests begin so far apart among the draws of what is accepted
_LOAD_OF_WAITING = 4  # vLLM's balancer: a waiting request counts as four running ones


@njit
def _hand_back(rank: int, request: int, ranks: Int64s, rows: Int64s, free: Int64s) -> None:
    """Free a request's blocks: its last ones are taken first, its first ones may stay known."""
    held = rows[request, HELD]
    if held == 0:
        return
    end = ranks[rank, _END_FREE]
    free[rank, end, 0], free[rank, end, 1] = _NOBODY, held
    ranks[rank, _END_FREE] = end + 1
    ranks[rank, _FREE] += held
    rows[request, HELD] = 0


@njit
def _take(rank: int, count: int, ranks: Int64s, rows: Int64s, free: Int64s) -> None:
    """Take blocks from the front of the free list; what they held is known no more."""
    ranks[rank, _FREE] -= count
    while count > 0:
        first = ranks[rank, _FIRST_FREE]
        taken = min(count, free[rank, first, 1])
        free[rank, first, 1] -= taken
        count -= taken
        owner = free[rank, first, 0]
        if owner != _NOBODY:
            rows[owner, KEPT] = min(rows[owner, KEPT], free[rank, first, 1])
        if free[rank, first, 1] == 0:
            ranks[rank, _FIRST_FREE] = first + 1


@njit
def _preempt(
    rank: int, limits: Int64s, ranks: Int64s, running: Int64s, again: Int64s, rows: Int64s,
    free: Int64s,
) -> int:  # fmt: skip
    """Send the last running request back to the front of the queue; returns which."""
    ranks[rank, _RUNS] -= 1
    victim: int = running[rank, ranks[rank, _RUNS]]
    segment = ranks[rank, _END_FREE]
    known = rows[victim, COMPUTED] // limits[BLOCK_TOKENS] if limits[KEEPS_BLOCKS] else 0
    held = rows[victim, HELD]
    _hand_back(rank, victim, ranks, rows, free)
    if held > 0:
        free[rank, segment, 0] = victim
        rows[victim, SEGMENT] = segment
    rows[victim, KEPT] = min(known, held)
    rows[victim, COMPUTED] = 0
    rows[victim, PREEMPTED] += 1
    again[rank, ranks[rank, _AGAIN]] = victim
    ranks[rank, _AGAIN] += 1
    return victim


@njit
def _grow_running(
    rank: int, limits: Int64s, ranks: Int64s, running: Int64s, again: Int64s, rows: Int64s,
    free: Int64s, output: Int64s, prompt: Int64s, parts: Int64s,
) -> tuple[int, int, bool]:  # fmt: skip
    """Give running requests their tokens; returns parts, tokens left, and whether one had to go."""
    left, found, at = limits[TOKEN_BUDGET], 0, 0
    preempts = False
    while at < ranks[rank, _RUNS] and left > 0:
        request = running[rank, at]
        row = rows[request]
        if row[IN_FLIGHT] > 0 and not limits[IS_AHEAD]:
            at += 1  # its next token is not known before all stages are done with this one
            continue
        tokens = min(prompt[request] + row[MADE] + row[IN_FLIGHT] - row[COMPUTED], left)
        if tokens <= 0 or row[MADE] + row[IN_FLIGHT] >= output[request]:
            at += 1
            continue
        if limits[SPECULATIVE] > 0 and tokens == 1:
            tokens = min(1 + limits[SPECULATIVE], left, output[request] - row[MADE])
        need = -(-(row[COMPUTED] + tokens) // limits[BLOCK_TOKENS])
        need += limits[SEQUENCE_BLOCKS] - row[HELD]
        is_gone = False
        while need > ranks[rank, _FREE]:
            preempts = True
            victim = _preempt(rank, limits, ranks, running, again, rows, free)
            is_gone = victim == request
            if is_gone:
                break
        if is_gone:
            break
        _take(rank, need, ranks, rows, free)
        row[HELD] += need
        parts[found, _REQUEST], parts[found, _TOKENS] = request, tokens
        parts[found, _BEFORE] = row[COMPUTED]
        found += 1
        left -= tokens
        at += 1
    return found, left, preempts


@njit
def _known_blocks(request: int, limits: Int64s, rows: Int64s, total: int) -> int:
    """Blocks of a preempted request that nobody overwrote: not the one of its last token."""
    known: int = min(rows[request, KEPT], (total - 1) // limits[BLOCK_TOKENS])
    return known


@njit
def _find_again(
    rank: int, request: int, known: int, ranks: Int64s, rows: Int64s, free: Int64s
) -> None:
    """Take a preempted request's own blocks out of the free list again."""
    segment = rows[request, SEGMENT]
    if segment != _NOBODY:
        if segment >= ranks[rank, _FIRST_FREE] and free[rank, segment, 0] == request:
            free[rank, segment, 0] = _NOBODY
            free[rank, segment, 1] -= known
        rows[request, SEGMENT] = _NOBODY
    ranks[rank, _FREE] -= known
    rows[request, KEPT] = 0
    while (
        ranks[rank, _FIRST_FREE] < ranks[rank, _END_FREE]
        and free[rank, ranks[rank, _FIRST_FREE], 1] == 0
    ):
        ranks[rank, _FIRST_FREE] += 1


@njit
def _admit(
    rank: int, now: int, limits: Int64s, ranks: Int64s, running: Int64s, waiting: Int64s,
    again: Int64s, rows: Int64s, free: Int64s, prompt: Int64s, cached: Int64s, parts: Int64s,
    found: int, left: int,
) -> int:  # fmt: skip
    """Let waiting requests in, first come first served, preempted ones first; returns parts."""
    while left > 0 and ranks[rank, _RUNS] < limits[MOST_SEQUENCES]:
        if ranks[rank, _AGAIN] > 0:
            request = again[rank, ranks[rank, _AGAIN] - 1]
        elif ranks[rank, _HEAD] < ranks[rank, _TAIL]:
            request = waiting[rank, ranks[rank, _HEAD]]
            if limits[IS_STATIC] and request >= ranks[rank, _CLOSES]:
                break
        else:
            break
        row = rows[request]
        if row[IN_FLIGHT] > 0:
            break
        total = prompt[request] + row[MADE]
        known = _known_blocks(request, limits, rows, total)
        start = known * limits[BLOCK_TOKENS]
        if row[PREEMPTED] == 0:
            start = max(start, min(cached[request], total - 1))
        rest = total - start
        tokens = min(rest, left)
        if tokens < rest and not limits[IS_CHUNKED]:
            break
        end = total if limits[RESERVES_PROMPT] else start + tokens
        if -(-end // limits[BLOCK_TOKENS]) + limits[SEQUENCE_BLOCKS] > ranks[rank, _FREE]:
            ranks[rank, _CLOSES] = 0
            break
        if ranks[rank, _AGAIN] > 0:
            ranks[rank, _AGAIN] -= 1
        else:
            ranks[rank, _HEAD] += 1
        _find_again(rank, request, known, ranks, rows, free)
        row[COMPUTED] = start
        need = -(-(row[COMPUTED] + tokens) // limits[BLOCK_TOKENS])
        need += limits[SEQUENCE_BLOCKS] - known
        _take(rank, need, ranks, rows, free)
        row[HELD] = known + need
        running[rank, ranks[rank, _RUNS]] = request
        ranks[rank, _RUNS] += 1
        if row[SCHEDULED] < 0:
            row[SCHEDULED] = now
        parts[found, _REQUEST], parts[found, _TOKENS] = request, tokens
        parts[found, _BEFORE] = row[COMPUTED]
        found += 1
        left -= tokens
    return found


@njit
def _form(rank: int, limits: Int64s, ranks: Int64s, waiting: Int64s) -> None:
    """Close a static batch: with those that began already as many as may run, of what waits."""
    fresh = min(
        ranks[rank, _TAIL] - ranks[rank, _HEAD], limits[MOST_SEQUENCES] - ranks[rank, _AGAIN]
    )
    last = ranks[rank, _HEAD] + fresh - 1
    ranks[rank, _CLOSES] = waiting[rank, last] + 1 if fresh > 0 else 0


@njit
def _schedule(
    rank: int, now: int, limits: Int64s, ranks: Int64s, running: Int64s, waiting: Int64s,
    again: Int64s, rows: Int64s, free: Int64s, prompt: Int64s, output: Int64s, cached: Int64s,
    parts: Int64s,
) -> int:  # fmt: skip
    """What a rank's next step works on: `parts` (*out*); returns how many."""
    if ranks[rank, _RUNS] == 0:
        _form(rank, limits, ranks, waiting)
    found, left, preempts = _grow_running(
        rank, limits, ranks, running, again, rows, free, output, prompt, parts
    )
    if not preempts:
        found = _admit(
            rank, now, limits, ranks, running, waiting, again, rows, free, prompt, cached, parts,
            found, left,
        )  # fmt: skip
    for at in range(found):
        row = rows[parts[at, _REQUEST]]
        row[COMPUTED] = parts[at, _BEFORE] + parts[at, _TOKENS]
        makes = row[COMPUTED] >= prompt[parts[at, _REQUEST]] + row[MADE] + row[IN_FLIGHT]
        parts[at, _MAKES] = makes
        row[IN_FLIGHT] += makes
    num_parts: int = found
    return num_parts


@njit
def _batch_into(parts: Int64s, found: int, limits: Int64s, batch: Float64s) -> int:
    """What a rank works on in a step, in `batch` (*out*); returns how many prefills are in it."""
    batch[:] = 0
    prefills = 0
    for at in range(found):
        tokens, before = parts[at, _TOKENS], parts[at, _BEFORE]
        if tokens <= 1 + limits[SPECULATIVE] and before > 0:
            batch[2] += 1
            batch[3] += before + tokens
            batch[4] = max(batch[4], before + tokens)
            batch[6] += tokens
        else:
            prefills += 1
            batch[0] += tokens
            batch[1] += tokens * (before + tokens / 2)
    batch[5] = found
    return prefills


@njit
def _finish(
    rank: int, end: int, ranks: Int64s, running: Int64s, again: Int64s, rows: Int64s, free: Int64s,
    prompt: Int64s, output: Int64s, accepted: Int64s, parts: Int64s, found: int, step: Int64s,
) -> int:  # fmt: skip
    """Hand out the tokens of a step; returns how many requests were done with it."""
    done = 0
    for at in range(found):
        if not parts[at, _MAKES]:
            continue
        request = parts[at, _REQUEST]
        row = rows[request]
        row[IN_FLIGHT] -= 1
        # What a step works on beyond the last known token was guessed.
        guessed = row[COMPUTED] - prompt[request] - row[MADE] - row[IN_FLIGHT]
        if guessed > 0:
            right = min(guessed, accepted[(_ODD * request + row[MADE]) % len(accepted)])
            row[COMPUTED] -= guessed - right
            row[MADE] += right
        row[MADE] += 1
        if row[FIRST] < 0:
            row[FIRST] = end
        elif parts[at, _TOKENS] == 1:
            step[GAPS_NS] += end - row[LATEST]
        row[LATEST] = end
        if row[MADE] < output[request]:
            continue
        row[LAST] = end
        done += 1
        _leave(rank, request, ranks, running, again)
        _find_again(rank, request, 0, ranks, rows, free)
        _hand_back(rank, request, ranks, rows, free)
    return done


@njit
def _leave(rank: int, request: int, ranks: Int64s, running: Int64s, again: Int64s) -> None:
    """Take a request out of those that run, or of those that were preempted."""
    for kind in range(2):
        listed = running if kind == 0 else again
        column = _RUNS if kind == 0 else _AGAIN
        count = ranks[rank, column]
        for at in range(count):
            if listed[rank, at] == request:
                for after in range(at, count - 1):
                    listed[rank, after] = listed[rank, after + 1]
                ranks[rank, column] -= 1
                return


@njit
def _arrive(
    now: int, came: int, arrival: Int64s, ranks: Int64s, waiting: Int64s, rows: Int64s
) -> int:
    """Put those that came into a rank's queue, the least loaded one's; returns how many came."""
    while came < len(arrival) and arrival[came] <= now:
        best, least = 0, np.iinfo(np.int64).max
        for rank in range(len(ranks)):
            queued = ranks[rank, _TAIL] - ranks[rank, _HEAD] + ranks[rank, _AGAIN]
            load = _LOAD_OF_WAITING * queued + ranks[rank, _RUNS]
            if load < least:
                best, least = rank, load
        waiting[best, ranks[best, _TAIL]] = came
        ranks[best, _TAIL] += 1
        rows[came, RANK] = best
        came += 1
    return came


@njit
def _with_room(free: Int64s, ranks: Int64s, rows: Int64s, more: int) -> Int64s:
    """The free lists with room for so many more entries, moved to their front."""
    room = 0
    for rank in range(len(ranks)):
        room = max(room, ranks[rank, _END_FREE] + more)
    if room <= free.shape[1]:
        return free
    longest = 0
    for rank in range(len(ranks)):
        longest = max(longest, ranks[rank, _END_FREE] - ranks[rank, _FIRST_FREE])
    wider = np.zeros((len(ranks), 2 * (longest + more), 2), np.int64)
    for rank in range(len(ranks)):
        first, end = ranks[rank, _FIRST_FREE], ranks[rank, _END_FREE]
        wider[rank, : end - first] = free[rank, first:end]
        for at in range(end - first):
            if wider[rank, at, 0] != _NOBODY:
                rows[wider[rank, at, 0], SEGMENT] = at
        ranks[rank, _FIRST_FREE], ranks[rank, _END_FREE] = 0, end - first
    return wider


@njit
def _pass(
    begin: int, grids: Grids, times: Times, stages: Stages, batches: Float64s, idle_from: Int64s
) -> int:
    """A step goes through all stages, each when it is free; returns when the last is done."""
    now = begin
    widest = 0
    for rank in range(len(batches)):
        widest = max(widest, int(batches[rank, 0] + batches[rank, 6]))
    for stage in range(len(idle_from)):
        if stage > 0:
            now += int(stages[2][widest] + 0.5)
        now = max(now, idle_from[stage]) + step_ns(grids, times, stages, stage, batches)
        idle_from[stage] = now
    return now


@njit
def _note(step: Int64s, limits: Int64s, ranks: Int64s) -> None:
    """What waits, runs and is used when a step is the first that is not done."""
    step[RUNNING] = ranks[:, _RUNS].sum()
    step[WAITING] = (ranks[:, _TAIL] - ranks[:, _HEAD] + ranks[:, _AGAIN]).sum()
    step[USED_BLOCKS] = len(ranks) * limits[BLOCKS] - ranks[:, _FREE].sum()


@njit
def engine_steps_into(
    arrival: Int64s, prompt: Int64s, output: Int64s, cached: Int64s, accepted: Int64s,
    limits: Int64s, num_ranks: int, grids: Grids, times: Times, stages: Stages, rows: Int64s,
    steps: Int64s,
) -> int:  # fmt: skip
    """Run an engine until every request is done; returns how many steps it took.

    Out: `rows`, and the first `steps`, as many as there is room for. `arrival`, rising, `prompt`
    `output` and `cached` are int64[requests]; `accepted`, int64[draws], is how many guesses were
    right; `limits` is int64[11], `rows` int64[requests, 12], `steps` int64[room for one or more,
    NUM_COLUMNS].
    """
    total, most = len(arrival), limits[MOST_SEQUENCES]
    ranks = np.zeros((num_ranks, _NUM_OF_RANK), np.int64)
    running = np.zeros((num_ranks, most), np.int64)
    waiting = np.zeros((num_ranks, total), np.int64)
    again = np.zeros((num_ranks, total), np.int64)
    free = np.zeros((num_ranks, 4 * most + 1024, 2), np.int64)
    depth = limits[MOST_STEPS]
    parts = np.zeros((depth, num_ranks, most, 4), np.int64)
    found = np.zeros((depth, num_ranks), np.int64)
    ends = np.zeros(depth, np.int64)
    idle_from = np.zeros(len(stages[0]), np.int64)
    batches = np.zeros((num_ranks, 7), np.float64)
    for rank in range(num_ranks):
        ranks[rank, _FREE], ranks[rank, _END_FREE] = limits[BLOCKS], 1
        free[rank, 0, 0], free[rank, 0, 1] = _NOBODY, limits[BLOCKS]
    rows[:] = 0
    rows[:, SCHEDULED:] = -1
    rows[:, SEGMENT] = _NOBODY
    now, came, done, num_steps, on = 0, 0, 0, 0, 0  # on: steps that are not done
    while done < total:
        free = _with_room(free, ranks, rows, 4 * most + 4)
        slot = num_steps % depth
        is_next = False
        if on < depth:
            came = _arrive(now, came, arrival, ranks, waiting, rows)
            for rank in range(num_ranks):
                found[slot, rank] = _schedule(
                    rank, now, limits, ranks, running, waiting, again, rows, free, prompt, output,
                    cached, parts[slot, rank],
                )  # fmt: skip
            is_next = found[slot].sum() > 0
        if is_next:
            prefills = 0
            for rank in range(num_ranks):
                prefills += _batch_into(parts[slot, rank], found[slot, rank], limits, batches[rank])
            step = steps[min(num_steps, len(steps) - 1)]
            step[START_NS] = max(now, idle_from[0])
            ends[slot] = _pass(step[START_NS], grids, times, stages, batches, idle_from)
            step[DURATION_NS] = ends[slot] - step[START_NS]
            step[DECODES], step[PREFILL_TOKENS] = batches[:, 2].sum(), batches[:, 0].sum()
            step[PREFILLS], step[GAPS_NS] = prefills, 0
            num_steps += 1
            on += 1
            if on == 1:
                _note(step, limits, ranks)
        elif on > 0:
            oldest = num_steps - on
            now = ends[oldest % depth]
            step = steps[min(oldest, len(steps) - 1)]
            for rank in range(num_ranks):
                done += _finish(
                    rank, now, ranks, running, again, rows, free, prompt, output, accepted,
                    parts[oldest % depth, rank], found[oldest % depth, rank], step,
                )  # fmt: skip
            on -= 1
            if on > 0:
                _note(steps[min(oldest + 1, len(steps) - 1)], limits, ranks)
        elif came == total:
            break
        else:
            now = max(now, arrival[came])
    return num_steps
