"""`DocumentWork`: how long ranks work on a document of a microbatch, by its length.

Attention of packed documents sees no other document, so its time grows with the square of each
length; all else goes by tokens. Both come from the cost model's kernels, not from FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import Float64s, Int64s, WorkloadError
from foretrace.cost import CostModel, KernelRequests
from foretrace.operators import OperatorClass, operator_class
from foretrace.workload import Operator, Plan, Transformer, blocks_of_model

_SHORTEST = 16  # tokens; what is shorter takes as long: less than one block of query rows
_NO_TIME_NS = 1e-12  # of attention that takes none, whose logarithm is taken
_PER_DOUBLING = 2  # lengths at which attention is costed


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
