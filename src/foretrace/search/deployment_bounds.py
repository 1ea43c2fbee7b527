"""`least_copies`: how many copies of an engine a promise takes at least."""

from __future__ import annotations

import math

import numpy as np

from foretrace.base import NS_PER_MS, Float64s
from foretrace.serve import Engine, EngineStepTimes, Requests, ServiceTarget, StepBatch

_LENGTHS, _LINES = 64, 200  # that bounds are looked up for


def least_copies(
    times: EngineStepTimes,
    engine: Engine,
    requests: Requests,
    target: ServiceTarget,
    kept_share: float,
) -> int | None:
    """Copies below which a promise cannot be kept; none: no number of them keeps it.

    A request alone gets its first token after its prompt's steps and each further one after a
    step of its own, and no load makes that shorter. All requests that are kept are done by a
    certain time; till then an engine works on no more tokens than its cheapest step allows.

    Args:
        times: of the engine's steps.
        engine: its settings.
        requests: of all copies together.
        target: what they are promised.
        kept_share: of requests that must have it.
    """
    output = requests.output_tokens
    first_ms, further_ms = alone_ms(times, engine, requests)
    at_once = 1 + engine.num_speculative_tokens
    kept = np.ones(len(requests), bool)
    for limit, value in (
        (target.ttft_ms, first_ms),
        (target.tpot_ms, np.where(output > 1, further_ms, 0.0) / at_once),
        (target.latency_ms, first_ms + further_ms * (output - 1) / at_once),
    ):
        if limit:
            kept &= value <= limit
    needed = math.ceil(kept_share * len(requests))
    if kept.sum() < needed:
        return None
    allowed_ms, further = _work(requests, target)
    if allowed_ms is None:
        return 1
    until_ms = float((requests.arrival_ns / NS_PER_MS + allowed_ms).max())
    tokens = np.sort(requests.new_tokens + further)[:needed].sum()
    decodes = np.sort(further)[:needed].sum() / at_once
    spent_ns = _least_ns(times, float(tokens), float(decodes) / engine.max_num_seqs)
    return max(1, math.ceil(spent_ns / NS_PER_MS / until_ms))


def alone_ms(
    times: EngineStepTimes, engine: Engine, requests: Requests
) -> tuple[Float64s, Float64s]:
    """The first token, and each further one, of a request that is alone, at least.

    Prompts count as the longest of some lengths that is no longer; parts of a prompt pass the
    busiest stage one after the other.
    """
    budget = engine.max_num_batched_tokens
    idle = (StepBatch(),) * (times.num_ranks - 1)
    whole = float(times.least_ns(np.array([budget]), np.array([0]))[0])
    prompt = requests.new_tokens
    lengths = np.unique(np.quantile(prompt, np.linspace(0, 1, _LENGTHS)).astype(np.int64))
    at = np.searchsorted(lengths, prompt, side="right") - 1
    rest = [StepBatch(prefills=((int((length - 1) % budget) + 1, 0),)) for length in lengths]
    new = [StepBatch(decodes=(length,)) for length in lengths.tolist()]
    first = (lengths - 1) // budget * whole + times.steps_ns([(one, *idle) for one in rest])
    further = times.steps_ns([(one, *idle) for one in new])
    return first[at] / NS_PER_MS, further[at] / NS_PER_MS


def _work(requests: Requests, target: ServiceTarget) -> tuple[Float64s | None, Float64s]:
    """How long each request may take, and the tokens after its first that it has by then."""
    further = (requests.output_tokens - 1).astype(np.float64)
    if target.latency_ms:
        return np.full(len(requests), target.latency_ms), further
    if target.ttft_ms and target.tpot_ms:
        allowed: Float64s = target.ttft_ms + target.tpot_ms * further
        return allowed, further
    if target.ttft_ms:
        return np.full(len(requests), target.ttft_ms), np.zeros(len(requests))
    return None, further


def _least_ns(times: EngineStepTimes, tokens: float, full_steps: float) -> float:
    """Below which an engine is not done with so many tokens.

    What a step takes lies above a line a + b x tokens; an engine that decodes takes as
    many steps as full ones at least. Of some lines the one that says most counts.

    Args:
        times: of its steps; attention is left out.
        tokens: of all ranks.
        full_steps: steps that decodes fill, if one rank has them all.
    """
    ranks = times.num_ranks
    most = len(times.token_ns) - 1
    counts = np.unique(np.geomspace(1, most * ranks, _LINES).astype(np.int64))
    whole = times.least_ns(np.minimum(-(-counts // ranks), most), counts)
    till = np.append(counts[1:] - 1, counts[-1])  # a step of as many takes no less than of fewer
    slopes = np.append(np.maximum(np.diff(whole) / np.diff(counts), 0.0), (whole / till).min())
    bases = (whole[None, :] - slopes[:, None] * till[None, :]).min(axis=1)
    is_below = bases >= -1e-9 * whole[0]
    least: float = (slopes * tokens + bases * full_steps / ranks)[is_below].max()
    return least
