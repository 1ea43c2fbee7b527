"""Chakra files of one job become a `Recording`, as Kineto files do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from foretrace.base import GraphError, Int64s
from foretrace.graph.chakra.foreign import NUM_MARKS, Foreign, foreign_records
from foretrace.graph.chakra.own import is_own, own_records
from foretrace.graph.chakra.records import assembled_records
from foretrace.graph.graph import Finding, Timeline
from foretrace.graph.recording import ChakraOrigin, Clock, Recording
from foretrace.trace import ChakraTrace


def chakra_recording(traces: Sequence[ChakraTrace]) -> Recording:
    """The execution graph of a job from the Chakra files of some or all of its ranks.

    `measured` holds the times that the files state. Where they state none it begins and ends
    everything at 0 and says that it is not measured: simulate the graph to get times.

    Raises:
        GraphError: if there is nothing in the files, ranks repeat, or dependencies close a circle.
    """
    ordered = _by_rank(traces)
    if all(map(is_own, ordered)):
        has_times = all(trace.nodes.has("end_ns").any() for trace in ordered)
        read = Foreign(own_records(ordered), (), has_times, ())
    else:
        read = foreign_records(ordered)
    made = assembled_records(read.records)
    zero = np.zeros_like(made.end_ns)
    measured = Timeline(
        made.graph,
        made.start_ns if read.has_times else zero,
        made.end_ns if read.has_times else zero,
        is_measured=read.has_times,
    )
    notes = [
        Finding("file", f"rank {trace.rank}: {note}.", (trace.path,))
        for trace in ordered
        for note in trace.notes
    ]
    return Recording(
        graph=made.graph,
        measured=measured,
        recorded_ns=made.graph.measured_ns,
        clocks=tuple(Clock(trace.rank or 0, 0, 0, 0, 0) for trace in ordered),
        findings=(*notes, *read.findings),
        unprofiled_step_ns={},
        chakra=_origin(ordered, made.record, read.is_control_held)
        if read.is_control_held
        else None,
    )


def _by_rank(traces: Sequence[ChakraTrace]) -> list[ChakraTrace]:
    """One trace per rank, by rank; files that do not say which take the places left."""
    if not traces:
        raise GraphError("no Chakra files given: expected the file of at least one rank.")
    stated = {trace.rank for trace in traces} - {None}
    free = (rank for rank in range(len(traces) + len(stated)) if rank not in stated)
    ranked = [replace(trace, rank=next(free)) if trace.rank is None else trace for trace in traces]
    ranked.sort(key=lambda trace: trace.rank or 0)
    for before, after in pairwise(ranked):
        if before.rank == after.rank:
            raise GraphError(
                f"two Chakra files are of rank {before.rank}: {before.path} and {after.path}; "
                "name one file per rank"
            )
    return ranked


def _origin(
    traces: Sequence[ChakraTrace], record: Int64s, is_control_held: tuple[bool, ...]
) -> ChakraOrigin:
    """Which row of which file every node comes from."""
    trace = np.full(len(record), -1, np.int32)
    row = np.full(len(record), -1, np.int64)
    first = 0
    for place, one in enumerate(traces):
        first += NUM_MARKS
        is_its = (record >= first) & (record < first + len(one.nodes))
        trace[is_its] = place
        row[is_its] = record[is_its] - first
        first += len(one.nodes)
    return ChakraOrigin(tuple(traces), trace, row, is_control_held)
