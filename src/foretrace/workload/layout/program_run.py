"""`run_programs`: a step's programs, run by the compiled loop."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from foretrace.base import Bools, Float64s, GraphError, Int64s
from foretrace.graph import weight_layers
from foretrace.workload.layout._compiled import Job, lanes, run_step
from foretrace.workload.layout.piece_program import Wait
from foretrace.workload.layout.tables import NUM_STREAMS, stream_weights
from foretrace.workload.plan.plan import Channels


def run_programs(job: Job, closings: tuple[Int64s, Int64s], channels: Channels) -> int:
    """How long a step takes, in ns.

    Args:
        job: units and their programs, as `run_step` takes them.
        closings: where programs behind each stage's units begin, and these.
        channels: of exchanges; what they slow grows with them.

    Raises:
        GraphError: if stages wait for each other for ever.
    """
    _, program, (begin, _, _, waits, exits, _), _, (_, _, gather), *_ = job
    num_stages, num_units = len(closings[0]) - 1, len(program)
    lane_begin = np.empty((num_stages, NUM_STREAMS + 1), np.int64)
    num_spans = lanes(job, closings, lane_begin)
    room = partial(np.empty, dtype=np.int64)
    ahead = int(waits[waits[:, 0] == Wait.USE, 1].max(initial=1))
    most_items, of_streams = int(np.diff(begin).max()), (num_stages, NUM_STREAMS)
    state = (
        *(room((num_stages, 4)), room(of_streams), room(of_streams)),
        *(room((num_stages, ahead)), room(of_streams), room((num_stages, most_items))),
    )
    known = (
        *(room((num_units, 2 + int(np.diff(exits).max()))), room(num_units)),
        *(room((len(gather), most_items)), room(num_units), room(num_units)),
    )
    spans = room(num_spans), room((num_spans, 3))
    share = np.empty((2, num_spans))
    step_ns = run_step(job, closings, lane_begin, spans, state, known, *_layers(channels), share)
    if step_ns < 0:
        raise GraphError("what follows the units of a step waits for ever")
    return int(step_ns)


@cache
def _layers(channels: Channels) -> tuple[Float64s, Bools]:
    """`weight_layers` of streams, as columns."""
    more, counts = zip(*weight_layers(stream_weights(channels)), strict=True)
    return np.array(more), np.array(counts)
