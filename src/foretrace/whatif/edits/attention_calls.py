"""Attention in a recording: fused calls, and products around a softmax over scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Bools, Int64s, ScenarioError, numbered_rows
from foretrace.cost import operation_of
from foretrace.graph import DEVICE_KINDS, ExecutionGraph, NodeKind, operator_classes
from foretrace.operators import (
    AttentionShape,
    OperatorClass,
    attention_shape,
    kernel_family,
    moves_nothing,
    parsed_shapes,
    scores_shape,
)
from foretrace.whatif.edits.fusing import first_of_runs

_WORKING = (*DEVICE_KINDS, NodeKind.OPERATOR)
_REACH = 8  # kernels between a softmax and the products around it: masks, scale, dropout, copies
_CASTS_AT = 20  # kernels between a product and where its operands were widened, masks made
_WIDENED = "fp32"
_NARROW = ("fp16", "bf16")
_CASTING = ("aten::copy_", "aten::_to_copy")
_CAUSAL_MASKS = ("aten::tril", "aten::triu")  # of ones, over scores
_FLOATS = ("fp16", "bf16", "fp32", "fp64")
_NO = ""


@dataclass(frozen=True)
class Kernels:
    """What stands in for a call: calls of operators, each with its signature."""

    name: str
    calls: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FusedCall:
    """One fused call: its kernels in order, and what would stand in for it."""

    nodes: Int64s  # int64[kernels]
    kernels: Kernels


@dataclass(frozen=True)
class PlainCall:
    """Products and a softmax: their kernels in order, and the fused kernel in their place."""

    nodes: Int64s  # int64[kernels]
    kernels: Kernels
    products: Int64s  # int64[products], those among its nodes
    softmax: int
    is_backward: bool


@dataclass(frozen=True)
class _Sizes:
    """Of one call: batch times heads, queries, keys, width of a head, number format."""

    batch: int
    queries: int
    keys: int
    width: int
    dtype: str
    is_causal: bool


def fused_calls(graph: ExecutionGraph, chosen: Bools) -> list[FusedCall]:
    """Every call of fused attention among the chosen kernels.

    Raises:
        ScenarioError: if the shapes of one are not known.
    """
    attention = chosen & _is_attention(graph)
    first = first_of_runs(graph, attention)
    nodes = np.flatnonzero(attention)
    runs: dict[int, list[int]] = {}
    for node in nodes[np.lexsort((nodes, first[nodes]))].tolist():
        runs.setdefault(int(first[node]), []).append(node)
    known = {
        start: sizes
        for start, run in runs.items()
        if (sizes := _fused_sizes(graph, run)) is not None
    }
    of_layer = {(graph.rank[at], graph.layer[at]): each for at, each in known.items()}
    common = set(known.values())
    found = []
    for start, run in runs.items():
        sizes = known.get(start) or of_layer.get((graph.rank[start], graph.layer[start]))
        if sizes is None and len(common) == 1:
            sizes = next(iter(common))
        if sizes is None:
            raise ScenarioError(
                f"the shapes of attention kernel {graph.names[graph.name[start]]!r} were not "
                "recorded: record with record_shapes=True, or state its time with a factor on "
                "family 'attention'."
            )
        found.append(FusedCall(np.array(run), _plain(sizes, is_backward=_is_back(graph, run))))
    return found


def plain_calls(graph: ExecutionGraph, chosen: Bools, *, is_causal: bool | None) -> list[PlainCall]:
    """Every softmax over scores among the chosen kernels, with the products that it stands among.

    Args:
        graph: of any origin.
        chosen: bool[nodes], kernels to look at.
        is_causal: of softmaxes whose name does not tell; `None`: if a mask of ones was cut beside
            one of them.

    PyTorch's own products widen 16-bit operands first: a fused kernel takes them as they were.
    """
    device = _workers(graph)
    calls = _Calls(graph, device)
    found = []
    cuts = [place for place, name in enumerate(graph.names) if name in _CAUSAL_MASKS]
    if is_causal is None:
        is_causal = bool(np.isin(graph.operator[chosen], cuts).any())
    for at, scores in calls.softmaxes(np.flatnonzero(chosen[device])):
        sides = [
            _reached(calls, at, _Looking(way, 2 if scores.is_backward else 1, scores))
            for way in (-1, 1)
        ]
        if None in sides:
            continue
        low, high = (side for side in sides if side is not None)
        nodes = device[low[0] : high[0] + 1]
        sizes = _Sizes(
            batch=scores.batch * max(scores.heads, 1),
            queries=scores.query_length,
            keys=scores.kv_length,
            width=low[1],
            dtype=calls.unwidened(low[0]),
            is_causal=bool(scores.is_causal if scores.is_causal is not None else is_causal),
        )
        found.append(
            PlainCall(
                nodes,
                _fused(sizes, is_backward=scores.is_backward),
                products=nodes[[bool(calls.product(node)) for node in nodes.tolist()]],
                softmax=int(device[at]),
                is_backward=scores.is_backward,
            )
        )
    return found


def _workers(graph: ExecutionGraph) -> Int64s:
    """What works one after the other: operations of devices, else operators of threads."""
    if graph.has_device:
        kinds = (*DEVICE_KINDS, NodeKind.ARRIVE, NodeKind.FINISH)
        return graph.in_lanes(graph.nodes_of(*kinds))
    is_free = np.array([moves_nothing(name) for name in graph.names], np.bool_)
    nodes = graph.nodes_of(NodeKind.OPERATOR)
    return graph.in_lanes(nodes[~is_free[graph.name[nodes]]])


class _Calls:
    """Operators and signatures of nodes, each distinct one read once."""

    def __init__(self, graph: ExecutionGraph, device: Int64s) -> None:
        self.graph = graph
        self.device = device
        columns = (graph.lane, graph.step, graph.part, graph.phase, graph.layer, graph.microbatch)
        self.block = numbered_rows([column[device] for column in columns])
        self.is_working = np.isin(graph.kind[device], _WORKING)
        self._names = (*graph.names, "")  # no operator, or no signature, reads the last
        self._products: dict[tuple[int, int], tuple[int, ...]] = {}

    def softmaxes(self, places: Int64s) -> Iterator[tuple[int, AttentionShape]]:
        """Places in `device` of softmaxes among some, with the scores that each is over."""
        if not len(places):
            return
        node = self.device[places]
        made = numbered_rows((self.graph.operator[node], self.graph.operator_signature[node]))
        _, first = np.unique(made, return_index=True)
        over = [scores_shape(*self._texts(self._key(one))) for one in node[first].tolist()]
        is_over = np.array([scores is not None for scores in over], np.bool_)[made]
        for at, one in zip(places[is_over].tolist(), made[is_over].tolist(), strict=True):
            scores = over[one]
            if scores is not None:
                yield at, scores

    def product(self, node: int) -> tuple[int, ...]:
        """Batch, m, n, k of a node's product; empty if it is none."""
        key = self._key(node)
        if key not in self._products:
            operation = operation_of(*self._texts(key))
            self._products[key] = operation.sizes if operation.model == "gemm" else ()
        return self._products[key]

    def dtype(self, node: int) -> str:
        """Number format of a node's first tensor."""
        return _dtype(self._texts(self._key(node))[1])

    def unwidened(self, at: int) -> str:
        """Number format of a product's operands, before the same block made 32 bits of them."""
        own = self.dtype(int(self.device[at]))
        if own != _WIDENED:
            return own
        for place in range(max(0, at - _CASTS_AT), at):
            operator, signature = self._texts(self._key(int(self.device[place])))
            if operator not in _CASTING or self.block[place] != self.block[at]:
                continue
            formats = _formats(signature)
            if formats[:1] == [own] and formats[1:2] and formats[1] in _NARROW:
                return formats[1]
        return own

    def _key(self, node: int) -> tuple[int, int]:
        return int(self.graph.operator[node]), int(self.graph.operator_signature[node])

    def _texts(self, key: tuple[int, int]) -> tuple[str, str]:
        return self._names[key[0]], self._names[key[1]]


@dataclass(frozen=True)
class _Looking:
    """Where products are looked for, how many, and over which scores."""

    way: int  # -1: before the softmax; 1: after it
    count: int
    scores: AttentionShape


def _reached(calls: _Calls, at: int, looking: _Looking) -> tuple[int, int] | None:
    """Position of the outermost product on one side, and the heads' width; none: not found."""
    missing, block = looking.count, calls.block[at]
    for distance in range(1, _REACH + 1):
        position = at + looking.way * distance
        if not 0 <= position < len(calls.device):
            return None
        if not calls.is_working[position] or calls.block[position] != block:
            return None
        width = _width(calls.product(int(calls.device[position])), looking.scores)
        missing -= width > 0
        if not missing:
            return position, width
    return None


def _width(sizes: tuple[int, ...], scores: AttentionShape) -> int:
    """Width of the heads, if a product has these scores as an operand or result; else 0."""
    if len(sizes) != 4 or sizes[0] != scores.batch * max(scores.heads, 1):  # noqa: PLR2004  b m n k
        return 0
    rest = list(sizes[1:])
    for length in (scores.query_length, scores.kv_length):
        if length not in rest:
            return 0
        rest.remove(length)
    return rest[0]


def _is_attention(graph: ExecutionGraph) -> Bools:
    works = np.flatnonzero(graph.is_device)
    label, names = operator_classes(graph, works)
    mask = np.zeros(graph.num_nodes, np.bool_)
    mask[works] = np.array([one == OperatorClass.ATTENTION for one in names], np.bool_)[label]
    return mask


def _fused_sizes(graph: ExecutionGraph, run: Sequence[int]) -> _Sizes | None:
    for node in run:
        operator, signature = graph.operator[node], graph.operator_signature[node]
        if operator < 0 or signature < 0:
            continue
        shape = attention_shape(graph.names[operator], graph.names[signature])
        if shape is not None:
            return _Sizes(
                batch=shape.batch * shape.heads,
                queries=shape.query_length,
                keys=shape.kv_length,
                width=shape.head_size,
                dtype=_dtype(graph.names[signature]),
                is_causal=bool(shape.is_causal),
            )
    return None


def _is_back(graph: ExecutionGraph, run: Sequence[int]) -> bool:
    """By the kernels' family, or the operator's name where that is general."""
    texts = [
        kernel_family(graph.names[graph.name[node]])
        + (graph.names[graph.operator[node]] if graph.operator[node] >= 0 else "")
        for node in run
    ]
    return any("backward" in text.lower() for text in texts)


def _dtype(signature: str) -> str:
    return next(iter(_formats(signature)), "bf16")


def _formats(signature: str) -> list[str]:
    """Number formats of the tensors of floats that a call takes, in order."""
    shapes = parsed_shapes(signature)
    single = shapes.single if shapes is not None else ()
    return [one.dtype for one in single if one.dtype in _FLOATS]


def _plain(sizes: _Sizes, *, is_backward: bool) -> Kernels:
    """Two products and a softmax; backward two for each product, and the softmax's gradient."""
    batch, queries, keys, width = sizes.batch, sizes.queries, sizes.keys, sizes.width

    def product(m: int, n: int, k: int) -> tuple[str, str]:
        return "aten::bmm", _signature(sizes.dtype, [(batch, m, k), (batch, k, n)])

    scores = (batch, queries, keys)
    if not is_backward:
        softmax = ("aten::_softmax", _signature(sizes.dtype, [scores]))
        calls = (product(queries, keys, width), softmax, product(queries, width, keys))
        return Kernels("attention in products", calls)
    gradient = ("aten::_softmax_backward_data", _signature(sizes.dtype, [scores, scores]))
    return Kernels(
        "attention in products",
        (
            product(keys, width, queries),  # of values
            product(queries, keys, width),  # of probabilities
            gradient,
            product(queries, width, keys),  # of queries
            product(keys, width, queries),  # of keys
        ),
    )


def _fused(sizes: _Sizes, *, is_backward: bool) -> Kernels:
    """One kernel for all heads, each as a sequence of its own: scores do not tell them apart."""
    row = (sizes.batch, sizes.queries, 1, sizes.width)
    column = (sizes.batch, sizes.keys, 1, sizes.width)
    said = [str(sizes.queries), str(sizes.keys), "0.", str(sizes.is_causal), "False"]
    if is_backward:
        tensors = [row, row, column, column, row, None, None, None]
        name = "aten::_flash_attention_backward"
    else:
        tensors = [row, column, column, None, None]
        name = "aten::_flash_attention_forward"
    return Kernels("fused attention", ((name, _signature(sizes.dtype, tensors, said)),))


def _signature(
    dtype: str, tensors: Sequence[tuple[int, ...] | None], values: Sequence[str] = ()
) -> str:
    """JSON text of inputs, as `trace` keeps it."""

    def types() -> Iterator[str]:
        yield from (FORMAT_BY_NAME[dtype].profiled if one is not None else _NO for one in tensors)
        yield from ("Scalar" for _ in values)

    dims = [list(one) if one is not None else [] for one in tensors] + [[] for _ in values]
    inputs = [_NO for _ in tensors] + list(values)
    return json.dumps({"dims": dims, "types": list(types()), "inputs": inputs})
