"""Which tensor each operator reads and makes: ids of a trace, which are used again, become values.

An execution trace names a tensor by an id of its object and one of its memory; both are given to
another tensor once the first is gone. So the walk goes through the operators as they ran. What an
operator returns is new, unless it is one of its inputs; a tensor that is read is the one of that
id if memory, place and shape still agree, else the latest that lies at that place with that shape
(autograd hands out what it kept under a new id), else one that was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from foretrace.bench.schema import Recorded, TensorRecord, recorded
from foretrace.bench.tree import Tree, is_operator

NO_NODE = -1


@dataclass
class Storage:
    """What one or several tensors lie in."""

    index: int
    device: str
    is_given: bool  # it was there before the first operator
    num_bytes: int  # as far as tensors of it reach
    values: list[int] = field(default_factory=list)


@dataclass
class Value:
    """One tensor, from where it is first seen on."""

    index: int
    record: TensorRecord
    memory: Storage
    makers: list[int]  # nodes that returned it, innermost first; empty: it was there before


@dataclass(frozen=True)
class OperatorUse:
    """What one operator read and returned; tensors are positions in `Identities.values`."""

    reads: tuple[object, ...]  # `ValueId`, lists of these, or plain values
    returns: tuple[object, ...]


@dataclass(frozen=True)
class ValueId:
    """A value among arguments."""

    index: int


@dataclass(frozen=True)
class Identities:
    """All tensors of a trace and who uses them."""

    values: tuple[Value, ...]
    uses: dict[int, OperatorUse]  # by node


def identities(tree: Tree, topmost: Sequence[int]) -> Identities:
    """Tensors of these operators and everything below them.

    Args:
        tree: the trace.
        topmost: nodes in the order in which they began.
    """
    walk = _Walk(tree)
    for node in topmost:
        walk.visit(node)
    return Identities(tuple(walk.values), walk.uses)


class _Walk:
    """The state of the walk: which ids mean what now."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.values: list[Value] = []
        self.uses: dict[int, OperatorUse] = {}
        self._by_tensor: dict[int, Value] = {}
        self._by_storage: dict[int, Storage] = {}
        self._num_memories = 0

    def visit(self, topmost: int) -> None:
        """Go through one operator and all that it is made of, as they began and ended."""
        stack: list[tuple[int, bool]] = [(topmost, False)]
        began: dict[int, tuple[int, tuple[object, ...]]] = {}
        while stack:
            node, has_ended = stack.pop()
            if has_ended:
                first_new, reads = began.pop(node)
                returns = self._returned(node, reads, first_new=first_new)
                self.uses[node] = OperatorUse(reads, returns)
                continue
            if is_operator(self.tree.nodes[node]):
                reads = tuple(
                    self._read(recorded(argument)) for argument in self.tree.nodes[node].inputs
                )
                began[node] = (len(self.values), reads)
                stack.append((node, True))
            stack.extend((child, False) for child in reversed(self.tree.children(node)))

    def _read(self, value: Recorded) -> object:
        if isinstance(value, TensorRecord):
            return ValueId(self._found(value).index)
        if isinstance(value, list):
            return [self._read(one) for one in value]
        return value

    def _found(self, record: TensorRecord) -> Value:
        known = self._by_tensor.get(record.tensor)
        memory = self._by_storage.get(record.storage)
        if memory is not None and not self._fits(record, memory):
            memory = None
        if known is not None and known.memory is memory and _is_alike(known.record, record):
            return known
        is_empty = 0 in record.shape  # empty tensors of all kinds share one id of memory
        found = self._latest_alike(record, memory) if memory is not None and not is_empty else None
        if found is None:
            memory = None if is_empty else memory
            memory = memory or self._new_memory(record, is_given=True)
            found = self._new(record, memory, maker=NO_NODE)
        self._by_tensor[record.tensor] = found
        return found

    def _latest_alike(self, record: TensorRecord, memory: Storage) -> Value | None:
        """The latest tensor at that place; one that a topmost operator returned goes before."""
        alike = [
            self.values[i]
            for i in reversed(memory.values)
            if _is_alike(self.values[i].record, record)
        ]
        visible = [one for one in alike if not one.makers or self.tree.is_topmost(one.makers[-1])]
        return next(iter(visible or alike), None)

    def _returned(
        self, node: int, reads: tuple[object, ...], *, first_new: int
    ) -> tuple[object, ...]:
        inputs = set(value_indices(reads))
        held = {self.values[i].memory.index for i in inputs}
        outputs = [recorded(argument) for argument in self.tree.nodes[node].outputs]
        made: dict[int, Storage] = {}

        def resolve(value: Recorded) -> object:
            if isinstance(value, list):
                return [resolve(one) for one in value]
            if not isinstance(value, TensorRecord):
                return value
            known = self._by_tensor.get(value.tensor)
            memory = self._by_storage.get(value.storage)
            is_same = (
                known is not None and known.memory is memory and _is_alike(known.record, value)
            )
            if known is not None and is_same and known.index in inputs:
                return ValueId(known.index)
            if known is not None and is_same and known.index >= first_new and known.makers:
                known.makers.append(node)
                return ValueId(known.index)
            is_here = memory is not None and (
                memory.index in held
                or made.get(value.storage) is memory
                or (bool(memory.values) and memory.values[0] >= first_new)
            )
            if memory is None or not is_here or 0 in value.shape:
                memory = self._new_memory(value, is_given=False)
                made[value.storage] = memory
            found = self._new(value, memory, maker=node)
            self._by_tensor[value.tensor] = found
            return ValueId(found.index)

        return tuple(resolve(one) for one in outputs)

    def _fits(self, record: TensorRecord, memory: Storage) -> bool:
        """Whether this memory can be meant: else its id was given to another since."""
        is_inside = memory.is_given or record.end_bytes <= memory.num_bytes
        dtypes = {self.values[i].record.dtype for i in memory.values}
        return is_inside and memory.device == record.device and record.dtype in dtypes

    def _new_memory(self, record: TensorRecord, *, is_given: bool) -> Storage:
        memory = Storage(self._num_memories, record.device, is_given, 0)
        self._num_memories += 1
        self._by_storage[record.storage] = memory
        return memory

    def _new(self, record: TensorRecord, memory: Storage, *, maker: int) -> Value:
        value = Value(len(self.values), record, memory, [] if maker == NO_NODE else [maker])
        memory.values.append(value.index)
        memory.num_bytes = max(memory.num_bytes, record.end_bytes)
        self.values.append(value)
        return value


def value_indices(value: object) -> list[int]:
    """Positions of all values among these arguments, in order."""
    if isinstance(value, ValueId):
        return [value.index]
    if isinstance(value, list | tuple):
        return [index for one in value for index in value_indices(one)]
    return []


def _is_alike(one: TensorRecord, other: TensorRecord) -> bool:
    """Whether two tensors of the same memory are the same cut of it, as far as the trace says."""
    has_strides = one.has_strides and other.has_strides
    return (
        one.shape == other.shape
        and one.offset == other.offset
        and one.dtype == other.dtype
        and (not has_strides or one.strides == other.strides or 0 in one.shape)
    )
