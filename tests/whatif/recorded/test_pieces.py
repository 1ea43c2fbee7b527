"""Pieces: every node once, in the order in which it was issued, with the block it belongs to."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings

from foretrace.base import Int64s
from foretrace.graph import (
    HOST_KINDS,
    NO_MICROBATCH,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
)
from foretrace.whatif.recorded.program import RecordedPiece, pieces_of
from tests.acceptance.recovery import recording_of_job
from tests.strategies import job_configs, small_jobs
from tests.truth import Job, JobConfig, make_job
from tests.whatif.recorded.recordings import check_pieces, places, recording_of

MARKS = (NodeKind.RANK_START, NodeKind.STEP_BEGIN, NodeKind.STEP_END)
PIPELINE = JobConfig(tp=2, pp=2, num_microbatches=2, num_layers=2, num_steps=2)


@settings(max_examples=8)
@given(config=job_configs())
def test_every_node_of_a_training_job_is_in_one_piece_behind_what_it_waits_for(
    config: JobConfig,
) -> None:
    check_pieces(recording_of_job(make_job(config)))


@settings(max_examples=8)
@given(job=small_jobs())
def test_every_node_of_any_small_program_is_in_one_piece_behind_what_it_waits_for(
    job: Job,
) -> None:
    # A file without any device operation is refused.
    assume(all(list(job.operations(rank)) for rank in range(job.num_ranks)))
    check_pieces(recording_of_job(job))


def words(piece: RecordedPiece) -> str:
    """What it is: `LAYER FORWARD 1 of 0`."""
    inside = f" {piece.layer}" if piece.part == Part.LAYER else ""
    of = f" of {piece.microbatch}" if piece.microbatch != NO_MICROBATCH else ""
    return f"{piece.part.name} {piece.phase.name}{inside}{of}"


def test_first_stage_of_a_pipeline_reads_as_the_program_that_it_runs() -> None:
    pieces = pieces_of(recording_of(PIPELINE))[0]

    names = [words(piece) for piece in pieces if piece.step == 1]

    assert [first for first, second in pairwise([*names, ""]) if first != second] == [
        "UNKNOWN UNKNOWN",  # the step begins
        "DATA DATA",
        "OPTIMIZER OPTIMIZER",
        "EMBEDDING FORWARD of 0",
        "LAYER FORWARD 0 of 0",
        "LAYER FORWARD 1 of 0",
        "TRANSFER FORWARD of 0",
        "EMBEDDING FORWARD of 1",
        "LAYER FORWARD 0 of 1",
        "LAYER FORWARD 1 of 1",
        "TRANSFER FORWARD of 1",
        "TRANSFER BACKWARD of 0",
        "LAYER BACKWARD 1 of 0",
        "LAYER BACKWARD 0 of 0",
        "EMBEDDING BACKWARD of 0",
        "TRANSFER BACKWARD of 1",
        "LAYER BACKWARD 1 of 1",
        "LAYER BACKWARD 0 of 1",
        "EMBEDDING BACKWARD of 1",
        "OPTIMIZER OPTIMIZER",
        "UNKNOWN UNKNOWN",  # and ends
    ]


def test_two_host_threads_do_not_tear_a_backward_pass_to_bits() -> None:
    recording = recording_of(PIPELINE)
    graph = recording.graph

    pieces = [piece for piece in pieces_of(recording)[0] if piece.phase == Phase.BACKWARD]

    threads = [set(graph.lane[host(graph, piece)].tolist()) for piece in pieces]
    assert max(map(len, threads)) == 2
    assert len(pieces) == 2 * 8  # steps; of each microbatch a transfer, two layers, the embedding


def host(graph: ExecutionGraph, piece: RecordedPiece) -> Int64s:
    """Its host nodes."""
    return piece.nodes[np.isin(graph.kind[piece.nodes], HOST_KINDS)]


def test_what_launches_nothing_belongs_to_what_is_launched_next() -> None:
    recording = recording_of(PIPELINE)
    kind = recording.graph.kind

    for pieces in pieces_of(recording).values():
        idle = [
            piece
            for piece in pieces
            if not np.isin(kind[piece.nodes], (*MARKS, NodeKind.LAUNCH)).any()
        ]
        # Only behind the last launch of a step, where nothing comes next.
        following = {id(piece): after for piece, after in pairwise(pieces)}
        assert all(
            id(piece) not in following or np.isin(kind[following[id(piece)].nodes], MARKS).any()
            for piece in idle
        )


def test_a_kernel_whose_launch_was_not_recorded_stands_with_the_next_of_its_stream() -> None:
    recording = recording_of(JobConfig(num_steps=1, num_layers=2))
    graph = recording.graph
    target = graph.edge_target
    launched = np.flatnonzero(
        (graph.edge_kind == EdgeKind.LAUNCH) & (graph.kind[target] == NodeKind.KERNEL)
    )
    lost, following = target[launched[:2]].tolist()
    assert graph.lane[lost] == graph.lane[following]
    without = np.arange(graph.num_edges) != launched[0]
    counts = np.diff(graph.first_edge)
    counts[lost] -= 1
    cut = replace(
        graph,
        first_edge=np.append(0, np.cumsum(counts)),
        predecessor=graph.predecessor[without],
        edge_kind=graph.edge_kind[without],
        lag_ns=graph.lag_ns[without],
    )

    (pieces,) = pieces_of(replace(recording, graph=cut)).values()

    place = places(recording, pieces)
    assert place[lost] + 1 == place[following]


@pytest.mark.parametrize("shift_ns", [0, 1_000_000_007])
def test_pieces_do_not_depend_on_where_clocks_begin(shift_ns: int) -> None:
    recording = recording_of(PIPELINE)
    measured = recording.measured
    shifted = replace(
        measured,
        start_ns=measured.start_ns + shift_ns,
        end_ns=measured.end_ns + shift_ns,
    )

    before = pieces_of(recording)
    after = pieces_of(replace(recording, measured=shifted))

    for rank, pieces in before.items():
        for one, other in zip(pieces, after[rank], strict=True):
            assert words(one) == words(other)
            assert np.array_equal(one.nodes, other.nodes)
