"""Collectives of a trace, as calls of `torch.distributed`.

`c10d` operators take their process group and reduction as objects, which a trace does not hold:
their tensors are taken from the operator, the group from the `record_param_comms` inside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from foretrace.answer import count_text
from foretrace.base import TraceError
from foretrace.bench.tree import Tree
from foretrace.trace import ExecutionNode

NAMESPACE = "c10d"
DEFAULT_GROUP = "0"
_GROUP_INIT = "## process_group:init ##"
_COMMUNICATION = "record_param_comms"


@dataclass(frozen=True)
class ProgramCollective:
    """One communication: which function of `Communication` in the program, on what."""

    function: str  # "all_reduce"
    arguments: tuple[object, ...]  # values, lists of these, numbers
    group: str


@dataclass(frozen=True)
class DescribedGroup:
    """A process group as the trace describes it."""

    name: str
    ranks: tuple[int, ...]  # empty: all of the job
    size: int


def _one(reads: Sequence[object], position: int) -> object:
    value = reads[position]
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _in_place(name: str, *numbers: int) -> Callable[[Sequence[object]], tuple[str, list[object]]]:
    """Of operators that work on a list of tensors in place; `numbers`: of root, peer or tag."""
    return lambda reads: (name, [reads[0], *(reads[i] for i in numbers)])


def _two(name: str, *numbers: int) -> Callable[[Sequence[object]], tuple[str, list[object]]]:
    """Of operators with an output and an input."""
    return lambda reads: (name, [_one(reads, 0), _one(reads, 1), *(reads[i] for i in numbers)])


_FUNCTIONS: dict[str, Callable[[Sequence[object]], tuple[str, list[object]]]] = {
    "allreduce_": _in_place("all_reduce"),
    "allreduce_coalesced_": _in_place("all_reduce"),
    "broadcast_": _in_place("broadcast", 2),
    "reduce_": _in_place("reduce", 3),
    "send": _in_place("send", 2),
    "recv_": _in_place("receive", 2),
    "recv_any_source_": _in_place("receive"),
    "allgather_": _two("all_gather"),
    "_allgather_base_": _two("all_gather_into"),
    "allgather_into_tensor_coalesced_": _two("all_gather_into"),
    "reduce_scatter_": _two("reduce_scatter"),
    "_reduce_scatter_base_": _two("reduce_scatter_into"),
    "reduce_scatter_tensor_coalesced_": _two("reduce_scatter_into"),
    "alltoall_": _two("all_to_all"),
    "alltoall_base_": _two("all_to_all_into", 3, 4),
    "barrier": lambda _: ("barrier", []),
}


def is_collective(name: str) -> bool:
    """Whether an operator of this name communicates."""
    namespace, _, operator = name.partition("::")
    return namespace == NAMESPACE and operator in _FUNCTIONS


def collective_of(tree: Tree, node: int, reads: Sequence[object]) -> ProgramCollective:
    """The call that stands for a collective of the trace.

    Args:
        tree: the trace.
        node: the collective's operator.
        reads: its arguments.

    Raises:
        TraceError: if it has fewer arguments than the call takes.
    """
    name = tree.nodes[node].name
    try:
        function, arguments = _FUNCTIONS[name.partition("::")[2]](reads)
    except IndexError as err:
        raise TraceError(
            f"node {node} ({name}) has {count_text(len(reads), 'argument')}, fewer than the call "
            "takes: the file is damaged, record it again"
        ) from err
    return ProgramCollective(function, tuple(arguments), _group(tree, node))


def _group(tree: Tree, node: int) -> str:
    for one in tree.below(node):
        inside = tree.nodes[one]
        if inside.name == _COMMUNICATION:
            name = inside.attributes.get("pg_name") or _name_among(inside)
            if isinstance(name, str) and name:
                return name
    return DEFAULT_GROUP


def _name_among(node: ExecutionNode) -> object:
    """The group's name among the inputs, where schema 1.0.3 and later have it in a pair."""
    pairs = (one.value for one in node.inputs if one.type.startswith("Tuple["))
    return next((pair[0] for pair in pairs if isinstance(pair, list) and pair), None)


def groups_of(tree: Tree) -> tuple[DescribedGroup, ...]:
    """Process groups that the trace describes."""
    for node in tree.nodes.values():
        if node.name == _GROUP_INIT and node.inputs and isinstance(node.inputs[0].value, str):
            return tuple(_described(each) for each in json.loads(node.inputs[0].value))
    return ()


def _described(entry: Mapping[str, object]) -> DescribedGroup:
    ranks = entry.get("ranks")
    listed = tuple(one for one in ranks if isinstance(one, int)) if isinstance(ranks, list) else ()
    size = entry.get("group_size")
    return DescribedGroup(
        str(entry.get("pg_name", DEFAULT_GROUP)),
        listed,
        size if isinstance(size, int) else len(listed),
    )
