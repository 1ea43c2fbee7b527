"""Which nodes of a graph to draw: by step, by rank, by words, or around one node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, GraphError, Int64s
from foretrace.graph import ExecutionGraph, NodeKind, block_words

MOST_NODES = 400  # more are no longer told apart on a screen
_MAX_SHOWN = 5


@dataclass(frozen=True)
class Choice:
    """What to draw; all that is given must hold."""

    step: str | None = None
    rank: int | None = None
    label: str | None = None  # words of a node's name, its operator or its block
    around: int | str | None = None  # a node's number, or words of its name: the first that fits
    depth: int = 2  # edges from there, in both directions


@dataclass(frozen=True)
class Subgraph:
    """Some nodes of a graph with the edges between them."""

    graph: ExecutionGraph
    node: Int64s  # int64[nodes], rising
    source: Int64s  # int64[edges], position in `node`
    target: Int64s  # int64[edges]
    edge_kind: Int64s  # int64[edges], EdgeKind
    centre: int  # position in `node`; -1 if no node was named


def subgraph(graph: ExecutionGraph, choice: Choice) -> Subgraph:
    """The chosen part of a graph.

    Raises:
        GraphError: if nothing fits, or more than can be read.
    """
    is_chosen = np.ones(graph.num_nodes, np.bool_)
    if choice.step is not None:
        is_chosen &= _of_step(graph, choice.step)
    if choice.rank is not None:
        is_chosen &= _of_rank(graph, choice.rank)
    if choice.label is not None and choice.around is None:
        is_chosen &= _labelled(graph, choice.label)
    centre = -1
    if choice.around is not None:
        centre = _centre(graph, choice.around, is_chosen)
        is_chosen &= _near(graph, centre, choice.depth)
        is_chosen &= True if choice.label is None else _labelled(graph, choice.label)
        is_chosen[centre] = True
    nodes = np.flatnonzero(is_chosen)
    _check_count(graph, nodes, choice)
    position = np.full(graph.num_nodes, -1, np.int64)
    position[nodes] = np.arange(len(nodes))
    target = graph.edge_target
    kept = np.flatnonzero(is_chosen[graph.predecessor] & is_chosen[target])
    return Subgraph(
        graph,
        nodes,
        position[graph.predecessor[kept]],
        position[target[kept]],
        graph.edge_kind[kept].astype(np.int64),
        int(position[centre]) if centre >= 0 else -1,
    )


def _of_step(graph: ExecutionGraph, step: str) -> Bools:
    names = list(graph.step_names)
    wanted = [at for at, name in enumerate(names) if step in (name, name.rpartition("#")[2])]
    if not wanted:
        shown = ", ".join(names[:_MAX_SHOWN]) or "none"
        raise GraphError(f"no step {step!r} to draw: the graph has {len(names)} ({shown})")
    chosen: Bools = np.isin(graph.step, wanted)
    return chosen


def _of_rank(graph: ExecutionGraph, rank: int) -> Bools:
    if rank not in graph.ranks:
        shown = ", ".join(map(str, graph.ranks[:_MAX_SHOWN]))
        raise GraphError(f"no rank {rank} to draw: the graph has {len(graph.ranks)} ({shown}, ...)")
    chosen: Bools = graph.rank == rank
    return chosen


def _labelled(graph: ExecutionGraph, label: str) -> Bools:
    wanted = label.lower()
    fits = np.array([wanted in name.lower() for name in (*graph.names, "")], np.bool_)
    chosen: Bools = fits[graph.name] | fits[graph.operator]  # -1 is the empty name at the end
    keys = np.stack(
        [column.astype(np.int64) for column in (graph.part, graph.phase, graph.layer)], axis=1
    )
    _, first, block = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    is_block = np.array([wanted in block_words(*keys[node].tolist()) for node in first], np.bool_)
    return chosen | is_block[block.reshape(-1)]


def _centre(graph: ExecutionGraph, around: int | str, is_chosen: Bools) -> int:
    if isinstance(around, int):
        if not 0 <= around < graph.num_nodes:
            raise GraphError(
                f"no node {around} to draw around: the graph's nodes are 0 to "
                f"{graph.num_nodes - 1:,}"
            )
        return around
    fits = np.array([around.lower() in name.lower() for name in graph.names], np.bool_)
    found = np.flatnonzero(fits[graph.name] & is_chosen)
    if not len(found):
        raise GraphError(
            f"no node is called {around!r}, or not on that step or rank; name part of an "
            "operator's or kernel's name, or a node's number"
        )
    return int(found[0])


def _near(graph: ExecutionGraph, centre: int, depth: int) -> Bools:
    """Nodes at most so many edges away."""
    target = graph.edge_target
    is_near = np.zeros(graph.num_nodes, np.bool_)
    is_near[centre] = True
    num_near = 0
    for _ in range(depth):
        if num_near == (num_near := int(is_near.sum())):
            break  # all that hangs together
        reached = np.concatenate(
            [graph.predecessor[is_near[target]], target[is_near[graph.predecessor]]]
        )
        is_near[reached] = True
    return is_near


def _check_count(graph: ExecutionGraph, nodes: Int64s, choice: Choice) -> None:
    if not len(nodes):
        raise GraphError("nothing to draw: no node fits all that was asked for; ask for less")
    if len(nodes) <= MOST_NODES:
        return
    if choice.around is not None:
        narrower = f"a depth below {choice.depth}"
    else:
        busiest = _busiest_name(graph, nodes)
        given = (("a step", choice.step), ("a rank", choice.rank), ("a label", choice.label))
        missing = [what for what, value in given if value is None]
        narrower = " or ".join([*missing, f"the neighbourhood of one node (around {busiest!r})"])
    raise GraphError(
        f"too much to draw: {len(nodes):,} nodes, and {MOST_NODES} can be read; ask for {narrower}"
    )


def _busiest_name(graph: ExecutionGraph, nodes: Int64s) -> str:
    """The name on which most time is spent, to have an example."""
    work = nodes[graph.kind[nodes] != NodeKind.HOST_SEGMENT]
    work = work if len(work) else nodes
    spent = np.bincount(
        graph.name[work], weights=graph.measured_ns[work], minlength=len(graph.names)
    )
    return graph.names[int(np.argmax(spent))][:40]
