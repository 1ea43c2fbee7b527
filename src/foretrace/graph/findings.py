"""What a reader of any result must know about the recording, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from foretrace.answer import duration_text
from foretrace.graph.dependencies import Dependencies
from foretrace.graph.graph import Finding
from foretrace.graph.nodes import EdgeKind
from foretrace.graph.operations import NOT_LAUNCHED, Operations
from foretrace.graph.rules.collectives import Matches
from foretrace.trace import KEPT_OF_CUT

CUT_OFF = "cut off"
LOST_LAUNCHES = "lost launches"
BEFORE = "work before the recording"
GRAPH_KERNELS = "kernels of CUDA graphs"
# Findings of these topics bear on every number of the recording; others say how it was read.
LACKING = frozenset(
    {CUT_OFF, LOST_LAUNCHES, BEFORE, GRAPH_KERNELS, "clock", "collectives", "ghosts"}
)
_MANY = 0.05  # of device operations; fewer lost launches move no number that is shown


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
        yield Finding(
            "device",
            "no device work was recorded: all is host work, so that a replay of it is exact by "
            "construction; only a changed run tests it.",
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
    num_alone = int((operations.ops.launch == NOT_LAUNCHED).sum())
    if num_alone:
        is_many = num_alone > _MANY * len(operations.ops)
        yield Finding(
            LOST_LAUNCHES if is_many else "launches",
            f"{num_alone} of {len(operations.ops)} device operations have no recorded launch; they "
            "follow their stream, or start as long after their rank's start as measured.",
        )
    for op in operations.held_from_before.tolist():
        ops = operations.ops
        rank = operations.ranks[int(ops.rank[op])]
        busy_ns = int(ops.start_ns[op] - operations.first_ns[ops.rank[op]])
        yield Finding(
            BEFORE,
            f"rank {rank}: for {duration_text(busy_ns)} its device was at work on what had been "
            "launched before the recording began; that time is kept as it was, whatever changes.",
        )
    if found.graphs.num_lacking:
        ops = operations.ops
        lost_ns = int((ops.start_ns[found.graphs.op] - found.graphs.since_ns).sum())
        yield Finding(
            GRAPH_KERNELS,
            f"{found.graphs.num_lacking} of {found.graphs.num_graphs} launched CUDA graphs lack "
            f"kernels: {duration_text(lost_ns)} of device time in and behind them are kept as "
            "unrecorded work of the graph. Record with a newer CUPTI, or without graphs.",
        )
    elif found.graphs.num_graphs:
        yield Finding(
            "CUDA graphs",
            f"{found.graphs.num_graphs} CUDA graphs were launched; none seems to lack a kernel.",
        )
    num_inferred = int((found.edges.kind == EdgeKind.INTER_STREAM_INFERRED).sum())
    if num_inferred:
        yield Finding(
            "streams",
            f"{num_inferred} waits between streams are inferred: the trace does not say what its "
            "stream waits wait for (it would with sync events).",
        )
    if found.queue.depth:
        yield Finding(
            "launch queue",
            f"{int(found.queue.is_blocked.sum())} launches were held with about "
            f"{found.queue.depth} operations pending; their waiting is simulated.",
        )
