"""`arranged`: the pieces of a new job become a graph that obeys the rules of the recorded one."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, CircleError, Float64s, Int64s, ScenarioError
from foretrace.graph import (
    NO_COLLECTIVE,
    NO_NODE,
    NODE_COLUMNS,
    Edges,
    ExecutionGraph,
    NamePool,
    NodeKind,
)
from foretrace.whatif.arrange.arranged import Arranged, without_lone
from foretrace.whatif.arrange.dependencies import edges_in_ranks, without_guesses_back
from foretrace.whatif.arrange.ghosts import Ghosts, ghosts_of
from foretrace.whatif.arrange.meetings import Partners, meetings_of_job
from foretrace.whatif.arrange.sequence import NO_PLACED, NewSequence, sequence_of
from foretrace.whatif.arrange.source import RecordedNodes, source_of
from foretrace.whatif.recorded.program import (
    MadeExchange,
    MadeOperator,
    NewJob,
    NewRank,
    Placed,
    Program,
    RecordedPiece,
)
from foretrace.workload import Columns, Issued, Meetings, graph_of_issued, neutral_columns

_SCALED = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET)
_LABELS = ("step", "part", "phase", "layer", "microbatch")
_COUNTED = ("step", "layer", "microbatch")


def scales_of(sequence: NewSequence) -> Float64s:
    """The scale of the piece that each node of the sequence is in; 1 of rank starts."""
    scale = np.array([*(placed.scale for placed in sequence.all_placed), 1.0])
    return scale[sequence.placed]


def columns_of(
    source: RecordedNodes,
    sequence: NewSequence,
    job: NewJob,
    *,
    meetings: Meetings,
    ghosts: Ghosts,
    names: NamePool,
) -> Columns:
    """Columns of the sequence's nodes, room for the hubs, and columns of ghosts."""
    size = len(sequence)
    own = _of_sequence(source, sequence, job, names)
    ghost = source.graph.columns(ghosts.source)
    # A ghost is of the step of what it holds up.
    after = ghosts.edges.target[len(ghosts.source) :].copy()
    of_hub = after >= size
    after[of_hub] = meetings.finish[meetings.lead[after[of_hub] - size]]
    ghost["step"] = own["step"][after]
    columns = neutral_columns(size + len(meetings) + len(ghosts.source))
    for name, column in columns.items():
        column[:size] = own[name]
        column[size + len(meetings) :] = ghost[name]
    return columns


def _of_sequence(
    source: RecordedNodes, sequence: NewSequence, job: NewJob, names: NamePool
) -> Columns:
    graph = source.graph
    is_copied = sequence.source >= 0
    node = np.maximum(sequence.source, 0)
    columns: Columns = {
        name: np.where(is_copied, getattr(graph, name)[node], column.neutral)
        for name, column in NODE_COLUMNS.items()
    }
    columns["collective"][:] = NO_COLLECTIVE
    columns["kind"] = sequence.kind
    columns["rank"] = np.array([rank.rank for rank in job.ranks] or [0])[sequence.rank]
    columns["lane"] = sequence.lane
    columns |= _labels(sequence, columns)
    columns["measured_ns"] = _work_ns(source, sequence, columns)
    for made in sequence.made:
        what = made.what
        own = slice(made.first, made.first + made.num_nodes)
        if isinstance(what, MadeOperator):
            columns["name"][own] = columns["operator"][own] = names.of(what.operator)
            columns["operator_signature"][own] = names.of(what.signature)
            columns["measured_ns"][made.first] = what.host_ns if source.has_device else 0
            continue
        name = what.collective.in_tables if isinstance(what, MadeExchange) else "wait"
        columns["name"][own] = names.of(name)
        if isinstance(what, MadeExchange):
            columns["measured_ns"][made.first] = what.host_ns
    return columns


def _labels(sequence: NewSequence, columns: Columns) -> Columns:
    """Step, part, phase, layer and microbatch at the new place.

    What in a piece is labelled otherwise (calls between two blocks) keeps its own label; its
    layer and microbatch move as far as those of the piece.
    """
    is_placed = sequence.placed != NO_PLACED
    found: Columns = {}
    for name in _LABELS:
        stated, was = _stated(sequence, name)
        new, old = stated[sequence.placed], was[sequence.placed]
        own = columns[name].astype(np.int64)
        label = np.where(is_placed & (own == old), new, own)
        if name in _COUNTED:
            moves = is_placed & (own != old) & (own >= 0) & (old >= 0) & (new >= 0)
            label[moves] = np.maximum(own + new - old, 0)[moves]
        found[name] = label
    return found


def _stated(sequence: NewSequence, name: str) -> tuple[Int64s, Int64s]:
    """A label of everything placed, and of its piece; a last one of what is in nothing placed."""
    neutral = NODE_COLUMNS[name].neutral
    new = [int(getattr(each, name)) for each in sequence.all_placed]
    old = [
        int(getattr(each.piece, name)) if isinstance(each.piece, RecordedPiece) else neutral
        for each in sequence.all_placed
    ]
    return np.array([*new, neutral], np.int64), np.array([*old, neutral], np.int64)


def _work_ns(source: RecordedNodes, sequence: NewSequence, columns: Columns) -> Int64s:
    """What recorded nodes took, times the scale of their piece."""
    scale = scales_of(sequence)
    work_ns = columns["measured_ns"].astype(np.int64)
    scaled = (*_SCALED,) if source.has_device else (*_SCALED, NodeKind.OPERATOR)
    is_scaled = np.isin(sequence.kind, scaled) & (scale != 1)
    work_ns[is_scaled] = np.rint(work_ns[is_scaled] * scale[is_scaled]).astype(np.int64)
    # A thread's first segment runs from the rank's start on: it is nobody's work elsewhere.
    begins = source.begins_thread[np.maximum(sequence.source, 0)] & (sequence.source >= 0)
    work_ns[begins & ~_first_on_threads(sequence)] = 0
    return work_ns


def _first_on_threads(sequence: NewSequence) -> Bools:
    chained = np.flatnonzero(sequence.is_chained)
    _, first = np.unique(sequence.lane[chained], return_index=True)
    found = np.zeros(len(sequence), np.bool_)
    found[chained[first]] = True
    return found


def arranged(program: Program, job: NewJob) -> Arranged:
    """The graph of a job whose ranks run pieces of a recorded program.

    Inside a piece everything is as recorded. Between pieces, what waited for the last work of a
    stream, a thread or a process group waits for the last there is before it now; collectives
    meet anew. So the recorded program at its place gives the recorded graph (`same_job`).

    Args:
        program: of the recording.
        job: what each rank runs, in issue order.

    Raises:
        ScenarioError: if ranks do not meet in their collectives, or dependencies close a circle.
    """
    source = program.once(source_of)
    sequence = sequence_of(source, job)
    partners = Partners(source, job)
    meetings = meetings_of_job(source, sequence, job, partners)
    ghosts = ghosts_of(source, sequence, job, meetings)
    names = NamePool(program.graph.names)
    issued = Issued(
        columns=columns_of(
            source, sequence, job, meetings=meetings.members, ghosts=ghosts, names=names
        ),
        is_chained=sequence.is_chained,
        lanes=sequence.lanes,
        meetings=meetings.members,
        collectives=meetings.collectives,
        held_by=meetings.held_by,
    )

    def graph_with(inside: Edges) -> tuple[ExecutionGraph, Int64s]:
        return graph_of_issued(
            issued,
            Edges.joined([inside, ghosts.edges]),
            names=names,
            constants=program.graph.constants,
            step_names=_step_names(program.graph.step_names, sequence),
        )

    edges, notes = edges_in_ranks(source, sequence), list[str]()
    try:
        graph, order = graph_with(edges)
    except CircleError:
        certain = without_guesses_back(edges)
        notes.append(
            f"{len(edges) - len(certain):,} waits between streams, inferred from when kernels ran, "
            "would be for work that is issued later now, and are left out"
        )
        try:
            graph, order = graph_with(certain)
        except CircleError as err:
            raise ScenarioError(
                "the pieces of the new job wait for each other in a circle, so it would hang: "
                f"{err.stuck}. The schedule, transfers between stages or waits between streams do "
                "not fit the new order: leave one edit out at a time to find which."
            ) from err
    num_hubs = len(meetings.collectives)
    node = np.concatenate([sequence.source, np.full(num_hubs, NO_NODE, np.int64), ghosts.source])
    scale = np.append(scales_of(sequence), np.ones(num_hubs + len(ghosts.source)))
    found = Arranged(
        graph=graph,
        source=node[order],
        source_collective=meetings.source_collective,
        scale=scale[order],
        notes=(*partners.notes, *ghosts.notes, *notes),
    )
    return without_lone(found, program.graph.collectives, gone=job.gone)


def _step_names(recorded: tuple[str, ...], sequence: NewSequence) -> tuple[str, ...]:
    """The recorded steps' names, and those of more steps than were recorded."""
    count = max((placed.step for placed in sequence.all_placed), default=-1) + 1
    more = (f"step {number}" for number in range(len(recorded), count))
    return (*recorded, *more)


def same_job(program: Program) -> NewJob:
    """The recorded program as a new job: every rank with all its pieces where they were."""
    ranks = tuple(
        NewRank(
            rank,
            program.coordinates_by_rank[rank],
            rank,
            tuple(
                Placed(
                    piece=piece,
                    step=piece.step,
                    part=piece.part,
                    phase=piece.phase,
                    layer=piece.layer,
                    microbatch=piece.microbatch,
                )
                for piece in pieces
            ),
        )
        for rank, pieces in program.pieces_by_rank.items()
    )
    return NewJob(program.plan, program.layers_of_stage, ranks)
