"""Where the timeline stands; its data is a `Strip`."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.answer import TimelineDrawing
from foretrace.report.document import Section


def timeline_section(titles: Sequence[str] = ("measured", "replayed")) -> Section:
    """The timeline of all ranks.

    Args:
        titles: of what is drawn, one above the other.
    """
    return Section(
        key="timeline-section",
        title="Timeline",
        short="Timeline",
        lead=(
            "Per rank: what its host threads were inside of, their calls, compute, communication, "
            f"and why nothing was done; {' above '.join(titles)}."
        ),
        parts=(TimelineDrawing(),),
    )
