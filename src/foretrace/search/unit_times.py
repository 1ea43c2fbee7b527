"""`UnitTimes` of a plan's chunks, from parts of its model that are timed once.

A rank's work of a microbatch depends on few of a plan's keys. For each of their values a small
model is laid out kernel by kernel: every layer alone, every two that follow one another, and both
ends. A chunk is the sum of these, so that plans of any depth are made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from foretrace.base import Int64s
from foretrace.cost import CostModel, Inflation, graph_costs, inflated
from foretrace.simulate import simulate
from foretrace.workload import (
    Axis,
    Fragments,
    ModelBlocks,
    Pass,
    Passes,
    Plan,
    Transformer,
    blocks_of_model,
    kinds_of_passes,
    pass_fragments,
    plan_of_blocks,
)

_WHOLE = (Pass.FORWARD, Pass.BACKWARD)
_SPLIT = (Pass.INPUT, Pass.WEIGHT)  # of schedules that take backward passes apart


@dataclass(frozen=True, eq=False)
class MicrobatchWork:
    """What a rank does for a microbatch, and how long each pass of its parts takes.

    Times are of a pass alone, of its operators without any communication, and of the host.
    """

    blocks: ModelBlocks
    layer_ns: Int64s  # int64[layers, 3, kinds of passes], of every layer alone
    behind_ns: Int64s  # int64[layers, 3, kinds of passes], summed up: added to those before it
    embedding_ns: Int64s  # int64[3, kinds of passes], added to the first layer
    head_ns: Int64s  # int64[3, kinds of passes], added to the last layer

    def chunks_ns(self, num_layers: tuple[int, ...]) -> Int64s:
        """Times of chunks of so many layers, first to last; int64[3, kinds of passes, chunks]."""
        counts = np.array(num_layers)
        first = np.minimum(np.cumsum(counts) - counts, len(self.layer_ns) - 1)
        last = np.maximum(first + counts - 1, first)
        found = self.layer_ns[first] + self.behind_ns[last] - self.behind_ns[first]
        found[counts == 0] = 0
        found[0] += self.embedding_ns
        found[-1] += self.head_ns
        return np.ascontiguousarray(np.moveaxis(found, 0, 2))


@dataclass(frozen=True, eq=False)
class _Samples:
    """Runs of layers that every chunk is made of, each a stage of a small model."""

    blocks: ModelBlocks
    plan: Plan
    runs: tuple[tuple[Passes, ...], ...]  # the first layer, kinds, pairs of kinds, the last layer

    @classmethod
    def of(cls, model: Transformer, plan: Plan) -> _Samples:
        """Those of a model, whose ranks do what they do under a plan of one stage."""
        blocks = blocks_of_model(model, plan)
        layers = blocks.layers
        kinds = {id(layer): (layer,) for layer in layers}
        pairs = {(id(one), id(other)): (one, other) for one, other in pairwise(layers)}
        runs = (layers[:1], *kinds.values(), *pairs.values(), layers[-1:])
        split = tuple(len(run) for run in runs)
        return cls(blocks, replace(plan, pipeline=len(runs), layers_of_chunk=split), runs)

    def fragments(self, kinds: Sequence[Pass]) -> Fragments:
        """Passes of all runs, the first behind the embedding, the last before the head."""
        layers = tuple(layer for run in self.runs for layer in run)
        return pass_fragments(replace(self.blocks, layers=layers), self.plan, kinds)

    def work(self, times: Int64s) -> MicrobatchWork:
        """What a rank does, from times of all runs; int64[runs, 3, kinds of passes]."""
        layers = self.blocks.layers
        of_run = {tuple(map(id, run)): ns for run, ns in zip(self.runs, times, strict=True)}
        of_run |= {
            tuple(map(id, run)): ns for run, ns in zip(self.runs[1:-1], times[1:-1], strict=True)
        }
        names = [id(layer) for layer in layers]
        layer_ns = np.stack([of_run[name,] for name in names])
        more_ns = [of_run[pair] - of_run[pair[:1]] for pair in pairwise(names)]
        return MicrobatchWork(
            self.blocks,
            layer_ns,
            behind_ns=np.cumsum([np.zeros_like(times[0]), *more_ns], axis=0),
            embedding_ns=times[0] - layer_ns[0],
            head_ns=times[-1] - layer_ns[-1],
        )


class UnitClock:
    """Times parts of one model on one machine, each distinct rank's work once."""

    def __init__(self, model: Transformer, costs: CostModel, inflation: Inflation) -> None:
        """Time nothing yet."""
        self._model, self._costs, self._inflation = model, costs, inflation
        self._samples: dict[Plan, _Samples] = {}
        self._times: dict[tuple[Plan, tuple[Pass, ...]], Int64s] = {}
        self._works: dict[tuple[Plan, bool], MicrobatchWork] = {}

    @property
    def num_timed(self) -> int:
        """Distinct works of a rank, with backward passes whole or taken apart."""
        return len(self._times)

    def work(self, plan: Plan) -> MicrobatchWork:
        """What a rank does under a plan for a microbatch, timed."""
        key = _alike(plan)
        is_split = Pass.INPUT in kinds_of_passes(plan)
        found = self._works.get((key, is_split))
        if found is None:
            if key not in self._samples:
                self._samples[key] = _Samples.of(self._model, key)
            times = self._timed_ns(key, _WHOLE)
            if is_split:
                times = times + self._timed_ns(key, _SPLIT)
            found = self._works[key, is_split] = self._samples[key].work(times)
        return found

    def _timed_ns(self, key: Plan, kinds: tuple[Pass, ...]) -> Int64s:
        """Times of some passes of all runs; int64[runs, 3, kinds of passes]."""
        known = self._times.get((key, kinds))
        if known is not None:
            return known
        samples = self._samples[key]
        fragments = samples.fragments(kinds)
        timeline = simulate(fragments.graph, fragments.at_once(self._ns(fragments, samples.plan)))
        lengths_ns = fragments.stretch_lengths_ns(timeline)
        lengths = np.stack([*lengths_ns, fragments.stretch_host_ns])
        found = np.zeros((len(samples.runs), 3, len(Pass)), np.int64)
        found[:, :, kinds] = lengths.reshape(3, len(samples.runs), len(kinds)).swapaxes(0, 1)
        self._times[key, kinds] = found
        return found

    def _ns(self, fragments: Fragments, plan: Plan) -> Int64s:
        """Duration of every node, slowed by communication of its own unit; int64[nodes].

        All stages stand where the first one does, so that a small machine has room for them.
        """
        graph = fragments.graph
        places = np.arange(plan.num_ranks) % (plan.num_ranks // plan.pipeline)
        alone_ns = graph_costs(graph, self._costs, place_by_rank=places).duration_ns
        alone = simulate(graph, fragments.at_once(alone_ns))
        return inflated(alone, alone_ns, self._inflation)


def _alike(plan: Plan) -> Plan:
    """A plan of one stage and one microbatch or two, under which a rank does the same for each."""
    known = plan_of_blocks(plan)
    return replace(
        known,
        pipeline=1,
        # Passes that gather and those that find everything gathered work as long.
        reshard_after_forward=True,
        # What runs beside experts' exchanges is slowed by those of another pass, if at all.
        overlap=replace(known.overlap, expert=False),
        # Stages stand behind one another, and parts that are timed are stages.
        order=(*(axis for axis in plan.order if axis is not Axis.PIPELINE), Axis.PIPELINE),
    )
