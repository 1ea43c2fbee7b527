"""The one layer of every pipeline stage: where each stage has one alone, nothing repeats in a rank.

What all stages have in common is then the layer: the longest sequence of tokens that stands in
passes of all of them, from its first normalisation on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

import numpy as np

from foretrace.base import Int32s, Int64s
from foretrace.graph.blocks.repetition import ATTENTION, NORMALISATION, Unit

_MAX_TOKENS = 20_000  # of a pass: the search takes time in its square
_NOTHING = np.zeros(0, np.int32)


def common_layer(
    tokens: Sequence[Int32s], stage_of_pass: Sequence[int], names: Sequence[str]
) -> Int32s:
    """The tokens of the layer that passes of all stages share; empty where they share none.

    Args:
        tokens: of every pass.
        stage_of_pass: pipeline stage that each pass ran on.
        names: what tokens are called; a layer normalises and attends.
    """
    usual: list[Int32s] = []
    for stage in sorted(set(stage_of_pass)):
        own = [each for each, at in zip(tokens, stage_of_pass, strict=True) if at == stage]
        text = Counter(each.tobytes() for each in own).most_common(1)[0][0]
        usual.append(np.frombuffer(text, np.int32))
    if len(usual) <= 1 or max(map(len, usual)) > _MAX_TOKENS:
        return _NOTHING
    shared = reduce(_longest_common, usual)
    called = [names[token] for token in shared.tolist()]
    begins = [at for at, name in enumerate(called) if NORMALISATION.search(name)]
    if not begins or not any(ATTENTION.search(name) for name in called[begins[0] :]):
        return _NOTHING
    return shared[begins[0] :]


def place_of(layer: Int32s, tokens: Int32s) -> tuple[Unit, ...]:
    """Where a pass runs the layer first; empty if it does not."""
    if not 0 < len(layer) <= len(tokens):
        return ()
    windows = np.lib.stride_tricks.sliding_window_view(tokens, len(layer))
    found = np.flatnonzero((windows == layer).all(axis=1))[:1].tolist()
    return tuple(Unit(at, at + len(layer) - 1, 0) for at in found)


def _longest_common(one: Int32s, other: Int32s) -> Int32s:
    """The longest run of tokens that stands in both; the first of several."""
    lengths: Int64s = np.zeros(len(other) + 1, np.int64)
    longest, end = 0, 0
    for at, token in enumerate(one.tolist()):
        lengths[1:] = np.where(other == token, lengths[:-1] + 1, 0)
        best = int(lengths.max())
        if best > longest:
            longest, end = best, at + 1
    return one[end - longest : end]
