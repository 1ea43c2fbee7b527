"""The compiled loop over a schedule's units that finds every stage's worst moment."""

from __future__ import annotations

from foretrace.base import Int64s, njit

# `Pass`.
_FORWARD, _BACKWARD, _INPUT, _WEIGHT = range(4)


@njit
def peaks(
    kind: Int64s,
    chunk: Int64s,
    begin: Int64s,
    kept: Int64s,
    forward: Int64s,
    backward: Int64s,
    until_weights: Int64s,
    peak_kept: Int64s,
    peak_more: Int64s,
    peak_unit: Int64s,
) -> None:
    """Walk every stage's units, adding up what chunks keep.

    Out: of every stage's worst moment, the first of equal ones, what is kept for backward passes,
    what lives within the unit, and its place in the stage's order.
    """
    for stage in range(begin.size - 1):
        now = highest_yet = 0
        for at in range(begin[stage], begin[stage + 1]):
            own = chunk[at]
            before = now
            if kind[at] == _FORWARD:
                highest = before + forward[own]
                now += kept[own]
            elif kind[at] == _WEIGHT:
                highest = before
                now -= until_weights[own]
            else:
                highest = before - kept[own] + backward[own]
                now -= kept[own]
                if kind[at] == _INPUT:
                    now += until_weights[own]
            if highest > highest_yet:
                highest_yet = highest
                peak_kept[stage] = max(before, now) if kind[at] == _FORWARD else before
                peak_more[stage] = highest - peak_kept[stage]
                peak_unit[stage] = at - begin[stage]
