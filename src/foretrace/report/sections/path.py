"""The critical path: what the step's length is the sum of, by class, block, phase and rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foretrace.analyze import CriticalPath, PathShare
from foretrace.report.document import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Section,
    Series,
    SideBySide,
    Table,
    Unit,
)
from foretrace.report.numbers import count_text, duration_text

MAX_BARS = 14  # the smallest shares are in the download

_VIEWS: tuple[tuple[str, str, Callable[[CriticalPath], tuple[PathShare, ...]]], ...] = (
    ("class", "By class of work", CriticalPath.by_class),
    ("phase", "By phase", CriticalPath.by_phase),
    ("block", "By block", CriticalPath.by_block),
    ("rank", "By rank", CriticalPath.by_rank),
    ("name", "By name", CriticalPath.by_name),
    ("lane", "On the host or the device", CriticalPath.by_lane_kind),
)


def path_section(path_by_title: Mapping[str, CriticalPath]) -> Section | None:
    """The critical path of one step, replayed beside measured; `None` without a step."""
    if not path_by_title:
        return None
    path = path_by_title["replayed"]
    views = [_view(key, title, path_by_title, shares) for key, title, shares in _VIEWS]
    told = [view for view in views if len(view.rows) > 1 or view.key == "path-by-rank"]
    pairs = [SideBySide(tuple(told[first : first + 2])) for first in range(0, len(told), 2)]
    return Section(
        key="critical-path",
        title="Critical path",
        short="Critical path",
        lead=(
            f"From the end of {path.span.step_name} back to its begin, over what each piece of "
            f"work waited for last, on any rank, thread or stream: {count_text(len(path), 'piece')}"
            f" that sum to the step's {duration_text(path.step_ns)} exactly. Drawn in the timeline."
        ),
        parts=tuple(pairs),
        note=(
            "Paler: on the measured timeline, where unexplained time is time that no dependency "
            "explains. Shortening what is not on the path does not shorten the step."
        ),
    )


def _view(
    key: str,
    title: str,
    path_by_title: Mapping[str, CriticalPath],
    shares_of: Callable[[CriticalPath], tuple[PathShare, ...]],
) -> Table:
    replayed, measured = (
        {share.label: share for share in shares_of(path_by_title[side])}
        for side in ("replayed", "measured")
    )
    rows: list[tuple[Cell, ...]] = []
    for label in dict.fromkeys((*replayed, *measured)):
        own, other = replayed.get(label), measured.get(label)
        rows.append(
            (
                label,
                own.time_ns if own else 0,
                100 * own.share if own else 0.0,
                own.num_pieces if own else 0,
                other.time_ns if other else 0,
            )
        )
    return Table(
        key=f"path-by-{key}",
        title=title,
        columns=(
            Column(key, key),
            Column("replayed_ns", "replayed ms", Unit.MS),
            Column("share_percent", "share", Unit.PERCENT),
            Column("num_pieces", "pieces", Unit.COUNT),
            Column("measured_ns", "measured ms", Unit.MS),
        ),
        rows=tuple(rows),
        chart=Chart(
            kind=ChartKind.BARS,
            label=f"time on the critical path {title[0].lower()}{title[1:]}",
            category=key,
            series=(
                Series("replayed_ns", "replayed", "path"),
                Series("measured_ns", "measured", "path", is_faint=True),
            ),
            unit=Unit.NS,
            max_rows=MAX_BARS,
        ),
    )
