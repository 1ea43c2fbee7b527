"""`DocumentWork`: how long ranks work on a document, and how ranks of CONTEXT share it.

Attention of packed documents sees no other document, so its time grows with the square of each
length; all else goes by tokens. Both come from the cost model's kernels, not from FLOPs.

By sequence, each microbatch is cut in two pieces for every rank, one from either end, whatever
documents lie there. By document, every document is: ranks then have equal work, of shorter
pieces. The better of the two can be chosen for every microbatch. Dynamic context parallelism
divides the ranks into groups of a size that suits the microbatch, and deals documents to them.

Sources:
    Wang et al., "WLB-LLM", arXiv:2503.17924, section 5.
    Megatron-LM pull request 2282 (groups of context parallelism by microbatch).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from foretrace.base import Float64s, Int64s, WorkloadError
from foretrace.cost import CostModel, KernelRequests
from foretrace.operators import OperatorClass, operator_class
from foretrace.workload import Operator, Plan, Transformer, blocks_of_model

_SHORTEST = 16  # tokens; what is shorter takes as long: less than one block of query rows
_NO_TIME_NS = 1e-12  # of attention that takes none, whose logarithm is taken
_PER_DOUBLING = 2  # lengths at which attention is costed

_TILE = 128  # query rows that a kernel takes at a time, filled up


@dataclass(frozen=True, eq=False)
class DocumentWork:
    """Device time of one microbatch's forward and backward pass, summed over layers."""

    window: int  # tokens of the longest document
    length: Int64s  # int64[points], rising
    attention_ns: Float64s  # float64[points], of one document among many that fill the device
    token_ns: float  # of everything else, per token

    def attention_of(self, lengths: Int64s | Float64s) -> Float64s:
        """Attention of documents, float64 of the same shape, in ns; powers between points."""
        known = np.maximum(np.asarray(lengths, np.float64), 1e-9)
        least_ns = np.maximum(self.attention_ns, _NO_TIME_NS)
        found_ns = np.exp(np.interp(np.log(known), np.log(self.length), np.log(least_ns)))
        attention: Float64s = np.where(np.asarray(lengths) > 0, found_ns, 0.0)
        return attention

    def work_of(self, lengths: Int64s) -> Float64s:
        """All work on documents, float64 of the same shape, in ns."""
        return self.attention_of(lengths) + self.token_ns * np.asarray(lengths, np.float64)

    @classmethod
    def of_share(cls, window: int, attention_share: float) -> DocumentWork:
        """Work in parts of a document that fills the window, attention going by the square.

        Args:
            window: tokens of the longest document.
            attention_share: of the work on a document that long, 0 to 1.

        Raises:
            WorkloadError: if the share is none.
        """
        if not 0 <= attention_share <= 1:
            raise WorkloadError(f"attention's share lies between 0 and 1, got {attention_share}")
        length = np.array(_points(window), np.int64)
        attention = attention_share * (length / window) ** 2
        return cls(window, length, attention, (1 - attention_share) / window)

    @classmethod
    def of_measured(cls, window: int, lengths: Int64s, packed_ns: Float64s) -> DocumentWork:
        """Work measured on a window's tokens, cut into documents of each length.

        A token, a document and a pair of tokens each take some time; all but that of tokens
        counts as attention, so that short documents, of which many fill a window, cost what they
        were measured to.

        Args:
            window: tokens of every measurement.
            lengths: int64[lengths] of documents, rising; the last is the window.
            packed_ns: float64[lengths], the time of `window` tokens in documents that long.

        Raises:
            WorkloadError: if lengths do not rise to the window.
        """
        if len(lengths) < 2 or (np.diff(lengths) <= 0).any() or lengths[-1] != window:  # noqa: PLR2004
            raise WorkloadError(
                f"lengths must rise to the window of {window:,} tokens, got {lengths.tolist()}"
            )
        from scipy.optimize import nnls  # on demand: it takes longer to import than a short command

        columns = np.column_stack([np.ones(len(lengths)), window / lengths, lengths / window])
        found, _ = nnls(columns / packed_ns[:, None], np.ones(len(lengths)))
        attention_ns = np.maximum((packed_ns - found[0]) * lengths / window, 0.0)
        return cls(window, lengths, np.maximum.accumulate(attention_ns), float(found[0]) / window)

    @property
    def attention_share(self) -> float:
        """Of the work on one document as long as the window."""
        attention = float(self.attention_of(np.array([self.window]))[0])
        return attention / (attention + self.token_ns * self.window)


def document_work(model: Transformer, plan: Plan, costs: CostModel) -> DocumentWork:
    """Work on documents under a plan.

    Args:
        model: whose attention is fused: written out, it works on masked scores too.
        plan: of which `sequence` is the window; ranks of CONTEXT share all of it evenly here.
        costs: what predicts kernels.

    Raises:
        WorkloadError: for attention that is not fused, or a plan that is not legal.
    """
    _check_documents(model, plan)
    lengths = _points(plan.sequence)
    found = [_kernel_ns(model, plan, costs, length) for length in lengths]
    attention_ns = np.maximum.accumulate([attention for attention, _ in found])
    return DocumentWork(
        plan.sequence, np.array(lengths, np.int64), attention_ns / plan.context,
        found[-1][1] / plan.sequence / plan.context,
    )  # fmt: skip


def _check_documents(model: Transformer, plan: Plan) -> None:
    """Refuse models that see no documents, and attention that these do not change.

    Raises:
        WorkloadError: for an encoder of pictures, or scores that are written out.
    """
    if model.patches is not None:
        raise WorkloadError(f"{model.name} sees pictures, all of one size: leave documents out")
    if plan.implementation.attention == "plain":
        raise WorkloadError(
            "plain attention works out the scores between documents too, so that documents "
            "change no step: state implementation.attention = 'flash' or 'cudnn'"
        )


def _points(window: int) -> list[int]:
    """Lengths up to the window, in equal ratios."""
    shortest = min(_SHORTEST, window)
    count = max(2, _PER_DOUBLING * int(np.ceil(np.log2(window / shortest))) + 1)
    rounded = np.rint(np.geomspace(shortest, window, count)).astype(np.int64)
    return sorted({int(one) for one in rounded})


def _kernel_ns(
    model: Transformer, plan: Plan, costs: CostModel, length: int
) -> tuple[float, float]:
    """Attention of one document of this length, and all other kernels of a window's tokens."""
    count = max(1, plan.sequence // length)
    alone = replace(
        plan,
        context=1, data=1, pipeline=1, num_chunks=1, layers_of_chunk=None, expert=1,
        expert_tensor=None, sequence=length, micro_batch=count, global_batch=count,
        sequence_parallel=plan.sequence_parallel and length % plan.tensor == 0,
        schedule="1f1b", shard_ranks=None,
    )  # fmt: skip
    attention, other = 0.0, 0.0
    counted: dict[int, tuple[float, float]] = {}
    for layer in blocks_of_model(model, alone).layers:
        if id(layer) not in counted:
            items = (*layer.forward.items, *layer.backward.items)
            counted[id(layer)] = _costed([one for one in items if isinstance(one, Operator)], costs)
        attention += counted[id(layer)][0]
        other += counted[id(layer)][1]
    return attention / count, other * plan.sequence / (count * length)


def _costed(operators: list[Operator], costs: CostModel) -> tuple[float, float]:
    """Attention, and all other kernels, in ns."""
    names = tuple(one.name for one in operators)
    place = np.arange(len(operators), dtype=np.int32)
    duration_ns = costs.kernel_costs(
        KernelRequests(
            operator=place,
            signature=place,
            kernel=np.full(len(operators), -1, np.int32),
            operators=names,
            signatures=tuple(one.signature for one in operators),
            kernels=(),
        )
    ).duration_ns
    is_attention = np.array([operator_class("", name) is OperatorClass.ATTENTION for name in names])
    return float(duration_ns[is_attention].sum()), float(duration_ns[~is_attention].sum())


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
