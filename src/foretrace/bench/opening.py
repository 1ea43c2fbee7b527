"""Which operators are replayed whole, and which as what they are made of.

An operator is replayed whole unless something made inside it is read by another operator that is
replayed. Then it is opened, if it is composite, and the operators inside it are replayed instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.bench.composite import COMPOSITE
from foretrace.bench.identities import Identities, value_indices
from foretrace.bench.tree import Tree, is_operator


def replayed(tree: Tree, found: Identities, topmost: Sequence[int]) -> tuple[int, ...]:
    """The operators to replay, as they began.

    Args:
        tree: the trace.
        found: its tensors.
        topmost: operators that lie inside no other.
    """
    whole, pending = set(topmost), list(topmost)
    while pending:
        reader = pending.pop()
        if reader not in whole:
            continue
        for index in value_indices(found.uses[reader].reads):
            makers = found.values[index].makers
            while makers and whole.isdisjoint(makers):
                outer = _holder(tree, makers[-1], whole)
                if outer is None or outer == reader or not _is_composite(tree, outer):
                    break
                whole.remove(outer)
                inside = _operators_inside(tree, outer)
                whole.update(inside)
                pending.extend(inside)
    return tuple(sorted(whole))


def _holder(tree: Tree, node: int, whole: set[int]) -> int | None:
    return next((one for one in tree.ancestors(node) if one in whole), None)


def _is_composite(tree: Tree, node: int) -> bool:
    namespace, _, name = tree.nodes[node].name.partition("::")
    return namespace == "aten" and name in COMPOSITE


def _operators_inside(tree: Tree, node: int) -> list[int]:
    """Topmost operators inside this one."""
    found, stack = [], list(tree.children(node))
    while stack:
        one = stack.pop()
        if is_operator(tree.nodes[one]):
            found.append(one)
        else:
            stack.extend(tree.children(one))
    return found
