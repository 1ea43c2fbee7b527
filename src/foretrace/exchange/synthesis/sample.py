"""A made job: one program for all ranks, drawn from what was observed; durations per rank.

The program is a walk through the observed sequences: after the last `order` tokens comes one of
the nodes that followed the same tokens somewhere, with what that node waited for. Where a context
was never followed by anything, a shorter one decides.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.exchange.synthesis.observed import LaneRole, Observed

NO_WAIT = -1


@dataclass(frozen=True)
class SampledProgram:
    """What every rank of the made job runs."""

    token: Int64s  # int64[nodes], position in `Observed.tokens`
    lane_before: Int64s  # int64[nodes], the node before on the same lane; NO_WAIT
    waits: tuple[tuple[int, ...], ...]  # of each node, nodes of other lanes
    drawn_rank: Int64s  # int64[nodes], observed rank that each was drawn from
    standing: Int64s  # int64[nodes], how many of that rank's nodes of the token took less


def program(
    seen: Observed, num_nodes: int, *, order: int, rng: np.random.Generator
) -> SampledProgram:
    """Draw a program of so many nodes."""
    followers = [_followers(seen, length) for length in range(order + 1)]
    draws = rng.random(num_nodes).tolist()
    context: tuple[int, ...] = ()
    tokens: list[int] = []
    occurrences: list[int] = []
    before: list[int] = []
    waits: list[tuple[int, ...]] = []
    on_lane: dict[LaneRole, list[int]] = defaultdict(list)
    for node, draw in enumerate(draws):
        after = _after(followers, context)
        occurrence = after[int(draw * len(after))]
        token = seen.token[occurrence]
        lane = seen.tokens[token].lane
        wanted = seen.waits[occurrence]
        waits.append(
            tuple(
                on_lane[other][-ago]
                for other, ago in zip(wanted.lanes, wanted.ago, strict=True)
                if len(on_lane[other]) >= ago
            )
        )
        before.append(on_lane[lane][-1] if on_lane[lane] else NO_WAIT)
        on_lane[lane].append(node)
        tokens.append(token)
        occurrences.append(occurrence)
        context = (*context, token)[-order:] if order else ()
    drawn = np.array(occurrences, np.int64)
    return SampledProgram(
        token=np.array(tokens, np.int64),
        lane_before=np.array(before, np.int64),
        waits=tuple(waits),
        drawn_rank=np.searchsorted(seen.begins, drawn, side="right") - 1,
        standing=_standings(seen, drawn),
    )


_Followers = dict[tuple[int, ...], list[int]]


def _followers(seen: Observed, length: int) -> _Followers:
    """Nodes that follow each sequence of so many tokens; the first of ranks follow nothing."""
    found: _Followers = defaultdict(list)
    for rank in range(seen.num_ranks):
        begin, end = seen.begins[rank], seen.begins[rank + 1]
        for node in range(begin + length, end):
            found[tuple(seen.token[node - length : node])].append(node)
        if length == 0 and begin < end:
            found[()].append(begin)
    return dict(found)


def _after(followers: list[_Followers], context: tuple[int, ...]) -> list[int]:
    for length in range(min(len(context), len(followers) - 1), 0, -1):
        found = followers[length].get(context[-length:])
        if found:
            return found
    return followers[0][()]


def durations(seen: Observed, made: SampledProgram, rng: np.random.Generator) -> Int64s:
    """One rank's durations in ns, int64[nodes].

    Every node was drawn from an observed one, which took long or short among its rank's nodes of
    that token. Each rank takes the duration that stands there among some observed rank's nodes, so
    that what takes long does so on all ranks at once, as it did where one host made it wait.
    """
    num_tokens = len(seen.tokens)
    key, by_key = _keys(seen)
    first = np.searchsorted(key[by_key], np.arange(seen.num_ranks * num_tokens + 1))
    num_seen = np.diff(first)
    wanted = rng.integers(seen.num_ranks, size=len(made.token)) * num_tokens + made.token
    # A rank that never did it gives way to the one that the node was drawn from.
    own = made.drawn_rank * num_tokens + made.token
    wanted = np.where(num_seen[wanted] > 0, wanted, own)
    drawn = first[wanted] + made.standing * num_seen[wanted] // num_seen[own]
    chosen: Int64s = np.array(seen.duration_ns, np.int64)[by_key[drawn]]
    return chosen


def _standings(seen: Observed, occurrences: Int64s) -> Int64s:
    """How many nodes of the same rank and token took less than each of these, int64[nodes]."""
    key, by_key = _keys(seen)
    standing = np.empty(len(key), np.int64)
    standing[by_key] = np.arange(len(key)) - np.searchsorted(key[by_key], key[by_key])
    chosen: Int64s = standing[occurrences]
    return chosen


def _keys(seen: Observed) -> tuple[Int64s, Int64s]:
    """Each node's rank and token as one number; all nodes by that, then by duration."""
    of_rank = np.repeat(np.arange(seen.num_ranks), np.diff(seen.begins))
    key = of_rank * len(seen.tokens) + np.array(seen.token, np.int64)
    return key, np.lexsort((np.array(seen.duration_ns, np.int64), key))
