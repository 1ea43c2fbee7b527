"""Scores of attention: fused or plain, whole or in pieces over the ranks of CONTEXT.

Context parallelism leaves a rank two pieces of each sequence, one from either end, so that a
causal mask gives all ranks the same work (Llama 3, arXiv:2407.21783, section 3.3.2). Keys and
values are gathered once a layer, or passed on round by round (arXiv:2310.01889).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.base import WorkloadError
from foretrace.operators import Tensor
from foretrace.workload.blocks.block import Item, Operator
from foretrace.workload.blocks.calls import cast, elementwise, fused, gathered_copy, softmax
from foretrace.workload.blocks.linear import placed
from foretrace.workload.blocks.pointwise import soft_cap_step
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import PICKED_ATTENTION, OperatorCall, array, call
from foretrace.workload.blocks.steps import Items, Step, operator
from foretrace.workload.exchanges.activations import heads_for_tokens, passed_on, whole_keys
from foretrace.workload.exchanges.exchange import Turn
from foretrace.workload.models.flops import Convention, mean_keys
from foretrace.workload.models.recompute import RecomputeModule
from foretrace.workload.models.transformer import Reach, ReachKind
from foretrace.workload.plan.plan import ContextExchange

_WIDE = "fp32"
_KINDS = ("flash", "cudnn", "plain")
_SCORES = frozenset({RecomputeModule.CORE_ATTENTION})


@dataclass(frozen=True)
class _Piece:
    """One call of attention."""

    batch: int
    queries: int  # per sequence
    keys: int
    is_causal: bool  # the last query sees the last key


@dataclass(frozen=True)
class _Heads:
    """Heads on this rank."""

    setting: Setting
    count: int
    keys: int  # heads of keys
    score_size: int  # numbers of a query and a key
    value_size: int
    is_picked: bool = False  # an indexer picks which keys are seen

    @property
    def dtype(self) -> str:
        """Of queries, keys and values."""
        return self.setting.made

    @property
    def multiplied(self) -> str:
        """Of the same, as attention's kernel takes them."""
        return self.setting.plan.precision.attention or self.dtype

    @property
    def width(self) -> int:
        """Of the keys and values of one token."""
        return self.keys * (self.score_size + self.value_size)


def scores_step(setting: Setting, count: int, reach: Reach | None) -> Step:
    """Queries against keys, softmax, and values; both ways.

    Raises:
        WorkloadError: for an implementation of attention that blocks do not know.
    """
    implementation = setting.plan.implementation
    if implementation.attention not in _KINDS:
        raise WorkloadError(
            f"attention {implementation.attention!r} is not known: under [implementation] it is "
            f"one of {', '.join(_KINDS)}"
        )
    attention = setting.model.attention
    is_spread = attention.latent is not None or implementation.repeats_keys
    keys = count if is_spread else setting.key_heads
    heads = _Heads(setting, count, keys, attention.score_size, attention.value_size)
    if attention.indexer is not None and implementation.attention != "plain":
        picked = attention.indexer.reach
        if setting.picks_latents:
            heads, reach = _of_latents(heads), picked
        if setting.plan.context > 1:
            return _gathered(heads, reach)
    if implementation.attention == "plain":
        return _plain(heads)
    if setting.plan.context == 1:
        return _step(heads, _pieces(setting, reach))
    if setting.plan.context_exchange is ContextExchange.ALL_TO_ALL:
        return _by_heads(heads, reach)
    is_whole = reach is None or reach.num_tokens >= setting.plan.sequence
    if setting.plan.context_exchange is ContextExchange.RING and is_whole:
        return _ring(heads)
    return _gathered(heads, reach if not is_whole else None)


def _of_latents(heads: _Heads) -> _Heads:
    """The same queries in the latents' space, whose latents all heads share."""
    latent = heads.setting.model.attention.latent
    if latent is None:
        return heads
    size = latent.rank + latent.rotary_size
    return replace(heads, keys=1, score_size=size, value_size=latent.rank, is_picked=True)


def _pieces(setting: Setting, reach: Reach | None) -> tuple[_Piece, ...]:
    """Calls on whole sequences: one, unless chunks do not divide them."""
    batch, length = setting.plan.micro_batch, setting.plan.sequence
    if reach is None or reach.num_tokens >= length:
        is_causal = setting.model.patches is None
        return (_Piece(batch, length, length, is_causal=is_causal),)
    if reach.kind is ReachKind.WINDOW:
        return (_windowed(setting, reach, length),)
    limit = reach.num_tokens
    num_chunks, rest = divmod(length, limit)
    found = [_Piece(batch * num_chunks, limit, limit, is_causal=True)]
    if rest:
        found.append(_Piece(batch, rest, rest, is_causal=True))
    return tuple(found)


def _windowed(setting: Setting, reach: Reach, queries: int) -> _Piece:
    """As many keys as a query sees on average: no operator's shapes tell of a window."""
    keys = mean_keys(setting.plan.sequence, reach, Convention.CAUSAL)
    return _Piece(setting.plan.micro_batch, queries, max(1, round(keys)), is_causal=False)


def _step(heads: _Heads, pieces: tuple[_Piece, ...]) -> Step:
    both = [_calls(heads, piece) for piece in pieces]
    quantised, gradient_quantised = _quantised(heads)
    return Step(
        (*quantised, *(operator("attention", forward) for forward, _ in both)),
        (
            *gradient_quantised,
            *(operator("attention gradient", backward) for _, backward in both),
        ),
        modules=_SCORES,
    )


def _quantised(heads: _Heads) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """Queries, keys and values, and backwards the result's gradient, in attention's own format.

    Source:
        NVIDIA/TransformerEngine, transformer_engine/pytorch/attention, `fp8_dpa`.
    """
    setting = heads.setting
    if heads.multiplied == heads.dtype:
        return (), ()
    tokens = setting.tokens
    results = heads.count * heads.value_size
    given = heads.count * heads.score_size + heads.width
    forward, backward = (
        operator(
            f"{what} in {heads.multiplied}", cast((tokens, width), heads.dtype, heads.multiplied)
        )
        for what, width in (("queries, keys, values", given), ("result's gradient", results))
    )
    return (forward,), (backward,)


def _calls(heads: _Heads, piece: _Piece) -> tuple[OperatorCall, OperatorCall]:
    """Forward and backward operator.

    PyTorch's own align a mask at the first query and key, flash-attention's at the last; cuDNN
    can do either, so that the latter's name stands for it too.
    """
    if piece.is_causal and piece.queries != piece.keys:
        return _aligned_at_the_end(heads, piece)
    if heads.setting.plan.implementation.attention == "cudnn" and not heads.is_picked:
        return _by_cudnn(heads, piece)
    query, key, value, out = _tensors(heads, piece, is_heads_second=False)
    statistics = array((piece.batch, heads.count, piece.queries), _WIDE)
    name, no = PICKED_ATTENTION if heads.is_picked else "aten::_flash_attention", None
    said = (no, no, str(piece.queries), str(piece.keys), "0.", str(piece.is_causal), "False")
    return (
        call(f"{name}_forward", query, key, value, *said),
        call(f"{name}_backward", out, query, key, value, out, statistics, *said),
    )


def _by_cudnn(heads: _Heads, piece: _Piece) -> tuple[OperatorCall, OperatorCall]:
    name, no = "aten::_scaled_dot_product_cudnn_attention", None
    query, key, value, out = _tensors(heads, piece, is_heads_second=True)
    statistics = array((piece.batch, heads.count, piece.queries, 1), _WIDE)
    causal, lengths = str(piece.is_causal), (str(piece.queries), str(piece.keys))
    given = (out, query, key, value, out, statistics, no, no, no, no, no)
    return (
        call(name, query, key, value, no, "True", "0.", causal, "False"),
        call(f"{name}_backward", *given, *lengths, "0.", causal),
    )


def _aligned_at_the_end(heads: _Heads, piece: _Piece) -> tuple[OperatorCall, OperatorCall]:
    query, key, value, out = _tensors(heads, piece, is_heads_second=False)
    statistics = array((piece.batch, heads.count, piece.queries), _WIDE)
    given = (out, query, key, value, out, statistics, query, key, value)
    name = "flash_attn::_flash_attn"
    return (
        call(f"{name}_forward", query, key, value, "0.", "1.", "True"),
        call(f"{name}_backward", *given, "0.", "1.", "True"),
    )


def _tensors(
    heads: _Heads, piece: _Piece, *, is_heads_second: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values and the result."""
    dtype, scores, values = heads.multiplied, heads.score_size, heads.value_size

    def one(count: int, length: int, size: int) -> Tensor:
        middle = (count, length) if is_heads_second else (length, count)
        return array((piece.batch, *middle, size), dtype)

    return (
        one(heads.count, piece.queries, scores),
        one(heads.keys, piece.keys, scores),
        one(heads.keys, piece.keys, values),
        one(heads.count, piece.queries, values),
    )


def _gathered(heads: _Heads, reach: Reach | None) -> Step:
    """Keys and values of all ranks first: forward, and once more before the backward pass."""
    setting = heads.setting
    plan = setting.plan
    half = setting.length // 2
    if reach is not None:
        pieces: tuple[_Piece, ...] = (_windowed(setting, reach, setting.length),)
    else:
        # The first rank's pieces; every rank's have as many pairs of query and key in all.
        pieces = (
            _Piece(plan.micro_batch, half, half, is_causal=True),
            _Piece(plan.micro_batch, half, plan.sequence, is_causal=True),
        )
    gathered, scattered = whole_keys(plan, heads.width)
    ordered = _in_order(heads, "keys and values in order")
    step = _step(heads, pieces)
    return replace(
        step,
        forward=(gathered, replace(ordered, after=(-1,)), *step.forward),
        backward=(
            gathered,
            replace(ordered, after=(-1,)),
            *step.backward,
            _in_order(heads, "key and value gradients in order"),
            scattered,
        ),
    )


def _by_heads(heads: _Heads, reach: Reach | None) -> Step:
    """Each rank attends with some of the heads over whole sequences; few keys are copied."""
    ranks = heads.setting.plan.context
    keys = max(heads.keys, ranks)
    given = heads.count * heads.score_size + replace(heads, keys=keys).width
    results = heads.count * heads.value_size
    own = replace(heads, count=heads.count // ranks, keys=keys // ranks)
    step = _step(own, _pieces(heads.setting, reach))
    around = heads_for_tokens(heads.setting.plan, given, results)
    return replace(
        step,
        forward=placed({Turn.FORWARD: step.forward}, around),
        backward=placed({Turn.INPUT_GRADIENT: step.backward}, around),
    )


def _in_order(heads: _Heads, label: str) -> Operator:
    """Pieces from either end of a sequence change places."""
    plan = heads.setting.plan
    shape = (plan.micro_batch * plan.sequence, heads.width)
    return operator(label, fused(shape, heads.setting.made, reads=1))


def _ring(heads: _Heads) -> Step:
    """Round by round: a rank's keys and values go on to its neighbour while it works on them.

    The first round is causal; in each later one half of the pairs is masked: all queries against
    the first half of the keys, or the second half of the queries against all.
    """
    setting = heads.setting
    batch, length = setting.plan.micro_batch, setting.length
    first = _calls(heads, _Piece(batch, length, length, is_causal=True))
    later = _calls(heads, _Piece(batch, length, length // 2, is_causal=False))
    rounds = [first, *([later] * (setting.plan.context - 1))]
    return Step(
        _ring_forward(heads, [forward for forward, _ in rounds]),
        _ring_backward(heads, [backward for _, backward in rounds]),
        modules=_SCORES,
    )


class _Row(list[Item]):
    """Items of a step that refer to each other by position in it."""

    def add(self, item: Item, *after: int) -> int:
        """Appends an item that waits for those at these positions; its own position."""
        at = len(self)
        self.append(replace(item, after=tuple(one - at for one in after)))
        return at


def _ring_forward(heads: _Heads, calls: list[OperatorCall]) -> Items:
    setting = heads.setting
    shape = (setting.tokens, heads.count * heads.value_size)
    keys, _ = passed_on(setting.plan, heads.width)
    merged = operator("sum of rounds", fused(shape, heads.dtype, reads=2))
    row = _Row()
    passed: int | None = None
    for at, one in enumerate(calls):
        arrived = () if passed is None else (passed,)
        if at + 1 < len(calls) and setting.plan.overlap.context:
            passed = row.add(keys, *arrived)
        row.add(operator("attention", one), *arrived)
        if at:
            row.add(merged)
        if at + 1 < len(calls) and not setting.plan.overlap.context:
            passed = row.add(keys, len(row) - 1)
    return tuple(row)


def _ring_backward(heads: _Heads, calls: list[OperatorCall]) -> Items:
    setting = heads.setting
    summed = operator(
        "sum of key and value gradients",
        elementwise("aten::add", (setting.tokens, heads.width), setting.made, reads=2),
    )
    keys, gradients = passed_on(setting.plan, heads.width)
    row = _Row()
    is_beside = setting.plan.overlap.context
    passed: int | None = None
    returned: int | None = None
    for at, one in enumerate(calls):
        arrived = () if passed is None else (passed,)
        if at + 1 < len(calls) and is_beside:
            passed = row.add(keys, *arrived)
        waits = arrived if is_beside or returned is None else (*arrived, returned)
        row.add(operator("attention gradient", one), *waits)
        if returned is not None:
            row.add(summed, returned)
        returned = row.add(gradients, len(row) - 1)
        if at + 1 < len(calls) and not is_beside:
            passed = row.add(keys, len(row) - 2)
    return tuple(row)


def _plain(heads: _Heads) -> Step:
    """Scores in memory: two products and a masked softmax, whose scale and mask are its own.

    Source:
        NVIDIA/Megatron-LM, megatron/core/transformer/dot_product_attention.py.
    """
    setting = heads.setting
    attention, plan, dtype = setting.model.attention, setting.plan, heads.dtype
    if plan.context > 1:
        raise WorkloadError(
            f"plain attention needs whole sequences, found cp {plan.context}: take "
            "implementation.attention 'flash', or cp 1"
        )
    batch, length = plan.micro_batch * heads.count, plan.sequence
    queries = array((batch, length, heads.score_size), dtype)
    turned = array((batch, heads.score_size, length), dtype)
    shape = (batch, length, length)
    scores = array(shape, dtype)
    values = array((batch, length, heads.value_size), dtype)
    turned_values = array((batch, heads.value_size, length), dtype)
    is_causal = setting.model.patches is None
    name = "ScaledUpperTriangMaskedSoftmax" if is_causal else "ScaledSoftmax"
    masked = softmax(name, shape, dtype)
    gradient = softmax("aten::_softmax_backward_data", shape, dtype, reads=2)
    # Results of heads are brought side by side, token by token; their gradients back.
    rows = (plan.micro_batch * length * heads.count, heads.value_size)
    moved = gathered_copy(rows, dtype, row_stride=heads.count * heads.value_size)
    cap = soft_cap_step(setting, "scores", shape) if attention.has_soft_cap else Step()
    return Step(
        (
            operator("scores", call("aten::bmm", queries, turned)),
            *cap.forward,
            operator("softmax", masked),
            operator("weighted values", call("aten::bmm", scores, values)),
            operator("heads side by side", moved),
        ),
        (
            operator("gradients by head", moved),
            operator("score gradient", call("aten::bmm", values, turned_values)),
            operator("value gradient", call("aten::bmm", scores, values)),
            operator("softmax gradient", gradient),
            *cap.backward,
            operator("query gradient", call("aten::bmm", scores, queries)),
            operator("key gradient", call("aten::bmm", scores, queries)),
        ),
        modules=_SCORES,
    )
