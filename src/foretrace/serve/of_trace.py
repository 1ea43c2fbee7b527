"""`times_of_trace`: a serving engine's own profiler trace becomes the times of its steps.

vLLM and SGLang mark every step with what it works on. Over the steps of a trace a line is fitted:
so much for a step, for each token, for each sequence, and, where marks say how many keys are kept,
for each of them; none of it below zero. What lies on no line is the stated interval.

Source:
    vllm-project/vllm, vllm/v1/worker/gpu_worker.py, `annotate_profile`:
    execute_context_2(1024)_generation_30(30), requests and tokens of prompts and of replies.
    sgl-project/sglang pull requests 23419 and 24911: step[decode bs=64 ... g_sk=100032],
    step[prefill bs=1 toks=1025], step[mixed bs=66 ext=2048 dec=64], and with c=, g=, c_sq=, g_sk=.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrace.base import Float64s, WorkloadError
from foretrace.serve.engine import Engine
from foretrace.serve.profiles import ProfileGrid
from foretrace.serve.step_times import EngineStepTimes
from foretrace.trace import Category, Trace, load_traces

_VLLM = re.compile(r"execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
_SGLANG = re.compile(r"step\[(\w+)((?: \w+=\d+)*)\]")
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
    found = _VLLM.fullmatch(name)
    if found is not None:
        prefills, tokens, decodes, _ = map(int, found.groups())
        return MarkedStep(prefills, tokens, decodes)
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
    """The steps of a trace: how long the device works on each, else the time to the next mark."""
    by_name = {at: found for at, name in enumerate(trace.strings) if (found := marked(name))}
    known = np.isin(trace.name, list(by_name))
    on_device = known & (trace.category == Category.DEVICE_ANNOTATION)
    rows = np.flatnonzero(on_device if on_device.any() else known)
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    duration = trace.duration_ns[rows]
    if not on_device.any():
        duration = np.diff(trace.start_ns[rows])
        rows = rows[:-1]
    names = trace.name[rows].tolist()
    return tuple(
        MarkedStep(
            by_name[name].num_prefills,
            by_name[name].prefill_tokens,
            by_name[name].num_decodes,
            by_name[name].kept_tokens,
            spent,
        )
        for name, spent in zip(names, duration.tolist(), strict=True)
        if by_name[name].sizes[0] > 0 and spent > 0
    )


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
