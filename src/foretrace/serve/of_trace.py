"""`calibration_of`: an engine's own profiler trace says how far modelled times of steps are off.

vLLM and SGLang mark every step with what it works on, so that the step model can be asked how long
it should have taken. What steps of decodes alone took over that is a factor, what steps with
prefills took over it another; from five steps on something that every step takes may stand beside
them, if steps that are left out come nearer with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrace.answer import number_text, percent_text
from foretrace.base import NS_PER_US, Bools, Float64s, Int64s, WorkloadError
from foretrace.serve.engine import Engine
from foretrace.serve.step_times import EngineStepTimes, StepCalibration
from foretrace.trace import (
    NO_ID,
    BatchKind,
    Category,
    EngineBatch,
    Trace,
    batches_of_marks,
    load_traces,
    outermost_rows,
)

_ON_DEVICE = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
_KINDS = ("decodes alone", "prefills")
_LEAST_STEPS = 5  # for what every step takes
_FOLDS = 20  # that steps are left out in: one by one, where there are no more
_FIXED = np.linspace(0, 0.99, 100)  # of the shortest step, that every step may take
_NINE_OF_TEN = 1.2816  # deviations of a normal law below which 90 % lie
_APART = 1.5  # the longest modelled step over the shortest, for what every step takes


@dataclass(frozen=True)
class MarkedStep:
    """A step of which a mark says the tokens."""

    batch: EngineBatch
    duration_ns: int

    @property
    def kind(self) -> int:
        """Decodes alone, or with prefills."""
        return int(self.prefill_tokens > 0)

    @property
    def prefill_tokens(self) -> int:
        """Tokens of prompts."""
        return self.batch.prefill_tokens or 0

    @property
    def num_decodes(self) -> int:
        """Requests that decode."""
        return self.batch.num_decodes

    def row(self, engine: Engine, keys_each: float) -> Float64s:
        """As the compiled loop has it, float64[7]; sequences alike where the mark says no more."""
        batch, tokens = self.batch, self.prefill_tokens
        pairs, kept = batch.pairs, batch.kept_tokens
        if pairs is None:
            pairs = tokens**2 / max(2 * batch.num_prefills, 1)
        each = keys_each if kept is None else kept / max(batch.num_decodes, 1)
        new = batch.num_decodes * (1 + engine.num_speculative_tokens)
        total = each * batch.num_decodes
        return np.array(
            [tokens, pairs, batch.num_decodes, total, each, batch.num_requests, new], np.float64
        )


def steps_of_trace(trace: Trace) -> tuple[MarkedStep, ...]:
    """The steps of a trace, and how long the device works on each.

    That is the mark's shadow on the device; where there is none, from the first of what was
    launched between a mark and the next to the end of the last, behind the step before; where
    no device was recorded the time to the next mark. Of marks inside one another the outer counts.
    """
    by_name = batches_of_marks(trace)
    known = np.isin(trace.name, list(by_name))
    on_device = known & (trace.category == Category.DEVICE_ANNOTATION)
    rows = outermost_rows(trace, np.flatnonzero(on_device if on_device.any() else known))
    duration = trace.duration_ns[rows] if on_device.any() else _worked_ns(trace, rows)
    return tuple(
        MarkedStep(batch, spent)
        for name, spent in zip(trace.name[rows].tolist(), duration.tolist(), strict=False)
        if spent > 0 and (batch := by_name[name]).kind is not BatchKind.IDLE
        if batch.prefill_tokens is not None
    )


def _worked_ns(trace: Trace, rows: Int64s) -> Int64s:
    """Time on the device of what was launched between each mark and the next, int64[marks]."""
    calls = np.flatnonzero((trace.category == Category.RUNTIME) & (trace.correlation != NO_ID))
    works = np.flatnonzero(np.isin(trace.category, _ON_DEVICE) & (trace.correlation != NO_ID))
    calls = calls[np.argsort(trace.correlation[calls], kind="stable")]
    at = np.searchsorted(trace.correlation[calls], trace.correlation[works])
    at = np.minimum(at, max(len(calls) - 1, 0))
    is_known = trace.correlation[calls[at]] == trace.correlation[works] if len(calls) else at < 0
    works, calls = works[is_known], calls[at[is_known]] if len(calls) else calls
    mark = np.searchsorted(trace.start_ns[rows], trace.start_ns[calls], side="right") - 1
    works, mark = works[mark >= 0], mark[mark >= 0]
    if not len(works):
        between: Int64s = np.diff(trace.start_ns[rows])
        return between
    first = np.full(len(rows), np.iinfo(np.int64).max)
    last = np.zeros(len(rows), np.int64)
    np.minimum.at(first, mark, trace.start_ns[works])
    np.maximum.at(last, mark, trace.start_ns[works] + trace.duration_ns[works])
    before = np.maximum.accumulate(np.concatenate([[0], last]))[:-1]
    worked: Int64s = np.maximum(last - np.maximum(first, before), 0)
    # The device may be busy with a step before the first, which nothing marks.
    worked[0] = min(worked[0], trace.duration_ns[works[mark == 0]].sum())
    return worked


def calibration_of(
    path: Path, engine: Engine, modelled: EngineStepTimes, *, keys_each: float, gpu: str = ""
) -> StepCalibration:
    """What a trace of an engine says of the modelled times of its steps.

    Args:
        path: the trace of one rank, or a folder of them, of which the first counts.
        engine: its settings.
        modelled: times of its steps.
        keys_each: keys of a decode where marks do not say them. They are taken to be known within
            a half; the less of a step's time is known so, the less of its factor counts.
        gpu: what they are of.

    Raises:
        WorkloadError: if no step is marked, or a step is larger than the engine's.
        TraceError: if it cannot be read.
    """
    steps = steps_of_trace(load_traces(path)[0])
    if not steps:
        raise WorkloadError(
            f"{path} has no marked steps, expected names such as execute_context_2(1024)_"
            "generation_30(30) or step[decode bs=64]: profile vLLM or SGLang with its annotations "
            "while it serves"
        )
    for said, most, setting in (
        ("tokens", engine.max_num_batched_tokens, "max_num_batched_tokens"),
        ("sequences", engine.max_num_seqs, "max_num_seqs"),
    ):
        column = [0, 6] if said == "tokens" else [5]
        largest = int(max(one.row(engine, 0.0)[column].sum() for one in steps))
        if largest > most:
            raise WorkloadError(
                f"{path} has a step of {largest:,} {said}, and the engine's {setting} is "
                f"{most:,}: state the settings that the trace was taken with"
            )
    taught = TaughtSteps(
        np.array([one.kind for one in steps]),
        np.array([_modelled_ns(one, engine, modelled, keys_each) for one in steps]),
        np.array([one.duration_ns for one in steps], np.float64),
    )
    prior = float(np.log(modelled.high / modelled.low)) / 2
    is_silent = any(one.num_decodes > 0 and one.batch.kept_tokens is None for one in steps)
    kinds = taught.fitted(has_fixed=False) if is_silent else taught.kinds()
    notes, unsure = [], 0.0
    if is_silent:
        ends = [
            np.log([_modelled_ns(one, engine, modelled, part * keys_each) for one in steps]).mean()
            for part in (0.5, 1.5)
        ]
        unsure = float(ends[1] - ends[0]) / 2
        kinds[:, 0] **= prior**2 / (prior**2 + unsure**2)
        notes.append(
            "marks of the trace do not say how many keys decodes have: those of the requests "
            f"({keys_each:,.0f} in the mean) were taken, and what hangs on them counts less"
        )
    half = float(np.hypot(taught.widths(kinds, prior).max(), unsure))
    return StepCalibration(
        kinds=kinds,
        low=float(np.exp(-half)),
        high=float(np.exp(half)),
        source=f"{len(steps)} step{'s' * (len(steps) > 1)} of {path.name}",
        gpu=gpu,
        notes=(taught.sentence(kinds), *notes),
    )


def _modelled_ns(
    step: MarkedStep, engine: Engine, modelled: EngineStepTimes, keys_each: float
) -> float:
    row = step.row(engine, keys_each)
    return float(sum(modelled.rows_ns(np.tile(row, (modelled.num_ranks, 1)))))


@dataclass(frozen=True, eq=False)
class TaughtSteps:
    """Steps as they were modelled and as they were measured."""

    kind: Int64s  # of each, see `MarkedStep.kind`
    modelled_ns: Float64s
    taken_ns: Float64s

    def __len__(self) -> int:
        return len(self.kind)

    def of(self, kept: Bools) -> TaughtSteps:
        """Some of them."""
        return TaughtSteps(self.kind[kept], self.modelled_ns[kept], self.taken_ns[kept])

    def kinds(self) -> Float64s:
        """A factor for each kind and what every step takes in ns, float64[2, 2].

        What every step takes is told from the rest only where steps that are left out come nearer,
        and some are longer than others.
        """
        plain = self.fitted(has_fixed=False)
        is_wide = self.modelled_ns.max() > _APART * self.modelled_ns.min()
        if len(self) < _LEAST_STEPS or not is_wide:
            return plain
        off = [self.left_out(has_fixed=has_fixed) for has_fixed in (False, True)]
        known = [one[~np.isnan(one)] for one in off]
        if not len(known[0]) or known[1].mean() >= known[0].mean():
            return plain
        return self.fitted(has_fixed=True)

    def fitted(self, *, has_fixed: bool) -> Float64s:
        """The same, with what every step takes or without: medians, that odd steps do not move.

        A kind that no step is of goes half the way of the other on a logarithmic scale: half of
        the variance of what a model is off is taken to be common to both.
        """
        fixed = self.taken_ns.min() * (_FIXED if has_fixed else _FIXED[:1])
        ratio = (self.taken_ns[None, :] - fixed[:, None]) / self.modelled_ns
        factors = np.full((len(fixed), 2), np.nan)
        for kind in range(2):
            if (self.kind == kind).any():
                factors[:, kind] = np.median(ratio[:, self.kind == kind], axis=1)
        for kind in range(2):
            if np.isnan(factors[:, kind]).any():
                factors[:, kind] = np.sqrt(factors[:, 1 - kind])
        found = factors[:, self.kind] * self.modelled_ns + fixed[:, None]
        best = np.abs(found / self.taken_ns - 1).mean(axis=1).argmin()
        return np.array([[factor, fixed[best]] for factor in factors[best]])

    def off(self, kinds: Float64s) -> Float64s:
        """How far each lies from what is taken of it, as a share."""
        found: Float64s = self.applied(kinds) / self.taken_ns - 1
        return found

    def applied(self, kinds: Float64s) -> Float64s:
        """What is taken of each, in ns."""
        found: Float64s = kinds[self.kind, 0] * self.modelled_ns + kinds[self.kind, 1]
        return found

    def left_out(self, *, has_fixed: bool) -> Float64s:
        """How far each lies off where others alone teach; NaN, if none of its kind is left."""
        fold = np.arange(len(self)) % min(len(self), _FOLDS)
        found = np.full(len(self), np.nan)
        for at in range(int(fold.max()) + 1):
            rest, out = self.of(fold != at), self.of(fold == at)
            if len(rest):
                off = np.abs(out.off(rest.fitted(has_fixed=has_fixed)))
                found[fold == at] = np.where(np.isin(out.kind, rest.kind), off, np.nan)
        return found

    def widths(self, kinds: Float64s, prior: float) -> Float64s:
        """Half the 80 % interval of a step of each kind, on a logarithmic scale, float64[2].

        Half of the variance of modelled steps is common to a kind, which its factor takes away;
        the other half counts as one more step. So one step leaves the interval as wide as it was,
        and many leave what they scatter. The kind that nothing taught lies between what it was
        modelled and the whole way of the other.
        """
        own = prior / _NINE_OF_TEN / np.sqrt(2)
        lies = np.log(self.taken_ns / self.applied(kinds))
        found = np.zeros(2)
        for kind in range(2):
            count = int((self.kind == kind).sum())
            if count:
                squares = own**2 + (lies[self.kind == kind] ** 2).sum()
                found[kind] = _NINE_OF_TEN * np.sqrt(squares / count * (1 + 1 / count))
            else:
                found[kind] = max(prior, abs(float(np.log(kinds[kind, 0]))))
        return found

    def sentence(self, kinds: Float64s) -> str:
        """What taught what, and how far it is off."""
        parts = []
        for kind, called in enumerate(_KINDS):
            count = int((self.kind == kind).sum())
            told = f"{count} with {called}" if kind else f"{count} of {called}"
            none = f"none {'with' if kind else 'of'} {called}"
            parts.append(f"{told if count else none} (x {number_text(kinds[kind, 0])})")
        told = f"steps of the trace that taught modelled times: {parts[0]}, {parts[1]}"
        if kinds[0, 1] > 0:
            told += f", and {number_text(kinds[0, 1] / NS_PER_US)} us for every step"
        before = 100 * float(np.abs(self.modelled_ns / self.taken_ns - 1).mean())
        out = self.left_out(has_fixed=bool(kinds[0, 1] > 0))
        if np.isnan(out).all():
            return f"{told}; they were {percent_text(before)} off, and none could be left out"
        after = 100 * float(np.nanmean(out))
        return f"{told}; left out they lie {percent_text(after)} off, {percent_text(before)} before"
