"""`ProgramRun`: a step's programs, run by the compiled loop; and again, slowed by communication."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from foretrace.base import Float64s, GraphError, Int64s
from foretrace.graph import weight_layers
from foretrace.workload.layout._compiled import beside, run_step, tallied
from foretrace.workload.layout.piece_program import Wait
from foretrace.workload.layout.tables import NOTHING, NUM_STREAMS, SENDS

_TURNS, _KINDS = 8, 4  # of meetings of several stages: most of a stage, `JOINS` and none


@dataclass(frozen=True)
class ProgramRun:
    """All that the compiled loop reads of a step, in the order in which it takes it."""

    schedule: tuple[Int64s, ...]
    routes: tuple[Int64s, ...]
    programs: tuple[Int64s, ...]
    ends: tuple[Int64s, ...]
    firsts: tuple[Int64s, ...]
    closings: tuple[Int64s, Int64s]
    times: tuple[Int64s, Int64s]
    lags: tuple[int, ...]
    rules: tuple[int, int]
    weight: Float64s  # float64[streams], of what runs on them, as `beside_communication` counts it

    def step_ns(self) -> int:
        """Run the step, and again with what communication slows."""
        lane_begin = self._lanes()
        extra_ns = np.zeros(int(lane_begin[-1, -1]), np.int64)
        span_ns = np.zeros((len(extra_ns), 3), np.int64)
        self._once(lane_begin, span_ns, extra_ns)
        found = np.zeros(len(extra_ns))
        for more, counts in weight_layers(self.weight):
            share = np.zeros(len(extra_ns))
            beside(lane_begin, span_ns, counts, share)
            found += more * share
        extra_ns[:] = np.rint(found * span_ns[:, 2])
        return self._once(lane_begin, span_ns, extra_ns)

    def _lanes(self) -> Int64s:
        """Where spans of every stream of every stage begin; int64[stages, streams + 1]."""
        item_begin, columns = self.programs[:2]
        num_programs, num_stages = len(item_begin) - 1, len(self.schedule[0]) - 1
        owner = np.repeat(np.arange(num_programs), np.diff(item_begin))
        code = owner * NUM_STREAMS + columns[:, 0]
        of_program = np.bincount(code, minlength=num_programs * NUM_STREAMS).reshape(
            -1, NUM_STREAMS
        )
        tally = np.zeros((num_stages, num_programs), np.int64)
        ends = np.zeros((2, num_stages), np.int64)
        tallied(self.schedule, self.routes, tally, ends)
        begin, chunks, gather, _ = self.firsts
        for stages, numbers in (
            (np.repeat(np.arange(num_stages), np.diff(self.closings[0])), self.closings[1]),
            (np.repeat(np.arange(num_stages), np.diff(begin)), gather[chunks]),
        ):
            np.add.at(tally, (stages[numbers >= 0], numbers[numbers >= 0]), 1)
        counts = tally @ of_program
        counts[:, -1] += ends[0]
        counts[:, SENDS] += ends[1]
        ends_of = np.cumsum(counts.reshape(-1)).reshape(num_stages, -1)
        found: Int64s = np.concatenate([ends_of[:, :1] - counts[:, :1], ends_of], axis=1)
        return found

    def _once(self, lane_begin: Int64s, span_ns: Int64s, extra_ns: Int64s) -> int:
        begin, _, microbatch = self.schedule[:3]
        num_stages, num_units = len(begin) - 1, len(microbatch)
        num_chunks = len(self.routes[0])
        item_begin, exit_begin = self.programs[0], self.programs[4]
        waits = self.programs[3]
        ahead = int(waits[waits[:, 0] == Wait.USE, 1].max(initial=1))
        most_items = int(np.diff(item_begin).max())
        gone = partial(np.full, fill_value=NOTHING, dtype=np.int64)
        still = partial(np.zeros, dtype=np.int64)
        party_left = still((_TURNS, _KINDS, num_stages))
        party_left[:, 1], party_left[:, 2:] = num_stages, 2
        step_ns = run_step(
            self.schedule,
            self.routes,
            self.programs,
            self.ends,
            self.firsts,
            self.closings,
            self.times,
            self.lags,
            self.rules,
            extra_ns,
            (
                *(still(num_stages), still(num_stages), gone(num_stages)),
                *(still((num_stages, ahead)), still(num_stages), gone(num_stages)),
            ),
            (gone((num_stages, NUM_STREAMS)), lane_begin[:, :-1].copy(), span_ns),
            (
                *(still((num_stages, most_items)), still((num_stages, NUM_STREAMS))),
                still((num_units, 2 + int(np.diff(exit_begin).max()))),
                *(gone(num_units), still((num_chunks, most_items))),
            ),
            (gone(party_left.size), party_left.reshape(-1), still((num_stages, _KINDS))),
            (
                *(gone(num_units), gone((2, num_chunks, int(microbatch.max()) + 1))),
                *(gone(num_units), gone(num_units), begin[:-1].copy()),
                *(still(num_stages), still(num_stages)),
            ),
        )
        if step_ns < 0:
            raise GraphError("units of the step wait for each other for ever")
        return int(step_ns)
