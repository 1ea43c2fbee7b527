"""`arranged`: the pieces of a new job become a graph that obeys the rules of the recorded one."""

from __future__ import annotations

import numpy as np

from foretrace.base import CircleError, Int64s, ScenarioError
from foretrace.graph import NO_NODE, Edges, ExecutionGraph, NamePool
from foretrace.whatif.arrange.arranged import Arranged, without_lone
from foretrace.whatif.arrange.columns import columns_of, scales_of
from foretrace.whatif.arrange.dependencies import edges_in_ranks, without_guesses_back
from foretrace.whatif.arrange.ghosts import ghosts_of
from foretrace.whatif.arrange.meetings import meetings_of_job
from foretrace.whatif.arrange.partners import Partners
from foretrace.whatif.arrange.sequence import NewSequence, sequence_of
from foretrace.whatif.arrange.source import source_of
from foretrace.whatif.recorded.program import NewJob, NewRank, Placed, Program
from foretrace.workload import Issued, graph_of_issued


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
