"""Traces that cannot be ranks of one run are refused, with what gives them away."""

from __future__ import annotations

import numpy as np

from foretrace.base import DifferentRunsError, GraphError
from foretrace.graph.communication import CommunicationOps
from foretrace.graph.communication.clocks import MEETINGS, MISSED_ON_CPU_NS, Clocks
from foretrace.graph.communication.transfers import MemberTransfers
from foretrace.graph.graph import Finding
from foretrace.graph.operations import Operations
from foretrace.graph.operations.steps import WHOLE_TRACE
from foretrace.graph.rules.collectives import Matches

MISSED_NS = 50_000  # beyond what clocks and leaving members differ by on a device
MAX_MISSED = 0.2  # of a rank's meetings; ranks of different runs miss about half
SUSPECT_FACTOR = 20  # times the usual spread of ends, and ...
SUSPECT_NS = 20_000  # ... more than NCCL's own on megatron-tp8 (13 us)
MIN_MEETINGS = 8  # fewer prove nothing


def check_same_run(
    operations: Operations,
    comm: CommunicationOps,
    matches: Matches,
    clocks: Clocks,
    transfers: MemberTransfers,
) -> None:
    """Refuse traces that show they are of different runs.

    Raises:
        GraphError: if no step or no meeting is common to all, or members of collectives leave
            before others arrive.
    """
    if len(operations.traces) < 2:  # noqa: PLR2004  one trace is one run
        return
    _check_steps(operations)
    _check_job_known(operations, clocks)
    _check_meetings(operations, comm, matches, transfers)


def _check_steps(operations: Operations) -> None:
    first = operations.marks[0]
    for position, marks in enumerate(operations.marks[1:], start=1):
        if set(first.number.tolist()) & set(marks.number.tolist()):
            continue
        raise GraphError(
            f"traces of different steps: {_path(operations, 0)} holds {_steps(first.number)}, "
            f"{_path(operations, position)} holds {_steps(marks.number)}. "
            "Pass the files of one profiling window."
        )


def _check_job_known(operations: Operations, clocks: Clocks) -> None:
    """Files that do not name their job must at least communicate with each other."""
    for position, trace in enumerate(operations.traces):
        if trace.meta.world_size is None and clocks.num_matches[position] == 0:
            raise GraphError(
                f"{_path(operations, position)} does not say which job it is of and shares no "
                f"collective with the other {len(operations.traces) - 1} file(s): found nothing "
                "that makes them one run. Replay it alone, or name the files by rank."
            )


def _check_meetings(
    operations: Operations, comm: CommunicationOps, matches: Matches, transfers: MemberTransfers
) -> None:
    is_meeting = np.array([kind in MEETINGS for kind in comm.kind], np.bool_)[matches.row]
    row, collective = matches.row[is_meeting], matches.collective[is_meeting]
    allowed_ns = np.where(operations.is_stream[comm.lane[row]], MISSED_NS, MISSED_ON_CPU_NS)
    is_missed = transfers.end_ns[row] < transfers.hub_ns[collective] - allowed_ns
    num_ranks = len(operations.ranks)
    meetings = np.bincount(comm.rank[row], minlength=num_ranks)
    missed = np.bincount(comm.rank[row], weights=is_missed, minlength=num_ranks)
    share = np.where(meetings >= MIN_MEETINGS, missed / np.maximum(meetings, 1), 0)
    worst = int(share.argmax())
    if share[worst] > MAX_MISSED:
        raise DifferentRunsError(
            f"ranks of different runs: on the best common clock {_path(operations, worst)} leaves "
            f"{int(missed[worst])} of its {int(meetings[worst])} collectives before other ranks "
            "arrive, expected none. Pass the files of one run."
        )


def suspects(operations: Operations, clocks: Clocks) -> tuple[Finding, ...]:
    """A sentence on every rank whose collectives end far less together with others' than theirs."""
    matched = np.flatnonzero(clocks.num_matches[1:] > 0) + 1
    if len(matched) < 2:  # noqa: PLR2004  nobody to compare with
        return ()
    usual_ns = max(int(np.median(clocks.spread_ns[matched])), 1)
    return tuple(
        Finding(
            "clock",
            f"rank {operations.ranks[rank]}'s collectives end {int(clocks.spread_ns[rank]):,} ns "
            f"apart from other ranks' (others: {usual_ns:,} ns): its file may be of another run.",
            (operations.traces[rank].meta.path,),
        )
        for rank in matched.tolist()
        if clocks.spread_ns[rank] > max(SUSPECT_FACTOR * usual_ns, SUSPECT_NS)
    )


def _path(operations: Operations, position: int) -> str:
    return repr(str(operations.traces[position].meta.path))


def _steps(numbers: np.ndarray) -> str:
    if WHOLE_TRACE in numbers:
        return "no step marks"
    low, high = int(numbers.min()), int(numbers.max())
    return f"step {low}" if low == high else f"steps {low} to {high}"
