"""What the integers of a tensor must look like: indices in range, offsets that rise.

A trace holds shapes, not values. Values of floating-point tensors hardly matter to speed, but an
index must lie inside what it indexes, and where it points decides what is in a cache. The range is
the recorded one where the trace has it (`tensor_range`), else what the operators allow that read
the tensor, found backwards through those that only move it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foretrace.bench.identities import OperatorUse, Value, ValueId, value_indices
from foretrace.bench.tree import Tree

# Operators whose result holds the integers of their inputs.
_NAMES_OF_MOVES = """
_to_copy _unsafe_view alias as_strided cat chunk clone contiguous copy_ detach expand
expand_as flatten index_select lift_fresh narrow new_empty permute repeat reshape select
slice split split_with_sizes squeeze stack t to transpose unbind unflatten unsqueeze view
view_as
"""
_MOVES = frozenset(_NAMES_OF_MOVES.split())
# Operator: position of the target, position of the scores whose dimension 1 is the classes.
_TARGETS = {
    "cross_entropy_loss": (1, 0),
    "nll_loss": (1, 0),
    "nll_loss_nd": (1, 0),
    "nll_loss2d": (1, 0),
    "nll_loss_forward": (1, 0),
    "nll_loss2d_forward": (1, 0),
    "nll_loss_backward": (2, 1),
    "nll_loss2d_backward": (2, 1),
}
# Operator: positions of the rows' number (of a table, or as a number) and of the indices.
_LOOK_UPS = {
    "embedding": (0, 1),
    "embedding_bag": (0, 1),
    "_embedding_bag": (0, 1),
    "_embedding_bag_forward_only": (0, 1),
}
_LOOK_UP_GRADIENTS = {
    "embedding_backward": (2, 1),
    "embedding_dense_backward": (2, 1),
    "_embedding_bag_backward": (6, 1),
    "_embedding_bag_dense_backward": (5, 1),
}
_NAMES_OF_ALONG_DIMENSION = """
gather scatter scatter_ scatter_add scatter_add_ index_select index_add_ index_fill_
take_along_dim scatter_reduce scatter_reduce_ index_copy_
"""
_ALONG_DIMENSION = frozenset(_NAMES_OF_ALONG_DIMENSION.split())
_BY_LISTS = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
_BAGS = ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
# Operators that need a positive number, and where: a root, a variance, Adam's second moments.
_POSITIVE = {
    "sqrt": 0,
    "sqrt_": 0,
    "rsqrt": 0,
    "log": 0,
    "_foreach_sqrt": 0,
    "batch_norm": 4,
    "_batch_norm_impl_index": 4,
    "native_batch_norm": 4,
    "cudnn_batch_norm": 4,
    "miopen_batch_norm": 4,
    "_fused_adam_": 3,
    "_fused_adamw_": 3,
    "_fused_adagrad_": 2,
}
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


@dataclass(frozen=True)
class IntegerContents:
    """What to fill an integer tensor with."""

    low: int
    high: int  # the greatest value that may occur
    is_offsets: bool = False  # rising from `low` in even steps
    is_recorded: bool = False  # the range was recorded, not concluded
    is_positive: bool = False  # floating-point numbers whose root or logarithm is taken


def contents_of(
    tree: Tree, values: Sequence[Value], uses: Mapping[int, OperatorUse]
) -> dict[int, IntegerContents]:
    """Contents of integer tensors, by position of the value; the others are not listed.

    Args:
        tree: the trace.
        values: its tensors.
        uses: what the replayed operators read and return, in the order in which they began.
    """
    found: dict[int, IntegerContents] = {}
    for node in reversed(list(uses)):
        use, name = uses[node], tree.nodes[node].name.partition("::")[2]
        for index, contents in _demands(name, use, values):
            _narrow(found, index, contents)
        if name in _MOVES:
            moved = [found[one] for one in value_indices(use.returns) if one in found]
            for index in value_indices(use.reads) if moved else ():
                _narrow(found, index, moved[0])
        for index, contents in _recorded(tree.nodes[node].attributes, use):
            if index not in found or not found[index].is_offsets:
                found[index] = contents
    return {
        index: contents
        for index, contents in found.items()
        if contents.is_positive or values[index].record.dtype in _INTEGERS
    }


def _narrow(found: dict[int, IntegerContents], index: int, contents: IntegerContents) -> None:
    known = found.get(index)
    if known is None or (not known.is_recorded and contents.high < known.high):
        found[index] = contents


def _recorded(
    attributes: Mapping[str, object], use: OperatorUse
) -> list[tuple[int, IntegerContents]]:
    """Ranges that the observer noted: text of {position among the inputs: [least, greatest]}."""
    text = attributes.get("tensor_range")
    if not isinstance(text, str) or not text:
        return []
    found = []
    for position, (low, high) in json.loads(text).items():
        value = use.reads[int(position)] if int(position) < len(use.reads) else None
        if isinstance(value, ValueId):
            found.append((value.index, IntegerContents(int(low), int(high), is_recorded=True)))
    return found


def _demands(
    name: str, use: OperatorUse, values: Sequence[Value]
) -> list[tuple[int, IntegerContents]]:
    """What this operator asks of the numbers that it reads."""
    reads = use.reads
    found: list[tuple[int, IntegerContents]] = []
    if name in _POSITIVE:
        wanted = reads[_POSITIVE[name]] if len(reads) > _POSITIVE[name] else None
        found += [(one, IntegerContents(0, 0, is_positive=True)) for one in value_indices(wanted)]
    if name in _TARGETS:
        target, scores = _TARGETS[name]
        shape = _shape(reads, scores, values)
        found += _below(reads, target, shape[1 if len(shape) > 1 else 0] if shape else 1)
    if name in _BAGS:
        found += _offsets(reads, values)
    return found + _indices_demanded(name, reads, values)


def _indices_demanded(
    name: str, reads: Sequence[object], values: Sequence[Value]
) -> list[tuple[int, IntegerContents]]:
    """What an operator asks of indices: that they lie inside what they index."""
    if name in _LOOK_UPS:
        table, indices = _LOOK_UPS[name]
        return _below(reads, indices, (_shape(reads, table, values) or (1,))[0])
    if name in _LOOK_UP_GRADIENTS:
        count, indices = _LOOK_UP_GRADIENTS[name]
        number = reads[count] if count < len(reads) else 1
        return _below(reads, indices, number if isinstance(number, int) else 1)
    shape = _shape(reads, 0, values)
    if name in _ALONG_DIMENSION:
        dimension = reads[1] if len(reads) > 1 and isinstance(reads[1], int) else 0
        return _below(reads, 2, shape[dimension] if shape else 1)
    if name in _BY_LISTS and len(reads) > 1 and isinstance(reads[1], list):
        pairs = zip(reads[1], shape, strict=False)
        return [one for index, size in pairs for one in _below((index,), 0, size)]
    return []


def _below(reads: Sequence[object], position: int, size: int) -> list[tuple[int, IntegerContents]]:
    value = reads[position] if position < len(reads) else None
    return (
        [(value.index, IntegerContents(0, max(size - 1, 0)))] if isinstance(value, ValueId) else []
    )


def _offsets(reads: Sequence[object], values: Sequence[Value]) -> list[tuple[int, IntegerContents]]:
    indices = _shape(reads, 1, values)
    if len(reads) < 3 or not isinstance(reads[2], ValueId) or not indices:  # noqa: PLR2004  third
        return []
    return [(reads[2].index, IntegerContents(0, indices[0], is_offsets=True))]


def _shape(reads: Sequence[object], position: int, values: Sequence[Value]) -> tuple[int, ...]:
    value = reads[position] if position < len(reads) else None
    return values[value.index].record.shape if isinstance(value, ValueId) else ()
