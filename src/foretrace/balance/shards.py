"""How the ranks of context parallelism share the attention of packed documents.

By sequence, each microbatch is cut in two pieces for every rank, one from either end, whatever
documents lie there. By document, every document is: ranks then have equal work, of shorter
pieces. The better of the two can be chosen for every microbatch. Dynamic context parallelism
divides the ranks into groups of a size that suits the microbatch, and deals documents to them.

Sources:
    Wang et al., "WLB-LLM", arXiv:2503.17924, section 5.
    Megatron-LM pull request 2282 (groups of context parallelism by microbatch).
"""

from __future__ import annotations

from dataclasses import dataclass
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
    DYNAMIC = "dynamic"  # every document, over as many ranks as suit the microbatch


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


@dataclass(frozen=True)
class SlowestRank:
    """The rank of CONTEXT that is last with a microbatch."""

    tokens: float  # times the number of ranks: of the whole microbatch where all have as many
    attention_ns: float
    group: int  # ranks that share its documents


def slowest_rank(
    lengths: Int64s, work: DocumentWork, num_ranks: int, *, shards: ContextShards, longest: int
) -> SlowestRank:
    """The rank that is last with a microbatch.

    Args:
        lengths: int64[documents] of one microbatch, in order.
        work: of a document, on each rank where they share it evenly.
        num_ranks: of CONTEXT.
        shards: how it is divided.
        longest: tokens of the longest microbatch, of which each rank has room for its part.
    """
    if shards is not ContextShards.DYNAMIC or num_ranks == 1:
        plain = shards if shards is not ContextShards.DYNAMIC else ContextShards.BY_DOCUMENT
        attention_ns = slowest_attention_ns(lengths, work, num_ranks, shards=plain)
        return SlowestRank(float(lengths.sum()), attention_ns, num_ranks)
    found = [
        one
        for group in range(1, num_ranks + 1)
        if num_ranks % group == 0
        and (one := _in_groups(lengths, work, num_ranks, group=group, longest=longest))
    ]
    return min(found, key=lambda one: work.token_ns * one.tokens + num_ranks * one.attention_ns)


def _in_groups(
    lengths: Int64s, work: DocumentWork, num_ranks: int, *, group: int, longest: int
) -> SlowestRank | None:
    """Documents dealt to groups of ranks, the longest first; `None` where they do not fit."""
    count = num_ranks // group
    room = max(longest, int(lengths.sum())) // count
    held: list[list[int]] = [[] for _ in range(count)]
    tokens, work_ns = [0] * count, [0.0] * count
    order = np.argsort(-lengths, kind="stable")
    for length, own_ns in zip(lengths[order].tolist(), work.work_of(lengths)[order], strict=True):
        fitting = [at for at in range(count) if tokens[at] + length <= room]
        if not fitting:
            return None
        place = min(fitting, key=work_ns.__getitem__)
        held[place].append(length)
        tokens[place] += length
        work_ns[place] += float(own_ns)
    ranks = [
        SlowestRank(
            count * float(sum(one)),
            slowest_attention_ns(
                np.array(one, np.int64), work, group, shards=ContextShards.BY_DOCUMENT
            ),
            group,
        )
        for one in held
    ]
    return max(ranks, key=lambda one: work.token_ns * one.tokens + num_ranks * one.attention_ns)


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
