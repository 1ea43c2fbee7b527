"""The compiled loop that runs a schedule's units; see `stage_ends_ns` for the safe way in."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int64s, njit

# `Pass`.
_FORWARD, _BACKWARD, _INPUT, _WEIGHT = range(4)
_NOT_YET = -1


@njit
def _ready_ns(
    kind: int,
    microbatch: int,
    chunk: int,
    before: Int64s,
    behind: Int64s,
    forward_ns: Int64s,
    backward_ns: Int64s,
    transfer_ns: Int64s,
) -> int:
    """When what a unit works on is there; below 0: not yet."""
    if kind == _WEIGHT:
        return int(backward_ns[chunk, microbatch])
    if kind == _FORWARD:
        if before[chunk] < 0:
            return 0
        end = int(forward_ns[before[chunk], microbatch])
        return end + int(transfer_ns[chunk]) if end >= 0 else _NOT_YET
    own = int(forward_ns[chunk, microbatch])
    if own < 0 or behind[chunk] < 0:
        return own
    end = int(backward_ns[behind[chunk], microbatch])
    return max(own, end + int(transfer_ns[behind[chunk]])) if end >= 0 else _NOT_YET


@njit
def run(
    kind: Int64s,
    microbatch: Int64s,
    chunk: Int64s,
    is_joined: Bools,
    begin: Int64s,
    before: Int64s,
    behind: Int64s,
    unit_ns: Int64s,
    joined_ns: Int64s,
    transfer_ns: Int64s,
    entry_ns: Int64s,
    exit_ns: Int64s,
    host_ns: Int64s,
    gather_ns: Int64s,
    reduce_ns: Int64s,
    reduces: Bools,
    forward_ns: Int64s,
    backward_ns: Int64s,
    place: Int64s,
    free_ns: Int64s,
    launched_ns: Int64s,
    shared_ns: Int64s,
    stream_ns: Int64s,
) -> int:
    """Run every stage's units in order, each when it is ready and its stage is free.

    Exchanges before and behind a unit alone share a stream of their own. A unit ends no earlier
    than its stage's host has launched all up to it, and than what is shared out up to it is
    gathered, behind what was reduced before; then its gradients are reduced.

    Out: `forward_ns` and `backward_ns` (by chunk and microbatch, below 0 on entry), `place` (the
    first unit of every stage that has not run), `free_ns` (when stages are free, their begin on
    entry), `launched_ns`, `shared_ns` and `stream_ns` (when hosts and those streams are free).
    Returns how many units have not run, because stages wait for each other.
    """
    num_stages = begin.size - 1
    left = kind.size
    gathered_ns = shared_ns.copy()
    moved = True
    while moved and left > 0:
        moved = False
        for stage in range(num_stages):
            while place[stage] < begin[stage + 1]:
                first = place[stage]
                end = first + 1
                while is_joined[end - 1] and end < begin[stage + 1]:
                    end += 1
                ready = 0
                duration = 0
                is_alone = end == first + 1
                for at in range(first, end):
                    own = _ready_ns(
                        kind[at], microbatch[at], chunk[at], before, behind,
                        forward_ns, backward_ns, transfer_ns,
                    )  # fmt: skip
                    if own < 0:
                        ready = _NOT_YET
                        break
                    ready = max(ready, own)
                    table = unit_ns if is_alone else joined_ns
                    duration += table[kind[at], chunk[at]]
                if ready < 0:
                    break
                entry = entry_ns[kind[first], chunk[first]] if is_alone else 0
                leaving = exit_ns[kind[first], chunk[first]] if is_alone else 0
                if entry > 0:
                    ready = max(ready, stream_ns[stage]) + entry
                    stream_ns[stage] = ready
                ready = max(ready, free_ns[stage]) + duration
                for at in range(first, end):
                    launched_ns[stage] += host_ns[kind[at], chunk[at]]
                    if gather_ns[kind[at], chunk[at]] > 0:
                        shared_ns[stage] += gather_ns[kind[at], chunk[at]]
                        gathered_ns[stage] = shared_ns[stage]
                ready = max(ready, launched_ns[stage], gathered_ns[stage])
                for at in range(first, end):
                    if reduces[at]:
                        shared_ns[stage] += reduce_ns[kind[at], chunk[at]]
                free_ns[stage] = ready
                if leaving > 0:
                    ready = max(ready, stream_ns[stage]) + leaving
                    stream_ns[stage] = ready
                for at in range(first, end):
                    if kind[at] == _FORWARD:
                        forward_ns[chunk[at], microbatch[at]] = ready
                    elif kind[at] != _WEIGHT:
                        backward_ns[chunk[at], microbatch[at]] = ready
                place[stage] = end
                left -= end - first
                moved = True
    return left


@njit
def run_order(maker: Int64s, size: Int64s, begin: Int64s, order: Int64s) -> int:
    """Take turns of stages as soon as what they work on is made; see `running.order_of_turns`.

    Out: `order` int64[units]. Returns how many of them can run.
    """
    place = begin[:-1].copy()
    is_made = np.zeros(maker.size, np.bool_)
    count = 0
    moved = True
    while moved:
        moved = False
        for stage in range(place.size):
            while place[stage] < begin[stage + 1]:
                lead = place[stage]
                end = lead + size[lead]
                is_ready = True
                for unit in range(lead, end):
                    is_ready = is_ready and (maker[unit] < 0 or is_made[maker[unit]])
                if not is_ready:
                    break
                for unit in range(lead, end):
                    is_made[unit] = True
                    order[count] = unit
                    count += 1
                place[stage] = end
                moved = True
    return count


@njit
def _chosen(
    stage: int,
    own: Int64s,
    unit_ns: Int64s,
    transfer_ns: Int64s,
    num_bytes: Int64s,
    room: Int64s,
    rule: Int64s,
    num_microbatches: int,
    following: Int64s,
    forward_ns: Int64s,
    backward_ns: Int64s,
    free: int,
    held: int,
    reserved: int,
    last: int,
) -> tuple[int, int, int]:
    """When a stage begins its next unit, its pass and its chunk; `_NOT_YET`: it can begin none.

    `rule`: whether backward passes are split, who comes first (0 backward, 1 forward, 2 in turns),
    whether chunks near the end come first, percent that a microbatch reserves, percent of a weight
    gradient that a stage would rather wait.
    """
    num_chunks = transfer_ns.size
    back = _INPUT if rule[0] else _BACKWARD
    soon = _NOT_YET
    best = soon
    best_kind = best_chunk = best_rank = -1
    for turn in range(2):  # the earliest begin; then the foremost of those that begin by then
        for place in range(own.shape[1]):
            chunk = own[stage, place]
            if chunk < 0:
                continue
            for kind in (_FORWARD, back):
                microbatch = following[kind, chunk]
                if microbatch >= num_microbatches:
                    continue
                if kind == _FORWARD:
                    ready = 0
                    if chunk > 0:
                        ready = forward_ns[chunk - 1, microbatch]
                        if ready < 0:
                            continue
                        ready += transfer_ns[chunk]
                    more = num_bytes[1, chunk]
                    if place == 0:
                        rest = 0
                        moment = 0
                        for other in range(own.shape[1]):
                            if own[stage, other] >= 0:
                                rest += num_bytes[0, own[stage, other]]
                                moment = max(
                                    moment,
                                    num_bytes[2, own[stage, other]]
                                    - num_bytes[0, own[stage, other]],
                                )
                        more = max(more, rest * rule[3] // 100 + moment)
                    if held + (reserved if place == 0 else 0) + more > room[stage]:
                        continue
                else:
                    ready = forward_ns[chunk, microbatch]
                    if ready < 0:
                        continue
                    if chunk + 1 < num_chunks:
                        behind = backward_ns[chunk + 1, microbatch]
                        if behind < 0:
                            continue
                        ready = max(ready, behind + transfer_ns[chunk + 1])
                begin = max(free, ready)
                if turn == 0:
                    if soon < 0 or begin < soon:
                        soon = begin
                    continue
                if begin > soon:
                    continue
                first = kind == _FORWARD
                if rule[1] == 0 or (rule[1] == 2 and last == _FORWARD):
                    first = not first
                rank = (num_chunks if first else 0) + (
                    chunk if rule[2] == 1 else num_chunks - 1 - chunk
                )
                if rank > best_rank:
                    best, best_kind, best_chunk, best_rank = begin, kind, chunk, rank
    if rule[0]:
        for place in range(own.shape[1]):
            chunk = own[stage, place]
            if chunk < 0 or following[_WEIGHT, chunk] >= following[back, chunk]:
                continue
            if best < 0 or best > free + unit_ns[_WEIGHT, chunk] * rule[4] // 100:
                return free, _WEIGHT, chunk
    return best, best_kind, best_chunk


@njit
def list_units(
    own: Int64s,
    stage_of_chunk: Int64s,
    unit_ns: Int64s,
    transfer_ns: Int64s,
    num_bytes: Int64s,
    room: Int64s,
    rule: Int64s,
    num_microbatches: int,
    orders: Int64s,
    count: Int64s,
) -> int:
    """Units one after the other, each on the stage that can begin one the soonest.

    In: `own` int64[stages, chunks of one], along the route, -1 behind the last; `num_bytes`
    int64[4, chunks], kept, in a forward pass, in a backward pass, kept until gradients of weights.
    Out: `orders` int64[stages, units of one, 3] and `count` int64[stages], pass, microbatch and
    chunk. Returns how many units are left, because no stage has room for any.
    """
    num_stages, num_chunks = own.shape[0], stage_of_chunk.size
    following = np.zeros((4, num_chunks), np.int64)
    forward_ns = np.full((num_chunks, num_microbatches), _NOT_YET, np.int64)
    backward_ns = np.full((num_chunks, num_microbatches), _NOT_YET, np.int64)
    free = np.zeros(num_stages, np.int64)
    held = np.zeros(num_stages, np.int64)
    reserved = np.zeros(num_stages, np.int64)
    last = np.full(num_stages, _NOT_YET, np.int64)
    choice = np.full((num_stages, 3), _NOT_YET, np.int64)
    is_old = np.ones(num_stages, np.bool_)
    back = _INPUT if rule[0] else _BACKWARD
    left = num_chunks * num_microbatches * (3 if rule[0] else 2)
    while left > 0:
        stage = -1
        for at in range(num_stages):
            if is_old[at]:
                choice[at] = _chosen(
                    at, own, unit_ns, transfer_ns, num_bytes, room, rule, num_microbatches,
                    following, forward_ns, backward_ns, free[at], held[at], reserved[at], last[at],
                )  # fmt: skip
                is_old[at] = False
            if choice[at, 0] >= 0 and (stage < 0 or choice[at, 0] < choice[stage, 0]):
                stage = at
        if stage < 0:
            return left
        begin, kind, chunk = choice[stage]
        microbatch = following[kind, chunk]
        following[kind, chunk] += 1
        end = begin + unit_ns[kind, chunk]
        free[stage], last[stage] = end, kind
        is_old[stage] = True
        if kind == _FORWARD:
            forward_ns[chunk, microbatch] = end
            held[stage] += num_bytes[0, chunk]
            if chunk == own[stage, 0]:
                for other in range(1, own.shape[1]):
                    if own[stage, other] >= 0:
                        reserved[stage] += num_bytes[0, own[stage, other]] * rule[3] // 100
            else:
                reserved[stage] -= num_bytes[0, chunk] * rule[3] // 100
            if chunk + 1 < num_chunks:
                is_old[stage_of_chunk[chunk + 1]] = True
        elif kind == back:
            backward_ns[chunk, microbatch] = end
            held[stage] -= num_bytes[0, chunk]
            if rule[0]:
                held[stage] += num_bytes[3, chunk]
            if chunk > 0:
                is_old[stage_of_chunk[chunk - 1]] = True
        else:
            held[stage] -= num_bytes[3, chunk]
        orders[stage, count[stage], 0] = kind
        orders[stage, count[stage], 1] = microbatch
        orders[stage, count[stage], 2] = chunk
        count[stage] += 1
        left -= 1
    return left
