"""Passes that follow each other with nothing between: generated tokens, or accumulated batches.

Each begins by embedding its inputs. Work between two embeddings is a pass if what follows the
next one is the same work again; an encoder and a decoder, which embed too, do different work.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from foretrace.base import Bools, Int32s, Int64s

MIN_ALIKE = 0.8  # of the operators of the longer of two passes are in the other too
_FAR = 0.5  # of the longest way between two embeddings: nearer ones embed the same inputs


def pass_begins(token: Int32s, is_embedding: Bools, group: Int64s, is_forward: Bools) -> Bools:
    """Points at which the same forward work begins again within a group.

    Args:
        token: what each point does.
        is_embedding: points that embed.
        group: of each point; groups follow each other.
        is_forward: points of forward work.
    """
    begins = np.zeros(len(token), np.bool_)
    rows = np.flatnonzero(is_forward)
    embeds = np.flatnonzero(is_embedding & is_forward)
    if not len(embeds):
        return begins
    groups, count = np.unique(group[embeds], return_counts=True)
    low = np.searchsorted(group[rows], groups, side="left")
    high = np.searchsorted(group[rows], groups, side="right")
    for first, last, number in zip(low.tolist(), high.tolist(), count.tolist(), strict=True):
        if number > 1:
            inside = rows[first:last]
            starts = _starts(np.flatnonzero(is_embedding[inside]))
            if _are_alike(token[inside], starts):
                begins[inside[starts[1:]]] = True
    return begins


def _starts(places: Int64s) -> Int64s:
    """The first of embeddings that stand together."""
    ways = np.diff(places)
    is_far = ways > _FAR * ways.max()
    starts: Int64s = places[np.append(True, is_far)]
    return starts


def _are_alike(token: Int32s, starts: Int64s) -> bool:
    """Whether what follows each start, up to the next, is the same work."""
    pieces = [Counter(piece.tolist()) for piece in np.split(token, starts)[1:]]
    if len(pieces) == 1:
        return False
    return all(
        (one & other).total() >= MIN_ALIKE * max(one.total(), other.total())
        for one, other in pairwise(pieces)
    )
