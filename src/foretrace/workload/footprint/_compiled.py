"""The compiled loop over a schedule's units that finds every stage's worst moment."""

from __future__ import annotations

from foretrace.base import Int64s, njit

# `Pass`.
_FORWARD, _BACKWARD, _INPUT, _WEIGHT = range(4)


@njit
def peaks(kind: Int64s, row: Int64s, begin: Int64s, num_bytes: Int64s, found: Int64s) -> None:
    """Walk every stage's units, adding up what chunks keep.

    Each unit's chunk has the bytes of its row of `num_bytes`: kept, in a forward pass, in a
    backward pass, kept until gradients of weights.

    Out: of every stage's worst moment, the first of equal ones, what is kept for backward passes,
    what lives within the unit, and its place in the stage's order; int64[3, stages].
    """
    for stage in range(begin.size - 1):
        now = highest_yet = 0
        for at in range(begin[stage], begin[stage + 1]):
            own = row[at]
            kept, until_weights = num_bytes[own, 0], num_bytes[own, 3]
            before = now
            if kind[at] == _FORWARD:
                highest = before + num_bytes[own, 1]
                now += kept
            elif kind[at] == _WEIGHT:
                highest = before
                now -= until_weights
            else:
                highest = before - kept + num_bytes[own, 2]
                now -= kept
                if kind[at] == _INPUT:
                    now += until_weights
            if highest > highest_yet:
                highest_yet = highest
                found[0, stage] = max(before, now) if kind[at] == _FORWARD else before
                found[1, stage] = highest - found[0, stage]
                found[2, stage] = at - begin[stage]
