"""The critical path: what the step's length is the sum of, by class, block, phase and rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foretrace.analyze import CriticalPath, PathShare
from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Series,
    SideBySide,
    Table,
    Unit,
    count_text,
    duration_text,
)
from foretrace.report.document import Section

MAX_BARS = 14  # the smallest shares are in the download
_MEASURED = "measured"

_VIEWS: tuple[tuple[str, str, Callable[[CriticalPath], tuple[PathShare, ...]]], ...] = (
    ("class", "By class of work", CriticalPath.by_class),
    ("phase", "By phase", CriticalPath.by_phase),
    ("block", "By block", CriticalPath.by_block),
    ("rank", "By rank", CriticalPath.by_rank),
    ("name", "By name", CriticalPath.by_name),
    ("lane", "On the host or the device", CriticalPath.by_lane_kind),
)


_NOTE = "Shortening what is not on the path does not shorten the step."


def path_section(
    path_by_title: Mapping[str, CriticalPath], *, side: str = "replayed"
) -> Section | None:
    """The critical path of one step, the measured one beside if there is one.

    Args:
        path_by_title: without a step there is none, and no section.
        side: title of the one that counts.
    """
    if not path_by_title:
        return None
    path = path_by_title[side]
    views = [_view(key, title, path_by_title, (side, shares)) for key, title, shares in _VIEWS]
    told = [view for view in views if len(view.rows) > 1 or view.key == "path-by-rank"]
    pairs = [SideBySide(tuple(told[first : first + 2])) for first in range(0, len(told), 2)]
    measured = (
        "Paler: on the measured timeline, where unexplained time is time that no dependency "
        "explains. "
    )
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
        note=f"{measured if _MEASURED in path_by_title else ''}{_NOTE}",
    )


def _view(
    key: str,
    title: str,
    path_by_title: Mapping[str, CriticalPath],
    what: tuple[str, Callable[[CriticalPath], tuple[PathShare, ...]]],
) -> Table:
    side, shares_of = what
    own = {share.label: share for share in shares_of(path_by_title[side])}
    has_measured = _MEASURED in path_by_title
    measured = (
        {share.label: share for share in shares_of(path_by_title[_MEASURED])}
        if has_measured
        else {}
    )
    rows: list[tuple[Cell, ...]] = []
    for label in dict.fromkeys((*own, *measured)):
        one, other = own.get(label), measured.get(label)
        cells: tuple[Cell, ...] = (
            label,
            one.time_ns if one else 0,
            100 * one.share if one else 0.0,
            one.num_pieces if one else 0,
        )
        rows.append((*cells, other.time_ns if other else 0) if has_measured else cells)
    columns: tuple[Column, ...] = (
        Column(key, key),
        Column(f"{side}_ns", f"{side} ms", Unit.MS),
        Column("share_percent", "share", Unit.PERCENT),
        Column("num_pieces", "pieces", Unit.COUNT),
    )
    series: tuple[Series, ...] = (Series(f"{side}_ns", side, "path"),)
    if has_measured:
        columns = (*columns, Column("measured_ns", "measured ms", Unit.MS))
        series = (*series, Series("measured_ns", _MEASURED, "path", is_faint=True))
    return Table(
        key=f"path-by-{key}",
        title=title,
        columns=columns,
        rows=tuple(rows),
        chart=Chart(
            kind=ChartKind.BARS,
            label=f"time on the critical path {title[0].lower()}{title[1:]}",
            category=key,
            series=series,
            unit=Unit.NS,
            max_rows=MAX_BARS,
        ),
    )
