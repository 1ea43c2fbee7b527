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
from foretrace.cost import CostModel, Inflation
from foretrace.estimate import UnitTiming
from foretrace.workload import (
    Axis,
    KernelTimes,
    KnownSteps,
    ModelBlocks,
    Pass,
    Plan,
    RunTimes,
    Tables,
    Transformer,
    blocks_of_model,
    kinds_of_passes,
    plan_of_blocks,
    without_recompute,
)

_FORWARD, _WHOLE = (Pass.FORWARD,), (Pass.BACKWARD,)
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


class _Samples:
    """Runs of layers that every chunk is made of: the first, kinds, pairs of kinds, the last."""

    def __init__(
        self, model: Transformer, plan: Plan, kernels: KernelTimes, known: KnownSteps
    ) -> None:
        """Those of a model, whose ranks do what they do under a plan of one stage."""
        self._blocks = blocks_of_model(model, plan, known)
        self._times = RunTimes(plan, kernels)
        layers = self._blocks.layers
        kinds = {id(layer): (layer,) for layer in layers}
        pairs = {(id(one), id(other)): (one, other) for one, other in pairwise(layers)}
        self._runs = (*kinds.values(), *pairs.values())

    def times_ns(self, kinds: Sequence[Pass]) -> Int64s:
        """Of the first layer behind the embedding, all runs, and the last layer before the head.

        int64[runs, 3, kinds of passes].
        """
        blocks = self._blocks
        first = *(() if blocks.embedding is None else (blocks.embedding,)), blocks.layers[0]
        last = blocks.layers[-1], *(() if blocks.head is None else (blocks.head,))
        found = np.zeros((len(self._runs) + 2, 3, len(Pass)), np.int64)
        for at, run in enumerate((first, *self._runs, last)):
            for kind in kinds:
                found[at, :, kind] = self._times.pass_ns(run, kind)
        return found

    def work(self, times_ns: Int64s) -> MicrobatchWork:
        """What a rank does, from times of all runs."""
        names = [id(layer) for layer in self._blocks.layers]
        runs = [tuple(map(id, run)) for run in self._runs]
        of_run = dict(zip(runs, times_ns[1:-1], strict=True))
        layer_ns = np.stack([of_run[name,] for name in names])
        more_ns = [of_run[pair] - of_run[pair[:1]] for pair in pairwise(names)]
        return MicrobatchWork(
            self._blocks,
            layer_ns,
            behind_ns=np.cumsum([np.zeros_like(times_ns[0]), *more_ns], axis=0),
            embedding_ns=times_ns[0] - layer_ns[0],
            head_ns=times_ns[-1] - layer_ns[-1],
        )


class UnitClock:
    """Times parts of one model on one machine, each distinct rank's work once."""

    def __init__(self, model: Transformer, costs: CostModel, inflation: Inflation) -> None:
        """Time nothing yet."""
        self._model = model
        self._kernels = KernelTimes(UnitTiming(costs, inflation), Tables())
        self._known = KnownSteps()
        self._samples: dict[Plan, _Samples] = {}
        self._forward: dict[Plan, Int64s] = {}
        self._times: dict[tuple[Plan, tuple[Pass, ...]], Int64s] = {}
        self._works: dict[tuple[Plan, bool], MicrobatchWork] = {}

    @property
    def num_timed(self) -> int:
        """Distinct works of a rank, with backward passes whole or taken apart."""
        return len(self._times)

    def work(self, plan: Plan) -> MicrobatchWork:
        """What a rank does under a plan for a microbatch, timed."""
        key, is_split = work_key(plan)
        found = self._works.get((key, is_split))
        if found is None:
            if key not in self._samples:
                self._samples[key] = _Samples(self._model, key, self._kernels, self._known)
            times = self._forward_ns(key) + self._timed_ns(key, _WHOLE)
            if is_split:
                times = times + self._timed_ns(key, _SPLIT)
            found = self._works[key, is_split] = self._samples[key].work(times)
        return found

    def _forward_ns(self, key: Plan) -> Int64s:
        """Times of forward passes of all runs, whatever backward passes compute again."""
        alike = without_recompute(key) if key.recompute_of_layer is None else key
        if alike not in self._forward:
            self._forward[alike] = self._samples[key].times_ns(_FORWARD)
        return self._forward[alike]

    def _timed_ns(self, key: Plan, kinds: tuple[Pass, ...]) -> Int64s:
        """Times of some passes of all runs."""
        if (key, kinds) not in self._times:
            self._times[key, kinds] = self._samples[key].times_ns(kinds)
        return self._times[key, kinds]


def work_key(plan: Plan) -> tuple[Plan, bool]:
    """The same for plans whose ranks do the same: a plan, and whether backward passes are halved.

    That plan has one stage and one microbatch or two.
    """
    known = plan_of_blocks(plan)
    alike = replace(
        known,
        pipeline=1,
        # Passes that gather and those that find everything gathered work as long.
        reshard_after_forward=True,
        # What runs beside experts' exchanges is slowed by those of another pass, if at all.
        overlap=replace(known.overlap, expert=False),
        # Ranks of a stage stand beside one another, as those of the only one do.
        order=(*(axis for axis in plan.order if axis is not Axis.PIPELINE), Axis.PIPELINE),
    )
    return alike, Pass.INPUT in kinds_of_passes(plan)
