"""Where the timeline stands; its data is a `Strip`."""

from __future__ import annotations

from foretrace.report.document import Section, TimelineDrawing


def timeline_section() -> Section:
    """The timeline of all ranks, measured beside replayed."""
    return Section(
        key="timeline-section",
        title="Timeline",
        short="Timeline",
        lead=(
            "Per rank: host, compute, communication, and why nothing was done; measured above "
            "replayed."
        ),
        parts=(TimelineDrawing(),),
    )
