"""Before parameters are updated, all gradients have been reduced: said where nobody waited.

A recording shows what waits for a bucket of gradients only where it had to wait. In another job
the same bucket may be late. So the first update of every step waits for all of them, which costs
nothing where they are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foretrace.graph import NodeKind, Part, Phase
from foretrace.whatif.arrange.roles import Role
from foretrace.whatif.arrange.source import Source
from foretrace.whatif.recorded.program import MadeWait, NewJob, Piece, Placed
from foretrace.workload import Group


def is_recorded(source: Source, job: NewJob) -> bool:
    """Whether a job is the recorded one: the same plan, and every piece at its place."""
    recorded = source.program.pieces_by_rank
    if job.plan != source.program.plan or len(job.ranks) != len(recorded):
        return False
    return all(
        rank.rank == rank.source_rank
        and rank.rank in recorded
        and len(rank.placed) == len(recorded[rank.rank])
        and all(
            placed.piece is piece and placed.scale == placed.scale_bytes == 1
            for placed, piece in zip(rank.placed, recorded[rank.rank], strict=True)
        )
        for rank in job.ranks
    )


def settled(source: Source, placed: Sequence[Placed]) -> Iterator[tuple[Placed, Role | None]]:
    """What a rank runs, with a wait for each process group that reduces before each update.

    Yields what is placed, and of such waits whom they wait for.
    """
    awaited = {} if source.has_device else _awaited_by_step(source, placed)
    open_roles: dict[Role, None] = {}
    for each in placed:
        if each.part is Part.OPTIMIZER and open_roles:
            for role in open_roles:
                if role in awaited.get(each.step, ()):
                    continue
                # The role says which group; a wait for one that is none of the plan has no other.
                wait = MadeWait(group=Group.ALL)
                part, phase = Part.BUCKET, Phase.BACKWARD
                yield Placed(piece=wait, step=each.step, part=part, phase=phase), role
            open_roles.clear()
        if each.part is Part.BUCKET and each.phase is Phase.BACKWARD:
            open_roles |= dict.fromkeys(_roles(source, each.piece))
        yield each, None


def _awaited_by_step(source: Source, placed: Sequence[Placed]) -> dict[int, set[Role]]:
    """What each step's threads wait for behind its backward passes, as recorded.

    A thread that is seen to wait is not made to wait again: of long waits a part may have been
    taken for work, where threads outnumber cores.
    """
    found: dict[int, set[Role]] = {}
    for each in placed:
        if isinstance(each.piece, Piece) and each.part in {Part.BUCKET, Part.OPTIMIZER}:
            role = source.awaited_role[each.piece.nodes]
            own = found.setdefault(each.step, set())
            own |= {source.roles.roles[number] for number in np.unique(role[role >= 0]).tolist()}
    return found


def _roles(source: Source, piece: object) -> Iterator[Role]:
    """Whom a piece of the recording communicates with."""
    if not isinstance(piece, Piece):
        return
    finish = piece.nodes[source.graph.kind[piece.nodes] == NodeKind.FINISH]
    for number in np.unique(source.roles.of_node[finish]).tolist():
        yield source.roles.roles[number]
