"""What durations rest on, as a bar and a table: shares of a whole by `Source`."""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.answer import Column, Legend, Share, ShareBar, Table, Unit, percent_text

_COLOURS = {
    "measured": "compute",
    "table": "overlapped",
    "scaled": "copy",
    "fitted": "host",
    "transferred": "communication",
    "roofline": "warn",
    "unknown": "constant",
}
_MEANINGS = {
    "measured": "this very operation was recorded",
    "table": "your table of measurements has the shape",
    "scaled": "measured at another shape",
    "learnt": "a model fitted to your recordings of this chip",
    "fitted": "a model fitted to measurements of this chip",
    "transferred": "a model fitted to another chip",
    "roofline": "peaks of the data sheet alone",
    "unknown": "not predicted: no time taken",
}


def source_parts(
    share_by_source: Mapping[str, float],
    *,
    of: str,
    title: str,
    meanings: Mapping[str, str] | None = None,
    least_share: float = 0.0,
) -> tuple[ShareBar, Legend, Table]:
    """Shares by source, with what each means.

    Args:
        share_by_source: what they sum to is one.
        of: what the bar shows the shares of.
        title: of the table.
        meanings: in place of, and beside, the usual ones.
        least_share: the table begins with it.
    """
    meaning = {**_MEANINGS, **(meanings or {})}
    shares = tuple(
        Share(name, 100 * share, percent_text(100 * share), _COLOURS.get(name, "idle"),
              meaning[name])
        for name, share in share_by_source.items()
    )  # fmt: skip
    table = Table.of(
        "sources",
        [one for one in share_by_source.items() if one[1] >= least_share],
        Column("source", " ", Unit.WORD, lambda one: one[0]),
        Column("share", value=lambda one: one[1]),
        Column("meaning", " ", value=lambda one: meaning[one[0]]),
        title=title,
    )
    return ShareBar(of, shares, is_thin=True), Legend(shares), table
