"""Compiled loops of how long a step of an engine takes, by what it works on; they check nothing."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from foretrace.base import Float64s, Int64s, njit

Grids: TypeAlias = tuple[
    tuple[Float64s, Float64s, Float64s],  # decode: sequences, kept tokens; ns
    tuple[Float64s, Float64s, Float64s],  # prefill: tokens, tokens before; ns
    tuple[Float64s, Float64s, Float64s, Float64s, Float64s],  # both at once; ns
]
Times: TypeAlias = tuple[
    Float64s,  # float64[tokens + 1]
    Float64s,  # float64[sequences + 1]
    Float64s,  # float64[tokens of all ranks + 1]
    float,  # unevenness
    Float64s,  # float64[2, 2], of decodes alone and with prefills: a factor, and ns of every step
    Float64s,  # float64[tokens + 1], what the host takes to launch a step; 0: a graph
    Float64s,  # float64[tokens + 1], of the fullest rank: ranks' tokens to experts and back
    Int64s,  # int64[tokens + 1], of the fullest rank: what all are padded to; 0: each has its own
]
Stages: TypeAlias = tuple[
    Float64s,  # float64[stages, 2], each one's share of layers, and of those with experts
    Float64s,  # float64[tokens + 1], the embedding, which the first has; 0 where there is one stage
    Float64s,  # float64[tokens + 1], from a stage to the next
]


@njit
def _cell(axis: Float64s, value: float) -> tuple[int, float]:
    """The cell that holds a value, and how far into it: held below the axis, extended above."""
    above = int(np.searchsorted(axis, value, side="right"))
    at = min(max(above - 1, 0), len(axis) - 2)
    part: float = (value - axis[at]) / (axis[at + 1] - axis[at])
    return at, max(part, 0.0)


@njit
def _between(grid: Float64s, row: int, down: float, column: int, along: float) -> float:
    """A value between four neighbours of a grid."""
    upper = grid[row, column]
    lower = grid[row + 1, column]
    if along > 0:
        upper += along * (grid[row, column + 1] - upper)
        lower += along * (grid[row + 1, column + 1] - lower)
    between: float = upper + down * (lower - upper) if down > 0 else upper
    return between


@njit
def attention_ns(grids: Grids, tokens: float, before: float, decodes: int, kept: float) -> float:
    """Attention of one prefill beside so many decodes of one length, of all layers, in ns."""
    decode, prefill, mixed = grids
    if tokens <= 0 and decodes <= 0:
        return 0.0
    if tokens <= 0:
        row, down = _cell(decode[0], decodes)
        column, along = _cell(decode[1], kept)
        new: float = _between(decode[2], row, down, column, along)
        return new
    if decodes <= 0:
        row, down = _cell(prefill[0], tokens)
        column, along = _cell(prefill[1], before)
        alone: float = _between(prefill[2], row, down, column, along)
        return alone
    a, at_a = _cell(mixed[0], tokens)
    b, at_b = _cell(mixed[1], before)
    row, down = _cell(mixed[2], decodes)
    column, along = _cell(mixed[3], kept)
    values = mixed[4]
    found = 0.0
    for i in range(2):
        for j in range(2):
            weight = (at_a if i else 1 - at_a) * (at_b if j else 1 - at_b)
            if weight != 0:
                found += weight * _between(values[a + i, b + j], row, down, column, along)
    return found


@njit
def batch_attention_ns(grids: Grids, batch: Float64s, unevenness: float) -> float:
    """Attention of a batch, of all layers, in ns.

    `batch` holds prefill tokens, their queries' keys, decodes, their keys, and the longest of
    those. Prefills count as one of as many tokens and as many pairs of query and key.
    """
    tokens, pairs, decodes = batch[0], batch[1], batch[2]
    keys, longest = batch[3], batch[4]
    before = 0.0
    if tokens > 0:
        before = pairs / tokens - tokens / 2
        if before < 0:
            tokens, before = np.sqrt(2 * pairs), 0.0
    if decodes <= 0:
        alone: float = attention_ns(grids, tokens, before, 0, 0.0)
        return alone
    found: float = attention_ns(grids, tokens, before, decodes, keys / decodes)
    if decodes > 1 and unevenness > 0:
        whole = attention_ns(grids, tokens, before, decodes, longest)
        found += unevenness * max(whole - found, 0.0)
    return found


@njit
def step_ns(grids: Grids, times: Times, stages: Stages, stage: int, batches: Float64s) -> int:
    """How long a step of all ranks takes in a stage, in ns; each row of `batches` is a rank's.

    Beside what `batch_attention_ns` takes a row holds sequences and the tokens of decodes.
    """
    token_ns, sequence_ns, shared_ns, unevenness, kinds, host_ns, sent_ns, padded = times
    shares, embedding_ns, _ = stages
    slowest, in_all, widest = 0.0, 0.0, 0
    is_mixed = False
    for rank in range(len(batches)):
        is_mixed |= batches[rank, 0] > 0
        widest = max(widest, int(batches[rank, 0] + batches[rank, 6]))
    for rank in range(len(batches)):
        batch = batches[rank, :5]
        in_all += batch[0] + batches[rank, 6]
        own = shares[stage, 0] * batch_attention_ns(grids, batch, unevenness)
        if stage == len(shares) - 1:
            own += sequence_ns[int(batches[rank, 5])]
        slowest = max(slowest, own)
    together = int(in_all)
    if len(batches) > 1 and padded[widest] > 0:
        together = len(batches) * padded[widest]
    first = embedding_ns[widest]
    layers = shares[stage, 0] * (token_ns[widest] - first)
    if stage == 0:
        layers += first
    slowest += layers + shares[stage, 1] * (shared_ns[together] + sent_ns[widest])
    slowest = max(slowest, shares[stage, 0] * host_ns[widest])
    factor, every = kinds[1 if is_mixed else 0]
    return int(slowest * factor + every + 0.5)


@njit
def steps_ns_into(
    grids: Grids, times: Times, stages: Stages, batches: Float64s, out: Int64s
) -> None:
    """How long each of many steps takes in each stage; out: int64[steps, stages], in ns.

    `batches` is float64[steps, ranks, 7].
    """
    for step in range(len(batches)):
        for stage in range(out.shape[1]):
            out[step, stage] = step_ns(grids, times, stages, stage, batches[step])
