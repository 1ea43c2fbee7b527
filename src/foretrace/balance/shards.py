"""How the ranks of context parallelism share the attention of packed documents.

By sequence, each microbatch is cut in two pieces for every rank, one from either end, whatever
documents lie there. By document, every document is: ranks then have equal work, of shorter
pieces. The better of the two can be chosen for every microbatch.

Source:
    Wang et al., "WLB-LLM", arXiv:2503.17924, section 5.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from foretrace.balance.work import DocumentWork
from foretrace.base import Float64s, Int64s

_TILE = 128  # query rows that a kernel takes at a time, filled up


class ContextShards(StrEnum):
    """What is cut for the ranks of CONTEXT."""

    BY_SEQUENCE = "sequence"
    BY_DOCUMENT = "document"
    ADAPTIVE = "adaptive"  # whichever is sooner done, for every microbatch


def slowest_attention_ns(
    lengths: Int64s, work: DocumentWork, num_ranks: int, *, shards: ContextShards
) -> float:
    """Attention of the rank that has most of it, in ns.

    Args:
        lengths: int64[documents] of one microbatch, in order.
        work: of a document on all ranks.
        num_ranks: of CONTEXT.
        shards: how it is divided.
    """
    if num_ranks == 1 or not len(lengths):
        return float(work.attention_of(lengths).sum())
    if shards is ContextShards.BY_SEQUENCE:
        return float(_by_sequence(lengths, work, num_ranks).max())
    if shards is ContextShards.BY_DOCUMENT:
        return float(_by_document(lengths, work, num_ranks).max())
    each = (_by_sequence(lengths, work, num_ranks), _by_document(lengths, work, num_ranks))
    return min(float(one.max()) for one in each)


def _by_sequence(lengths: Int64s, work: DocumentWork, num_ranks: int) -> Float64s:
    """Attention of every rank; float64[ranks]."""
    begin = np.concatenate([[0], np.cumsum(lengths)])
    before_ns = np.concatenate([[0.0], np.cumsum(work.attention_of(lengths))])
    cut = np.linspace(0, begin[-1], 2 * num_ranks + 1)
    document = np.minimum(np.searchsorted(begin, cut, side="right") - 1, len(lengths) - 1)
    # A causal mask gives the first tokens of a document the work of a document of that length.
    until_ns = before_ns[document] + work.attention_of(cut - begin[document])
    return _folded(np.diff(until_ns))


def _by_document(lengths: Int64s, work: DocumentWork, num_ranks: int) -> Float64s:
    """Attention of every rank; float64[ranks]."""
    queries = lengths / (2 * num_ranks)
    filled = np.ceil(queries / _TILE) * _TILE / queries
    cut = np.linspace(0, 1, 2 * num_ranks + 1)[:, None] * lengths
    return _folded((np.diff(work.attention_of(cut), axis=0) * filled).sum(axis=1))


def _folded(pieces_ns: Float64s) -> Float64s:
    """Pieces i and 2 * ranks - 1 - i are rank i's."""
    half = len(pieces_ns) // 2
    found: Float64s = pieces_ns[:half] + pieces_ns[half:][::-1]
    return found


def context_places(length: int, num_ranks: int, rank: int, *, offset: int = 0) -> Int64s:
    """Tokens of a document that a rank of CONTEXT works on, without padding; int64[tokens].

    All ranks get as many of every document but for its last few tokens, which are dealt in turn.

    Args:
        length: of the document.
        num_ranks: of CONTEXT.
        rank: which of them.
        offset: tokens dealt in turn so far, over the documents of the microbatch.
    """
    per_piece = length // (2 * num_ranks)
    even = per_piece * 2 * num_ranks
    first = np.arange(rank * per_piece, (rank + 1) * per_piece)
    last = np.arange(even - (rank + 1) * per_piece, even - rank * per_piece)
    rest = np.arange(even, length)
    own = rest[(rest - even + offset) % num_ranks == rank]
    return np.concatenate([first, last, own]).astype(np.int64)
