"""The compiled loop that runs a schedule's units; see `running` for the safe way in."""

from __future__ import annotations

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
    gathered; then its gradients are reduced.

    Out: `forward_ns` and `backward_ns` (by chunk and microbatch, below 0 on entry), `place` (the
    first unit of every stage that has not run), `free_ns` (when stages are free, their begin on
    entry), `launched_ns`, `shared_ns` and `stream_ns` (when hosts and those streams are free).
    Returns how many units have not run, because stages wait for each other.
    """
    num_stages = begin.size - 1
    left = kind.size
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
                    shared_ns[stage] += gather_ns[kind[at], chunk[at]]
                ready = max(ready, launched_ns[stage], shared_ns[stage])
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
