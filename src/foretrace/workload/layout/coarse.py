"""Templates at unit grain: runs of operators become one item each.

What a unit does between two meetings with anything outside of it is one stretch of the compute
stream, whatever it is made of: operators, and exchanges among ranks of the same stage that nobody
else waits for. So a `Coarse` template has an item for every such *segment*, and keeps the exchanges
that something outside can hold up or wait for: those with other stages, those of parameters and
gradients, and those that a unit begins or ends with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import NO_LAYER, Phase
from foretrace.workload.layout.tables import COMPUTE, NOTHING, STREAM_OF_GROUP, Tables
from foretrace.workload.layout.template import Template
from foretrace.workload.plan.plan import Group

# Ranks of these share a stage and a unit's work.
_WITHIN = (Group.TENSOR, Group.CONTEXT, Group.EXPERT, Group.EXPERT_TENSOR)
_MERGED_STREAMS = tuple(STREAM_OF_GROUP[group] for group in _WITHIN)


@dataclass(frozen=True)
class Coarse:
    """A template at unit grain, and what its items stand for."""

    template: Template
    fine: Template  # the same work, kernel by kernel
    item: Int64s  # int64[fine items], the item that stands for it

    @property
    def is_segment(self) -> Bools:
        """Which items are runs of operators; bool[items]."""
        found: Bools = self.template.columns["stream"] == COMPUTE
        return found

    def of(self, items: Int64s) -> Int64s:
        """Items that stand for some fine ones; NOTHING stays."""
        return np.where(items >= 0, np.append(self.item, NOTHING)[items], NOTHING)

    def of_all(self, items: Iterable[int]) -> tuple[int, ...]:
        """The same of several, each once."""
        return tuple(dict.fromkeys(int(self.item[item]) for item in items))


def coarsened(fine: Template, tables: Tables, *, cuts: Iterable[int] = ()) -> Coarse:
    """A template with one item per segment.

    Args:
        fine: kernel by kernel.
        tables: takes the segments' names.
        cuts: operators that a segment begins with besides those that must.
    """
    size = len(fine)
    stream = fine.columns["stream"]
    operators = fine.operators
    if not len(operators):
        return Coarse(fine, fine, np.arange(size))
    is_kept = _kept(fine, stream)
    number = _segments(fine, operators, is_kept, cuts)
    leads = operators[np.flatnonzero(np.diff(number, prepend=-1))]
    rows = np.sort(np.concatenate([leads, np.flatnonzero(is_kept)]))
    place = np.full(size, NOTHING, np.int64)
    place[rows] = np.arange(len(rows))
    item = np.full(size, NOTHING, np.int64)
    item[is_kept] = place[is_kept]
    item[operators] = place[leads[number]]
    # An exchange inside belongs to the segment of the operator that is launched next.
    inside = np.flatnonzero(item == NOTHING)
    after = np.searchsorted(operators, inside)
    item[inside] = item[operators[np.minimum(after, len(operators) - 1)]]
    return Coarse(_template(fine, rows, item, tables), fine, item)


def _kept(fine: Template, stream: Int64s) -> Bools:
    is_kept = ~np.isin(stream, (COMPUTE, *_MERGED_STREAMS))
    ends = [one for own in (*fine.entries, *fine.exits) for one in own]
    is_kept[ends] = True
    found: Bools = is_kept & (stream != COMPUTE)
    return found


def _segments(fine: Template, operators: Int64s, is_kept: Bools, cuts: Iterable[int]) -> Int64s:
    """Number of the segment of every operator, rising from 0; int64[operators]."""
    stream = fine.columns["stream"]
    begins = np.zeros(len(fine) + 1, np.bool_)
    ends = np.zeros(len(fine), np.bool_)
    is_out = is_kept[fine.target] & (stream[fine.source] == COMPUTE)
    is_in = is_kept[fine.source] & (stream[fine.target] == COMPUTE)
    ends[fine.source[is_out]] = True
    begins[fine.target[is_in]] = True
    begins[[one for own in fine.entries for one in own]] = True
    ends[[one for own in fine.exits for one in own]] = True
    begins[list(cuts)] = True
    is_new = begins[operators]
    is_new[1:] |= ends[operators[:-1]]
    is_new[0] = True
    return np.cumsum(is_new) - 1


def _template(fine: Template, rows: Int64s, item: Int64s, tables: Tables) -> Template:
    columns = {key: column[rows] for key, column in fine.columns.items()}
    is_segment = columns["stream"] == COMPUTE
    for name in ("operator", "operator_signature"):
        columns[name][is_segment] = NOTHING
    columns["measured_ns"][is_segment] = 0
    label = np.array([tables.names.of(f"{phase.name.lower()} unit") for phase in Phase])
    columns["label"][is_segment] = label[columns["phase"][is_segment]]
    is_other = fine.columns["layer"] != columns["layer"][item]
    columns["layer"][item[is_other]] = NO_LAYER
    source, target = item[fine.source], item[fine.target]
    is_between = columns["stream"][source] != columns["stream"][target]
    pairs = np.unique(source[is_between] * len(rows) + target[is_between])

    def moved(of_members: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(dict.fromkeys(item[list(own)].tolist())) for own in of_members)

    return replace(
        fine,
        columns=columns,
        member=fine.member[rows],
        source=pairs // len(rows),
        target=pairs % len(rows),
        entries=moved(fine.entries),
        exits=moved(fine.exits),
    )


def without_kept(coarse: Coarse) -> tuple[Template, Int64s]:
    """What the segments alone are made of, and where each of its items stands among the fine."""
    fine = coarse.fine
    is_own = coarse.is_segment[coarse.item]
    rows = np.flatnonzero(is_own)
    place = np.cumsum(is_own) - 1
    is_inside = is_own[fine.source] & is_own[fine.target]
    first, last = int(place[fine.first_operator]), int(place[fine.last_operator])
    template = replace(
        fine,
        columns={key: column[rows] for key, column in fine.columns.items()},
        member=fine.member[rows],
        source=place[fine.source[is_inside]],
        target=place[fine.target[is_inside]],
        entries=((first,),),
        exits=((last,),),
    )
    return template, rows
