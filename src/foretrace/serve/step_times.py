"""`EngineStepTimes`: how long an engine's step takes, by what the step works on, as tables.

A step works on some tokens in all (products, norms, collectives), on some sequences (the last layer
and sampling), and attends: prefills to what came before them, decodes to all they keep. Whoever
knows how long these take writes the same tables, so that one loop runs them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.serve.engine import Engine
from foretrace.serve.profiles import ProfileGrid
from foretrace.serve.step._compiled import Grids, Stages, Times, step_ns, steps_ns_into
from foretrace.workload import launch_named

# Attention of uneven sequences lies between that of their mean and that of their longest: this far
# up. LLMServingSim's profiles of uneven batches on RTX PRO 6000 say 0.02 to 0.06 for half of their
# buckets from 64 sequences on (profiler/perf/RTXPRO6000, skew_fit.csv). The lower end is taken:
# their batches are of two lengths, while the longest of requests are rare.
UNEVENNESS = 0.025
# What no kernel was measured for takes half to twice as long, as `cost` has it.
_LESS_ASSUMED, _MORE_ASSUMED = -0.5, 1.0


@dataclass(frozen=True)
class StepBatch:
    """What one rank works on in a step."""

    prefills: tuple[tuple[int, int], ...] = ()  # tokens, and tokens before them
    decodes: tuple[int, ...] = ()  # keys of each, its own among them
    num_guessed: int = 0  # tokens of all decodes beyond one each

    @property
    def num_new(self) -> int:
        """Tokens of decodes."""
        return len(self.decodes) + self.num_guessed

    def row(self) -> Float64s:
        """As the compiled loop has it, float64[7]."""
        tokens = sum(count for count, _ in self.prefills)
        pairs = sum(count * (before + count / 2) for count, before in self.prefills)
        kept = (len(self.decodes), sum(self.decodes), max(self.decodes, default=0))
        sequences = len(self.prefills) + len(self.decodes)
        return np.array([tokens, pairs, *kept, sequences, self.num_new], np.float64)


@dataclass(frozen=True, eq=False)
class PipelineStages:
    """How layers lie over stages of GPUs, one behind the other."""

    shares: Float64s  # float64[stages, 2], each one's share of layers, and of those with experts
    embedding_ns: Float64s  # float64[tokens + 1], of the first stage
    transfer_ns: Float64s  # float64[tokens + 1], from a stage to the next

    def scaled(self, factor: float) -> PipelineStages:
        """The same, what is sent so many times as long; the embedding is part of a step."""
        return replace(self, transfer_ns=self.transfer_ns * factor)


@dataclass(frozen=True, eq=False)
class StepCalibration:
    """What an engine's own steps say of modelled ones."""

    kinds: Float64s  # float64[2, 2], of decodes alone and with prefills: a factor, ns of every step
    low: float = 1.0  # a step takes so many times as long at least, 80 % interval
    high: float = 1.0
    source: str = ""
    gpu: str = ""  # that they ran on, as its chip is called
    notes: tuple[str, ...] = ()


UNCALIBRATED = StepCalibration(np.array([[1.0, 0.0], [1.0, 0.0]]))


@dataclass(frozen=True, eq=False)
class EngineStepTimes:
    """Durations of all layers together, in ns."""

    token_ns: Float64s  # float64[tokens + 1]
    sequence_ns: Float64s  # float64[sequences + 1]
    shared_ns: Float64s  # float64[tokens of all ranks + 1], what ranks do together
    decode: ProfileGrid  # sequences, keys
    prefill: ProfileGrid  # tokens, keys before
    mixed: ProfileGrid  # tokens, keys before, sequences, keys
    num_ranks: int  # that go in step
    low: float  # a step takes so many times as long at least, 80 % interval
    high: float
    source: str  # what they come from
    unevenness: float = UNEVENNESS
    notes: tuple[str, ...] = ()
    pipeline: PipelineStages | None = None  # None: one stage
    # float64[tokens + 1], what the host takes to launch the kernels of a step, which takes no less:
    # one stream does them in order, and nothing else waits. None: nothing, all steps are graphs.
    host_ns: Float64s | None = None
    # float64[tokens of the fullest rank + 1], all ranks' tokens to their experts and back. None:
    # nothing is sent, or it is part of what ranks do together.
    sent_ns: Float64s | None = None
    # int64[tokens of the fullest rank + 1], what all ranks are padded to; 0: each has its own.
    padded: Int64s | None = None
    calibration: StepCalibration = UNCALIBRATED  # of all of the above
    # float64 as `decode` and `prefill`: what of them are kernels that nobody measured. None: none.
    assumed: tuple[Float64s, Float64s] | None = None

    @property
    def grids(self) -> Grids:
        """Attention, as the compiled loop takes it."""
        decode, prefill, mixed = self.decode, self.prefill, self.mixed
        tokens, before, sequences, keys = mixed.axes
        return (
            (decode.axes[0], decode.axes[1], decode.values),
            (prefill.axes[0], prefill.axes[1], prefill.values),
            (tokens, before, sequences, keys, mixed.values),
        )

    @property
    def times(self) -> Times:
        """The rest, as the compiled loop takes it."""
        nothing = np.zeros(len(self.token_ns))
        return (
            *(self.token_ns, self.sequence_ns, self.shared_ns, self.unevenness),
            self.calibration.kinds,
            nothing if self.host_ns is None else self.host_ns,
            nothing if self.sent_ns is None else self.sent_ns,
            nothing.astype(np.int64) if self.padded is None else self.padded,
        )

    @property
    def num_stages(self) -> int:
        """Stages that a step passes."""
        return 1 if self.pipeline is None else len(self.pipeline.shares)

    @property
    def stages(self) -> Stages:
        """Stages, as the compiled loop takes them."""
        if self.pipeline is None:
            nothing = np.zeros(len(self.token_ns))
            return np.ones((1, 2)), nothing, nothing
        return self.pipeline.shares, self.pipeline.embedding_ns, self.pipeline.transfer_ns

    def stages_ns(self, *batches: StepBatch) -> list[int]:
        """How long a step is in each stage, a batch for every rank."""
        return self.rows_ns(np.stack([batch.row() for batch in batches]))

    def rows_ns(self, rows: Float64s) -> list[int]:
        """The same of batches as the compiled loop has them, float64[ranks, 7]."""
        return [
            int(step_ns(self.grids, self.times, self.stages, stage, rows))
            for stage in range(self.num_stages)
        ]

    def steps_ns(self, steps: Sequence[Sequence[StepBatch]]) -> Int64s:
        """What `step_ns` says of each of many steps, int64[steps]."""
        rows = np.stack([np.stack([batch.row() for batch in step]) for step in steps])
        found = np.zeros((len(rows), self.num_stages), np.int64)
        steps_ns_into(self.grids, self.times, self.stages, rows, found)
        new = (rows[:, :, 0] + rows[:, :, 6]).max(axis=1).astype(np.int64)
        sent = (self.stages[2][new] + 0.5).astype(np.int64) * (self.num_stages - 1)
        total: Int64s = found.sum(axis=1) + sent
        return total

    def least_ns(self, tokens: Int64s, shared: Int64s) -> Float64s:
        """What a step of so many tokens of a rank, and of all, takes without attention.

        Of stages the one that has most layers.
        """
        shares, embedding_ns, _ = self.stages
        layers, experts = shares[shares[:, 0].argmax()].tolist()
        factor, every = self.calibration.kinds.min(axis=0).tolist()
        own = layers * (self.token_ns - embedding_ns)[tokens] + experts * self.shared_ns[shared]
        if self.sent_ns is not None:
            own = own + experts * self.sent_ns[tokens]
        found: Float64s = own * factor + every
        return found

    def step_ns(self, *batches: StepBatch) -> int:
        """How long a step takes, a batch for every rank; on its way between stages, too."""
        new = max(sum(each for each, _ in one.prefills) + one.num_new for one in batches)
        sent = int(self.stages[2][new] + 0.5) * (self.num_stages - 1)
        return sum(self.stages_ns(*batches)) + sent

    def scaled(self, factor: float) -> EngineStepTimes:
        """The same, all of it so many times as long."""
        kinds = self.calibration.kinds * factor
        return replace(
            self,
            calibration=replace(self.calibration, kinds=kinds),
            pipeline=None if self.pipeline is None else self.pipeline.scaled(factor),
        )

    def ends(self) -> tuple[EngineStepTimes, EngineStepTimes]:
        """The least and the most of the 80 % interval; what nobody measured from half to twice."""
        least, most = (self._with_assumed(share) for share in (_LESS_ASSUMED, _MORE_ASSUMED))
        return least.scaled(self.low), most.scaled(self.high)

    def _with_assumed(self, share: float) -> EngineStepTimes:
        """The same, what nobody measured by such a share of itself longer."""
        if self.assumed is None:
            return self
        decode, prefill = (share * one for one in self.assumed)
        both = prefill[:, :, None, None] + decode[None, None]
        return replace(
            self,
            decode=replace(self.decode, values=self.decode.values + decode),
            prefill=replace(self.prefill, values=self.prefill.values + prefill),
            mixed=replace(self.mixed, values=self.mixed.values + both),
        )

    def calibrated(self, by: StepCalibration) -> EngineStepTimes:
        """The same as an engine's own steps taught, one stage after the other."""
        return replace(
            self,
            calibration=by,
            assumed=None,
            low=by.low,
            high=by.high,
            source=f"{self.source}, calibrated by {by.source}",
            notes=(*self.notes, *by.notes),
        )


def padded_tokens(engine: Engine, num_tokens: int) -> Int64s:
    """Tokens that a step of 0, 1, ... tokens runs with: the next size that a graph was made for."""
    tokens = np.arange(num_tokens + 1)
    sizes = np.array(sorted({0, *engine.captured()}), np.int64)
    at = np.searchsorted(sizes, tokens)
    padded: Int64s = np.where(at < len(sizes), sizes[np.minimum(at, len(sizes) - 1)], tokens)
    return padded


def launched_ns(engine: Engine, num_launches: int, num_tokens: int) -> Float64s:
    """What the host takes to launch a step of 0, 1, ... tokens that no graph was made for.

    Args:
        engine: its settings: without graphs operators come one by one, else what was compiled.
        num_launches: kernels of a step.
        num_tokens: of the largest step.
    """
    each_ns = launch_named("eager" if engine.enforce_eager else "compiled").forward_ns
    largest = max(engine.captured(), default=0)
    tokens = np.arange(num_tokens + 1)
    return np.where(tokens > largest, float(each_ns * num_launches), 0.0)


def along(sizes: Float64s, values: Float64s, wanted: Float64s | Int64s) -> Float64s:
    """Values on the lines between measured points; the last line goes on, the first value holds."""
    found: Float64s = np.interp(wanted, sizes, values)
    if len(sizes) > 1:
        slope = max((values[-1] - values[-2]) / (sizes[-1] - sizes[-2]), 0.0)
        found = found + slope * np.maximum(np.asarray(wanted) - sizes[-1], 0)
    return found


def surface(grid: ProfileGrid, rows: Float64s, columns: Float64s) -> Float64s:
    """Values between the corners of a grid of two axes; beyond its last row the last line goes on.

    Outside of it elsewhere the nearest edge holds.
    """
    axis = grid.axes[0]
    by_row = np.stack([np.interp(columns, grid.axes[1], line) for line in grid.values])
    above = np.clip(np.searchsorted(axis, rows, side="right"), 1, len(axis) - 1)
    places = np.arange(len(rows))
    lower, upper = by_row[above - 1, places], by_row[above, places]
    slope = (upper - lower) / (axis[above] - axis[above - 1])
    inside = slope * (np.clip(rows, axis[0], axis[-1]) - axis[above - 1]) + lower
    found: Float64s = inside + np.maximum(slope, 0) * np.maximum(rows - axis[-1], 0)
    return found


def beyond(sizes: Sequence[tuple[str, float, float]]) -> tuple[str, ...]:
    """What goes beyond what was measured, in words.

    Args:
        sizes: what it is, how far a step may go, how far was measured.
    """
    return tuple(
        f"steps may hold {wanted:,.0f} {what}, and {measured:,.0f} were measured: beyond, the last "
        "line goes on"
        for what, wanted, measured in sizes
        if wanted > measured
    )
