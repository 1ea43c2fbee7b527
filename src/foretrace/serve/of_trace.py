"""`times_of_trace`: a serving engine's own profiler trace becomes the times of its steps.

vLLM and SGLang mark every step with what it works on. Over the steps of a trace a line is fitted:
so much for a step, for each token, for each sequence, and, where marks say how many keys are kept,
for each of them; none of it below zero. What lies on no line is the stated interval.

Source:
    vllm-project/vllm, vllm/v1/worker/gpu_worker.py, `annotate_profile`:
    execute_context_2(1024)_generation_30(30), requests and tokens of prompts and of replies; with
    detailed_trace_annotation (pull request 37524) execute_1054_context_2(sq1024sk1500...)_
    generation_30(sq30sk9000...): queries and keys of either.
    sgl-project/sglang pull requests 23419 and 24911: step[decode bs=64 ... g_sk=100032],
    step[prefill bs=1 toks=1025], step[mixed bs=66 ext=2048 dec=64], and with c=, g=, c_sq=, g_sk=.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foretrace.base import Float64s, Int64s, WorkloadError
from foretrace.serve.engine import Engine
from foretrace.serve.profiles import ProfileGrid
from foretrace.serve.step_times import EngineStepTimes
from foretrace.trace import NO_ID, Category, Trace, load_traces

_VLLM = re.compile(
    r"execute_context_(?P<prefills>\d+)\((?P<tokens>\d+)\)_generation_(?P<decodes>\d+)\(\d+\)"
)
_VLLM_DETAILED = re.compile(
    r"execute_\d+_context_(?P<prefills>\d+)\(sq(?P<tokens>\d+)sk\d+sqsq\d+sqsk\d+\)"
    r"_generation_(?P<decodes>\d+)\(sq\d+sk(?P<kept>\d+)sqsq\d+sqsk\d+\)"
)
_SGLANG = re.compile(r"step\[(\w+)((?: \w+=\d+)*)\]")
_ON_DEVICE = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
_LEAST_STEPS, _LEAST_KINDS = 5, 2
_ENDS = 0.1, 0.9  # of the interval


@dataclass(frozen=True)
class MarkedStep:
    """What a mark says of a step."""

    num_prefills: int
    prefill_tokens: int
    num_decodes: int
    kept_tokens: int | None = None  # keys of all decodes; None: not said
    duration_ns: int = 0

    @property
    def sizes(self) -> tuple[float, float, float]:
        """Tokens, sequences and keys."""
        tokens = self.prefill_tokens + self.num_decodes
        return tokens, self.num_prefills + self.num_decodes, self.kept_tokens or 0


def marked(name: str) -> MarkedStep | None:
    """What the name of an annotation says of a step; none, if it marks none."""
    found = _VLLM.fullmatch(name) or _VLLM_DETAILED.fullmatch(name)
    if found is not None:
        counts = {key: int(value) for key, value in found.groupdict().items()}
        kept = counts.get("kept")
        return MarkedStep(counts["prefills"], counts["tokens"], counts["decodes"], kept)
    found = _SGLANG.fullmatch(name)
    if found is None:
        return None
    kind = found[1].lower()
    stated = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found[2])}
    count = stated.get("bs", 0)
    if kind == "decode":
        return MarkedStep(0, 0, count, stated.get("g_sk"))
    if kind in ("prefill", "extend"):
        return MarkedStep(count, stated.get("toks", stated.get("c_sq", 0)), 0, 0)
    if kind == "mixed":
        decodes = stated.get("g", stated.get("dec", 0))
        tokens = stated.get("c_sq", stated.get("ext", 0))
        return MarkedStep(stated.get("c", count - decodes), tokens, decodes, stated.get("g_sk"))
    return None


def steps_of_trace(trace: Trace) -> tuple[MarkedStep, ...]:
    """The steps of a trace, and how long the device works on each.

    That is the mark's shadow on the device; where there is none, from the first of what was
    launched between a mark and the next to the end of the last, behind the step before; where
    no device was recorded the time to the next mark. Of marks inside one another the outer counts.
    """
    by_name = {at: found for at, name in enumerate(trace.strings) if (found := marked(name))}
    known = np.isin(trace.name, list(by_name))
    on_device = known & (trace.category == Category.DEVICE_ANNOTATION)
    rows = np.flatnonzero(on_device if on_device.any() else known)
    rows = rows[np.lexsort((-trace.duration_ns[rows], trace.start_ns[rows]))]
    ends = trace.start_ns[rows] + trace.duration_ns[rows]
    if len(rows):
        rows = rows[np.concatenate([[True], ends[1:] > np.maximum.accumulate(ends)[:-1]])]
    duration = trace.duration_ns[rows] if on_device.any() else _worked_ns(trace, rows)
    return tuple(
        replace(by_name[name], duration_ns=spent)
        for name, spent in zip(trace.name[rows].tolist(), duration.tolist(), strict=False)
        if by_name[name].sizes[0] > 0 and spent > 0
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


def times_of_trace(path: Path, engine: Engine, *, ranks: int) -> EngineStepTimes:
    """Times of an engine's steps from a trace of it.

    Args:
        path: the trace of one rank, or a folder of them, of which the first counts.
        engine: its settings.
        ranks: copies that go in step.

    Raises:
        WorkloadError: if too few steps are marked, or all of them are alike.
        TraceError: if it cannot be read.
    """
    steps = steps_of_trace(load_traces(path)[0])
    kinds = len({one.sizes for one in steps})
    if len(steps) < _LEAST_STEPS or kinds < _LEAST_KINDS:
        raise WorkloadError(
            f"{path} has {len(steps)} marked steps of {kinds} kinds, and the times of an engine "
            f"need {_LEAST_STEPS} of {_LEAST_KINDS} kinds or more: profile vLLM or SGLang while "
            "requests of different lengths come"
        )
    sizes = np.array([one.sizes for one in steps])
    taken = np.array([one.duration_ns for one in steps], np.float64)
    base, token, sequence, key = line_of(sizes, taken)
    fitted = base + sizes @ np.array([token, sequence, key])
    low, high = np.quantile(taken / fitted, _ENDS).tolist()
    off = 100 * float(np.abs(fitted / taken - 1).mean())
    most = engine.max_num_batched_tokens
    tokens = base + token * np.arange(most + 1, dtype=np.float64)
    corner = np.array([[0.0, 0.0], [0.0, key]])  # sequences x keys of each
    axis = np.array([0.0, 1.0])
    return EngineStepTimes(
        token_ns=np.stack([tokens, tokens]),
        sequence_ns=sequence * np.arange(engine.max_num_seqs + 1, dtype=np.float64),
        shared_ns=np.zeros(ranks * most + 1),
        decode=ProfileGrid((axis, axis), corner),
        prefill=ProfileGrid((axis, axis), np.zeros((2, 2))),
        mixed=ProfileGrid((axis,) * 4, np.broadcast_to(corner, (2, 2, 2, 2)).copy()),
        num_ranks=ranks,
        low=min(low, 1.0),
        high=max(high, 1.0),
        source=f"{len(steps)} steps of {path.name}",
        unevenness=0.0,
        notes=(f"steps of the trace lie {off:.1f} % off their line on the average",),
    )


def line_of(sizes: Float64s, taken: Float64s) -> tuple[float, float, float, float]:
    """What a step, a token, a sequence and a key take, in ns, none below 0; by relative errors."""
    from scipy.optimize import nnls  # on demand: it takes longer to import than a short command

    columns = np.column_stack([np.ones(len(sizes)), sizes])
    scale = np.maximum(np.abs(columns).max(axis=0), 1.0)
    found, _ = nnls(columns / scale / taken[:, None], np.ones(len(taken)))
    base, token, sequence, key = (found / scale).tolist()
    return base, token, sequence, key
