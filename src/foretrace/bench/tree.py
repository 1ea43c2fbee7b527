"""The tree of an execution trace: who ran inside whom, and where steps and labels lie."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from foretrace.base import TraceError
from foretrace.trace import STEP_MARK, ExecutionNode

# Wrappers of functional collectives: the collective inside of them is what is replayed.
_WRAPPERS = ("_c10d_functional::", "c10d_functional::")


@dataclass(frozen=True)
class Tree:
    """Nodes by id with their children."""

    nodes: dict[int, ExecutionNode]
    _children: dict[int, list[int]]
    _topmost: frozenset[int]

    def children(self, node: int) -> Sequence[int]:
        """Nodes directly inside, in the order in which they began."""
        return self._children.get(node, ())

    def is_topmost(self, node: int) -> bool:
        """Whether it is an operator inside of no other."""
        return node in self._topmost

    def ancestors(self, node: int) -> Iterator[int]:
        """Nodes around it, innermost first."""
        parent = self.nodes[node].parent
        while parent in self.nodes and parent != node:
            yield parent
            node, parent = parent, self.nodes[parent].parent

    def below(self, node: int) -> Iterator[int]:
        """Nodes inside it, at any depth, as they began."""
        stack = list(reversed(self.children(node)))
        while stack:
            one = stack.pop()
            yield one
            stack.extend(reversed(self.children(one)))


def tree_of(nodes: Sequence[ExecutionNode]) -> Tree:
    """The tree of these nodes.

    Args:
        nodes: in the order of the file, which is the order in which they ended.

    Raises:
        TraceError: if a node lies inside itself.
    """
    _refuse_circles({node.id: node.parent for node in nodes})
    by_id = {node.id: node for node in sorted(_with_parents(nodes), key=lambda node: node.id)}
    children: dict[int, list[int]] = {}
    for node in by_id.values():
        if node.parent != node.id:
            children.setdefault(node.parent, []).append(node.id)
    topmost = set(_topmost(by_id, children))
    ended = {node.id: i for i, node in enumerate(nodes)}
    return Tree(by_id, children, frozenset(topmost - _of_workers(by_id, topmost, ended)))


def _refuse_circles(parent_of: dict[int, int]) -> None:
    """Each node's parents are followed once, to the root or to one that was followed before."""
    seen: dict[int, int] = {}  # node: from which one it was first reached
    for start in parent_of:
        node = start
        while node in parent_of and node not in seen:
            seen[node] = start
            if parent_of[node] == node:  # a root
                break
            node = parent_of[node]
        else:
            if seen.get(node) == start and parent_of[node] != node:
                raise TraceError(
                    f"node {node} of the execution trace lies inside itself, where nodes inside "
                    "of one another are expected: record it again"
                )


def _of_workers(
    nodes: dict[int, ExecutionNode], topmost: set[int], ended: dict[int, int]
) -> set[int]:
    """Operators of threads that only help: each ran while one of another thread did.

    A CPU kernel that allocates on its worker threads is seen so.
    """
    by_thread: dict[int, list[int]] = {}
    for node in sorted(topmost):
        by_thread.setdefault(_root(nodes, node), []).append(node)
    found: set[int] = set()
    for thread, ours in by_thread.items():
        others = [each for other, each in by_thread.items() if other != thread]
        if all(any(_is_during(one, each, ended) for each in others) for one in ours):
            found.update(ours)
    return found


def _root(nodes: dict[int, ExecutionNode], node: int) -> int:
    """The thread that a node ran on."""
    while nodes[node].parent in nodes and nodes[nodes[node].parent].parent != nodes[node].parent:
        node = nodes[node].parent
    return node


def _is_during(node: int, others: list[int], ended: dict[int, int]) -> bool:
    at = bisect_left(others, node) - 1
    return at >= 0 and ended[others[at]] > ended[node]


def _with_parents(nodes: Sequence[ExecutionNode]) -> Iterator[ExecutionNode]:
    """The nodes with the parents that they ran inside of.

    A node that ended after an operator did not run inside of it, whatever the file says: marks of
    gloo's threads, seen with PyTorch 2.13, leave an operator on the observer's stack that ended.
    """
    by_id = {node.id: node for node in nodes}
    ended = {node.id: i for i, node in enumerate(nodes)}
    for node in nodes:
        parent = node.parent
        while parent in by_id and by_id[parent].schema and ended[parent] < ended[node.id]:
            parent = by_id[parent].parent
        yield node if parent == node.parent else replace(node, parent=parent)


def is_operator(node: ExecutionNode) -> bool:
    """Whether a replay calls it: it has a schema, or is a generated kernel."""
    return (bool(node.schema) and not node.name.startswith(_WRAPPERS)) or node.attributes.get(
        "kernel_backend"
    ) == "triton"


def _topmost(nodes: dict[int, ExecutionNode], children: dict[int, list[int]]) -> Iterator[int]:
    roots = [one for one, node in nodes.items() if node.parent not in nodes or node.parent == one]
    stack = list(roots)
    while stack:
        one = stack.pop()
        if is_operator(nodes[one]):
            yield one
        else:
            stack.extend(children.get(one, ()))


def chosen(tree: Tree, *, step: str | None, subgraph: str | None) -> tuple[int, ...]:
    """Topmost operators to replay, as they began.

    Args:
        tree: the trace.
        step: name or number of a step; the first whole one where there are steps, if left out.
        subgraph: only what ran inside nodes of this name.

    Raises:
        TraceError: if there is no such step or no such name.
    """
    found = sorted(node for node in tree.nodes if tree.is_topmost(node))
    first, last = _step_range(tree, step)
    found = [node for node in found if first <= node < last]
    if subgraph is not None:
        found = _inside(tree, found, subgraph)
    if not found:
        raise TraceError(
            "the execution trace holds no operator to replay: record it around a whole step"
        )
    return tuple(found)


def step_names(tree: Tree) -> dict[str, int]:
    """Steps that the trace marks, with the node that begins each."""
    return {node.name: node.id for node in tree.nodes.values() if node.name.startswith(STEP_MARK)}


def _step_range(tree: Tree, step: str | None) -> tuple[int, int]:
    """Ids from a step's begin to the next one's: the backward pass runs on another thread."""
    steps = step_names(tree)
    end = max(tree.nodes, default=0) + 1
    if not steps:
        if step is not None:
            raise TraceError(f"the execution trace has no step marks, so no step {step!r}")
        return 0, end
    name = step if step is None or step.startswith(STEP_MARK) else f"{STEP_MARK}{step}"
    if name is not None and name not in steps:
        raise TraceError(f"the execution trace has no step {step!r}: it has {', '.join(steps)}")
    begins = sorted(steps.values())
    begin = begins[0] if name is None else steps[name]
    return begin, min((one for one in begins if one > begin), default=end)


def _inside(tree: Tree, found: list[int], label: str) -> list[int]:
    inside = [
        node for node in found if any(tree.nodes[one].name == label for one in tree.ancestors(node))
    ]
    if not inside:
        labels = {tree.nodes[one].name for node in found for one in tree.ancestors(node)}
        shown = ", ".join(repr(one) for one in sorted(labels)[:8])
        raise TraceError(
            f"nothing of the execution trace ran inside {label!r}: names around its operators "
            f"are {shown}"
        )
    return inside
