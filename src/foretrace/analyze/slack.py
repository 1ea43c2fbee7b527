"""How much later each node may end before a step ends later."""

from __future__ import annotations

import numpy as np

from foretrace.analyze.spans import closes, step_span
from foretrace.base import Int64s
from foretrace.graph import Timeline
from foretrace.simulate import slack_before


def slack_ns(timeline: Timeline, *, step: str | None = None, rank: int | None = None) -> Int64s:
    """Time that each node may grow by, all else as it is, before the step ends later; int64[nodes].

    0 on the critical path, and on every other way of the same length. NO_LIMIT_NS of nodes that
    nothing in the step waits for, those of later steps among them. A node of an earlier step has
    slack against this step's end, though the step might then begin later too. In a measured
    timeline, time that no edge explains stays between the nodes it was measured between.

    Args:
        timeline: measured or simulated.
        step: by name; without one, the step whose length is nearest the median.
        rank: that rank's own step; the job's if left out.

    Raises:
        GraphError: if there is no such step, or the rank has none.
    """
    span = step_span(timeline, step, rank)
    due = np.flatnonzero(closes(timeline.graph, span.steps, span.rank))
    return slack_before(timeline, due, int(timeline.end_ns[due].max()))
