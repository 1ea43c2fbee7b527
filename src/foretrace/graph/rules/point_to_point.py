"""Rule 8: transfers between two ranks, and exchanges with neighbours.

A send and its receive name each other's rank: they are a group of two, in which the k-th send
meets the k-th receive (`communication/groups.py`), with the split of rule 7. An exchange that is
one kernel per rank (coalesced sends and receives) does not name its peers. Where members of such
a group leave before the last of the group has come, it is no meeting of all: if everyone still
left after both neighbours in the group's order had come, each waits for these two alone. Arrivals
come before all finishes, so a ring of waits closes no circle.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, CollectiveKind, Int64s, Integers, begins_run
from foretrace.graph.communication import CommunicationOps
from foretrace.graph.rules.collectives import Matches

SLACK_NS = 20_000  # what clocks and leaving members may differ by (megatron-tp8: 13 us)


def neighbour_waits(
    comm: CommunicationOps, matches: Matches, arrival_ns: Int64s, end_ns: Int64s
) -> tuple[Int64s, Int64s]:
    """Rows of `comm` that wait for a neighbour's arrival instead of everyone's.

    Args:
        comm: all communication operations.
        matches: which of them meet.
        arrival_ns: start of each on the common clock, int64[rows].
        end_ns: end of each on the common clock, int64[rows].

    Returns:
        Row waited for and row that waits, int64[pairs] each; rows of rings only.
    """
    is_exchange = np.array(
        [
            collective.kind is CollectiveKind.SEND_RECV
            and len(collective.ranks) > 2  # noqa: PLR2004  two are a pair, which meets
            and collective.ranks == collective.recorded_ranks
            for collective in matches.collectives
        ],
        np.bool_,
    )
    chosen = np.flatnonzero(is_exchange[matches.collective])
    # Rows of one exchange in the order of the group's ranks: traces stand in that order.
    chosen = chosen[np.lexsort((comm.rank[matches.row[chosen]], matches.collective[chosen]))]
    row, collective = matches.row[chosen], matches.collective[chosen]
    if not len(row):
        return row, row
    first = np.flatnonzero(begins_run(collective))
    sizes = np.diff(np.append(first, len(row)))
    size, start = np.repeat(sizes, sizes), np.repeat(first, sizes)
    place = np.arange(len(row)) - start
    left, right = row[start + (place - 1) % size], row[start + (place + 1) % size]
    latest_ns = np.maximum.reduceat(arrival_ns[row], first)
    is_early = end_ns[row] < np.repeat(latest_ns, sizes) - SLACK_NS
    is_after_both = end_ns[row] >= np.maximum(arrival_ns[left], arrival_ns[right]) - SLACK_NS
    is_ring = _of_groups(matches, collective, is_early, any_of=True)
    is_ring &= _of_groups(matches, collective, is_after_both, any_of=False)
    return (
        np.concatenate([left[is_ring], right[is_ring], row[is_ring]]),
        np.concatenate([row[is_ring]] * 3),
    )


def _of_groups(matches: Matches, collective: Integers, is_true: Bools, *, any_of: bool) -> Bools:
    """Per row, whether something is true of any, or of all, rows of its group, bool[rows]."""
    key = [
        (matches.collectives[index].group, matches.collectives[index].ranks)
        for index in collective.tolist()
    ]
    number = {group: index for index, group in enumerate(dict.fromkeys(key))}
    of_group = np.array([number[group] for group in key], np.int64)
    count = np.bincount(of_group, weights=is_true)
    needed = 1 if any_of else np.bincount(of_group)
    return (count >= needed)[of_group]
