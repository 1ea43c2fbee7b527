"""What a reader of any result must know about the recording, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foretrace.answer import count_text, duration_text
from foretrace.base import Bools
from foretrace.graph.dependencies import Dependencies
from foretrace.graph.graph import Finding
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import NOT_LAUNCHED, Operations
from foretrace.graph.rules.collectives import Matches
from foretrace.graph.rules.unrecorded import UnrecordedWork
from foretrace.trace import KEPT_OF_CUT, RuntimeRole, runtime_role_at

CUT_OFF = "cut off"
LOST_LAUNCHES = "lost launches"
LOST_KERNELS = "lost kernels"
BEFORE = "work before the recording"
GRAPH_KERNELS = "kernels of CUDA graphs"
LOST_WORK = "device work"
# Findings of these topics bear on every number of the recording; others say how it was read.
LACKING = frozenset(
    {
        CUT_OFF, LOST_LAUNCHES, LOST_KERNELS, BEFORE, GRAPH_KERNELS, LOST_WORK,
        "clock", "collectives", "ghosts",
    }
)  # fmt: skip
_MANY = 0.05  # of device operations, or launches; fewer lost ones move no number that is shown


def recording_findings(
    operations: Operations, matches: Matches, found: Dependencies
) -> tuple[Finding, ...]:
    """Findings on the files, the communication and the dependencies, in this order."""
    return (
        *_of_files(operations),
        *matches.findings,
        *_of_ghosts(matches),
        *_of_dependencies(operations, found),
    )


def _of_files(operations: Operations) -> Iterator[Finding]:
    for rank, trace in zip(operations.ranks, operations.traces, strict=True):
        for note in trace.meta.notes:
            is_cut = trace.meta.is_truncated and KEPT_OF_CUT in note
            topic = CUT_OFF if is_cut else "file"
            yield Finding(topic, f"rank {rank}: {note}.", (trace.meta.path,))
    if not operations.is_stream[operations.ops.lane].any():
        named = sorted({name for trace in operations.traces for name in trace.meta.device_names})
        launching = (
            f" The files name {', '.join(named)}: of operators that ran there, only the launching "
            "is here."
            if named
            else ""
        )
        yield Finding(
            "device",
            "no device work was recorded: all is host work, so that a replay of it is exact by "
            f"construction; only a changed run tests it.{launching}",
        )


def _of_ghosts(matches: Matches) -> Iterator[Finding]:
    num_estimated = sum(collective.is_transfer_estimated for collective in matches.collectives)
    if num_estimated:
        yield Finding(
            "ghosts",
            f"{num_estimated} of {len(matches.collectives)} collectives have members that were "
            "not recorded; their arrival is estimated from the fastest alike.",
        )


def _of_dependencies(operations: Operations, found: Dependencies) -> Iterator[Finding]:
    is_device = operations.is_stream[operations.ops.lane]
    num_device = int(is_device.sum())
    is_alone = is_device & (operations.ops.launch == NOT_LAUNCHED)
    is_before = is_alone & _is_before_any_launched(operations, is_device & ~is_alone)
    if is_before.sum() > _MANY * num_device:
        yield Finding(
            "launches",
            f"{int(is_before.sum()):,} of {num_device:,} device operations had been launched "
            "before the recording began, as where a host is ahead of its device; they run first, "
            "as measured.",
        )
    num_alone = int((is_alone & ~is_before).sum())
    if num_alone:
        is_many = num_alone > _MANY * num_device
        yield Finding(
            LOST_LAUNCHES if is_many else "launches",
            f"{num_alone:,} of {num_device:,} device operations have no recorded launch; they "
            "follow their stream, or start as long after their rank's start as measured.",
        )
    yield from _of_launches(operations)
    for op in operations.held_from_before.tolist():
        ops = operations.ops
        rank = operations.ranks[int(ops.rank[op])]
        busy_ns = int(ops.start_ns[op] - operations.first_ns[ops.rank[op]])
        yield Finding(
            BEFORE,
            f"rank {rank}: for {duration_text(busy_ns)} its device was at work on what had been "
            "launched before the recording began; that time is kept as it was, whatever changes.",
        )
    yield from _of_unrecorded(operations, found.unrecorded)
    num_inferred = int((found.edges.kind == EdgeKind.INTER_STREAM_INFERRED).sum())
    if num_inferred:
        yield Finding(
            "streams",
            f"{num_inferred:,} waits between streams are inferred: the trace does not say what its "
            "stream waits wait for (it would with sync events).",
        )
    if found.queue.depth:
        yield Finding(
            "launch queue",
            f"{int(found.queue.is_blocked.sum()):,} launches were held with about "
            f"{found.queue.depth:,} operations pending; their waiting is simulated.",
        )


def _of_launches(operations: Operations) -> Iterator[Finding]:
    items = operations.items
    launches = runtime_role_at(operations.names, items.name) == RuntimeRole.LAUNCH
    is_alone = launches & (items.role == RuntimeRole.OTHER)
    num_alone, num_owners = int(is_alone.sum()), int((items.role == RuntimeRole.LAUNCH).sum())
    if num_alone > _MANY * (num_alone + num_owners):
        yield Finding(
            LOST_KERNELS,
            f"{num_alone:,} of {num_alone + num_owners:,} launches have no recorded device work: "
            "a CUDA graph was being captured, the recording ended before, or kernels were "
            "filtered. What the device did of them is not told.",
        )


def _is_before_any_launched(operations: Operations, is_launched: Bools) -> Bools:
    """Operations that begin before the first of their rank whose launch was recorded."""
    ops = operations.ops
    first_ns = np.full(len(operations.ranks), np.iinfo(np.int64).min)
    for rank in np.unique(ops.rank[is_launched]).tolist():
        first_ns[rank] = ops.start_ns[is_launched & (ops.rank == rank)].min()
    found: Bools = ops.start_ns < first_ns[ops.rank]
    return found


def _of_unrecorded(operations: Operations, gaps: UnrecordedWork) -> Iterator[Finding]:
    gap_ns = operations.ops.start_ns[gaps.op] - gaps.since_ns
    if gaps.num_lacking:
        yield Finding(
            GRAPH_KERNELS,
            f"{gaps.num_lacking} of {gaps.num_graphs} launched CUDA graphs lack kernels: "
            f"{duration_text(int(gap_ns[gaps.is_of_graph].sum()))} of device time in and behind "
            "them are kept as unrecorded work of the graph. Record with a newer CUPTI, or without "
            "graphs.",
        )
    elif gaps.num_graphs:
        yield Finding(
            "CUDA graphs",
            f"{gaps.num_graphs} CUDA graphs were launched; none seems to lack a kernel.",
        )
    rank_of_gap = operations.ops.rank[gaps.op]
    for position in np.unique(rank_of_gap[~gaps.is_of_graph]).tolist():
        of_rank = (rank_of_gap == position) & ~gaps.is_of_graph
        yield Finding(
            LOST_WORK,
            f"rank {operations.ranks[position]}: for {duration_text(int(gap_ns[of_rank].sum()))} "
            "over all streams its device stands still before "
            f"{count_text(int(of_rank.sum()), 'operation')} that had been launched, and nothing "
            "recorded says why: kernels or waits are missing from the file, as where events were "
            "sampled or filtered. That time is kept as unrecorded work.",
        )
