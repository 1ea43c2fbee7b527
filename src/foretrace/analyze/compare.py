"""`compare`: two timelines side by side, of one graph or of two: what got slower, and why.

Every moment of the job's step is given to one thing on every rank (`comparison.anatomy`), added
up by labels that mean the same on both sides, and matched by label. So the differences of a view
sum to the difference of the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretrace.analyze.comparison import views
from foretrace.analyze.comparison.anatomy import Anatomy, anatomy
from foretrace.analyze.comparison.noise import noise_of
from foretrace.analyze.comparison.results import (
    Comparison,
    RankChange,
    Reason,
    Side,
    View,
)
from foretrace.analyze.comparison.sentences import (
    late_rank,
    notes_of,
    reason_of_rank,
    reasons_of,
    unlike_batches,
)
from foretrace.analyze.comparison.views import view_of
from foretrace.analyze.windows import Windows, windows
from foretrace.base import Bools, GraphError, Int64s
from foretrace.graph import Part, Phase, Timeline
from foretrace.trace import BatchKind

CONFIDENCE = 0.95  # what is customary


@dataclass(frozen=True)
class _Half:
    """One side, worked out."""

    timeline: Timeline
    side: Side
    spread_ns: tuple[int, ...]  # lengths that tell the spread between steps
    begin_ns: Int64s
    end_ns: Int64s
    parts: Anatomy


def compare(
    before: Timeline,
    after: Timeline,
    *,
    step: str | int | None = None,
    confidence: float = CONFIDENCE,
    every_step: bool = False,
) -> Comparison:
    """What makes the job's step longer or shorter after than before.

    Times are means over ranks and over steps; of four steps or more, the shortest and the
    longest quarter are left out, so that a step that warms up does not decide. Of a serving
    engine's steps those of one kind of batch are compared: of kinds on both sides, that of which
    there are most.

    Args:
        before: measured or simulated.
        after: measured or simulated, of the same graph or of another.
        step: compare this step of both only, by name.
        confidence: with which the difference must exceed the spread between steps, 0 to 1.
        every_step: leave none out, where both sides are the same steps under other conditions, as
            a job's replay is to what was measured of it.

    Raises:
        GraphError: if a side has no such step, or none at all.
        ValueError: if `confidence` is not between 0 and 1.
    """
    is_every = every_step or before.graph is after.graph
    kind = None if step is not None or is_every else _common_kind(before, after)
    sides = (
        _half(before, step, kind, every_step=is_every),
        _half(after, step, kind, every_step=is_every),
    )
    noise = noise_of(sides[0].spread_ns, sides[1].spread_ns, confidence=confidence)
    found = tuple(_views(*sides))
    by_name = {view.name: view for view in found}
    names = _tallied("name", sides, views.by_class_and_name)
    ranks = tuple(_rank_changes(*sides))
    return Comparison(
        before=sides[0].side,
        after=sides[1].side,
        noise=noise,
        views=found,
        ranks=ranks,
        reasons=tuple(
            sorted(
                _reasons(sides, by_name, names, ranks),
                key=lambda reason: -abs(reason.difference_ns),
            )
        ),
        notes=(
            *unlike_batches(sides[0].side, sides[1].side, kind),
            *notes_of(sides[0].side, sides[1].side, by_name["kernel"]),
        ),
    )


def middle_half(length_ns: Int64s) -> Bools:
    """Which steps are neither among the shortest nor the longest quarter; ties: the first stay.

    The quarter is rounded down, so that of three steps all are kept.
    """
    quarter = len(length_ns) // 4
    order = np.argsort(length_ns, kind="stable")
    is_used = np.zeros(len(length_ns), np.bool_)
    is_used[order[quarter : len(order) - quarter]] = True
    return is_used


def _common_kind(before: Timeline, after: Timeline) -> BatchKind | None:
    """The kind of batch that both sides have most steps of; none where no mark says one."""
    counts = [Counter(windows(timeline).kinds()) for timeline in (before, after)]
    common = [kind for kind in BatchKind if counts[0][kind] and counts[1][kind]]
    return max(common, key=lambda kind: min(one[kind] for one in counts), default=None)


def _half(
    timeline: Timeline, step: str | int | None, kind: BatchKind | None, *, every_step: bool
) -> _Half:
    table = windows(timeline)
    typical = table.row_of(step)  # refuses a recording without steps too
    is_used = np.ones(len(table), np.bool_)
    if kind is not None:
        is_used = np.array([one is kind for one in table.kinds()], np.bool_)
    if step is not None:
        is_used = np.arange(len(table)) == typical
    spread_ns = tuple(table.duration_ns[is_used].tolist())  # also of those left out of the means
    if step is None and not every_step:
        is_used[is_used] = middle_half(table.duration_ns[is_used])
    is_used &= table.duration_ns > 0
    if not is_used.any():
        raise GraphError(
            f"no step of the {timeline.label} timeline to compare: {len(table)} are there, none "
            "with a length above 0. Choose another step, or record whole ones."
        )
    begin_ns, end_ns = table.begin_ns[is_used], table.end_ns[is_used]
    return _Half(
        timeline=timeline,
        side=_side(timeline, table, is_used),
        spread_ns=spread_ns,
        begin_ns=begin_ns,
        end_ns=end_ns,
        parts=anatomy(timeline, begin_ns=begin_ns, end_ns=end_ns),
    )


def _side(timeline: Timeline, table: Windows, is_used: Bools) -> Side:
    layers = timeline.graph.layer[timeline.graph.layer >= 0]
    return Side(
        label=timeline.label,
        ranks=timeline.graph.ranks,
        layers=len(np.unique(layers)),
        step_names=tuple(table.step_names[step] for step in table.step.tolist()),
        step_ns=tuple(table.duration_ns.tolist()),
        is_used=tuple(is_used.tolist()),
    )


def _views(before: _Half, after: _Half) -> Iterator[View]:
    """Every view that the recordings tell something about."""
    sides = before, after
    graphs = before.timeline.graph, after.timeline.graph
    yield view_of(
        "component",
        views.component_tally(before.parts),
        views.component_tally(after.parts),
        is_whole=True,
    )
    yield _tallied("class", sides, views.by_class)
    yield _tallied("family", sides, views.by_family)
    yield _tallied("kernel", sides, views.by_kernel)
    if all((graph.operator >= 0).any() for graph in graphs):
        yield _tallied("operator", sides, views.by_operator)
    if all((graph.phase != Phase.UNKNOWN).any() for graph in graphs):
        yield _tallied("phase", sides, views.by_phase)
    if all((graph.part != Part.UNKNOWN).any() for graph in graphs):
        yield _tallied("block", sides, views.by_block)
    if all(graph.collectives for graph in graphs):
        groups = [{one.group for one in graph.collectives} for graph in graphs]
        with_group = groups[0] == groups[1] and len(groups[0]) > 1
        yield _tallied(
            "collective", sides, lambda parts: views.by_collective(parts, with_group=with_group)
        )
    paths = (views.path_tally(half.timeline, half.side.used_names) for half in sides)
    yield view_of("path", *paths, is_whole=True)
    yield _host(sides)


def _host(sides: tuple[_Half, _Half], *, rank: int | None = None) -> View:
    tallies = [
        views.host_tally(half.timeline, begin_ns=half.begin_ns, end_ns=half.end_ns, rank=rank)
        for half in sides
    ]
    return view_of("host", *tallies, is_whole=False)


def _tallied(
    name: str,
    sides: tuple[_Half, _Half],
    labels: views.Labelling,
    *,
    rank: int | None = None,
) -> View:
    tallies = [views.tally(half.parts, labels(half.parts), rank=rank) for half in sides]
    return view_of(name, *tallies, is_whole=True)


def _rank_changes(before: _Half, after: _Half) -> Iterator[RankChange]:
    """Every rank of either side, rising."""
    sides = before.side.ranks, after.side.ranks
    for rank in sorted({*sides[0], *sides[1]}):
        yield RankChange(
            rank=rank,
            before=views.rank_time(before.parts, rank) if rank in sides[0] else None,
            after=views.rank_time(after.parts, rank) if rank in sides[1] else None,
        )


def _reasons(
    sides: tuple[_Half, _Half],
    by_name: dict[str, View],
    names: View,
    ranks: tuple[RankChange, ...],
) -> Iterator[Reason]:
    """A rank that the others came to wait for, then classes."""
    late = late_rank(ranks, by_name["class"])
    if late is not None:
        rank = late.rank.rank
        of_rank = _tallied("class", sides, views.by_class, rank=rank)
        yield reason_of_rank(late, of_rank, _host(sides, rank=rank))
    yield from reasons_of(by_name["class"], names, by_name["host"])
