"""`transfers_of`: the transfers of named groups of ranks."""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, ScenarioError
from foretrace.graph import NodeKind
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.changes.matching import nearest
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP, Program
from foretrace.workload import Group

_VALUES = tuple(group.value for group in Group)


def transfers_of(arranged: Arranged, groups: tuple[str, ...], program: Program | None) -> Bools:
    """FINISH nodes of the collectives of these groups, of all if none are named; bool[nodes].

    Args:
        arranged: the job.
        groups: of the plan ("dp"), or process groups as the recording calls them.
        program: says which group of the plan a recorded collective belongs to.

    Raises:
        ScenarioError: if a name is that of no group here.
    """
    graph = arranged.graph
    is_transfer: Bools = graph.kind == NodeKind.FINISH
    if not groups:
        if not is_transfer.any():
            raise ScenarioError("this job has no transfers: one rank was recorded, or none meets")
        return is_transfer
    names = _names(arranged, program)
    for wanted in groups:
        if not any(wanted in each for each in names):
            raise ScenarioError(
                f"no transfer is of a group {wanted!r}: "
                f"{nearest(wanted, sorted({one for each in names for one in each if one}))}."
            )
    chosen = np.array([not set(groups).isdisjoint(each) for each in names], np.bool_)
    mask: Bools = is_transfer & chosen[graph.collective]
    return mask


def _names(arranged: Arranged, program: Program | None) -> list[tuple[str, str]]:
    """Group of the plan ("" unknown) and process group of each collective."""
    found = []
    for collective, source in zip(
        arranged.graph.collectives, arranged.source_collective.tolist(), strict=True
    ):
        of_plan = collective.group if collective.group in _VALUES else ""
        if program is not None and source >= 0:
            position = int(program.group_of_collective[source])
            of_plan = GROUPS[position].value if position != NO_GROUP else ""
        found.append((of_plan, collective.group))
    return found
