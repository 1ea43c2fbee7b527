"""Which operations and ranks carry a step's variance: critical paths of sampled steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.analyze import windows
from foretrace.base import Bools, Float64s, Int64s
from foretrace.graph import NO_COLLECTIVE, ExecutionGraph, NodeKind
from foretrace.risk.steps.distribution import Shares, VarianceShare, shares_of
from foretrace.simulate import Draws, sampled_duration_ns, simulate, way_back

_NODES_AT_MOST = 30_000_000  # that are simulated for it, in all
_MOST_PATHS, _LEAST_PATHS = 200, 8
_TAIL = 0.05  # the slowest steps


def shares(
    graph: ExecutionGraph, draws: Draws, *, row: int = 0, is_laid_out: bool = False
) -> Shares:
    """Variance shares and the slowest steps' path, from some samples simulated again.

    Args:
        graph: that was sampled.
        draws: how.
        row: which step of the graph, in order of time.
        is_laid_out: names say what a kernel is for; else its framework operator does.
    """
    num_paths = min(
        max(_NODES_AT_MOST // max(graph.num_nodes, 1), _LEAST_PATHS),
        _MOST_PATHS,
        draws.num_samples,
    )
    group, names = _operations(graph, is_laid_out=is_laid_out)
    ranks = np.array([*graph.ranks, -1], np.int64)
    rank = np.searchsorted(ranks[:-1], graph.rank)
    rank[graph.rank < 0] = len(ranks) - 1
    by_operation = np.zeros((num_paths, len(names)))
    by_rank = np.zeros((num_paths, len(ranks)))
    work_ns = np.zeros((num_paths, len(ranks)))
    step_ns = np.zeros(num_paths)
    for path in range(num_paths):
        length_ns = np.rint(sampled_duration_ns(draws, path)).astype(np.int64)
        timeline = simulate(graph, length_ns)
        steps = windows(timeline)
        begin_ns = int(steps.begin_ns[row])
        way = way_back(timeline, int(steps.end_node[row]), begin_ns=begin_ns)
        # Of a node that begins before the step, only what lies inside it counts.
        inside_ns = np.minimum(length_ns[way.node], timeline.end_ns[way.node] - begin_ns)
        inside_ns = np.maximum(inside_ns, 0)
        by_operation[path] = np.bincount(group[way.node], inside_ns, minlength=len(names))
        by_rank[path] = np.bincount(rank[way.node], inside_ns, minlength=len(ranks))
        work_ns[path] = np.bincount(rank, length_ns, minlength=len(ranks))
        step_ns[path] = float(steps.duration_ns[row])
        # What is on the path besides its nodes: lags, and waits for launches held up elsewhere.
        by_operation[path, -1] = step_ns[path] - float(inside_ns.sum())
    num_tail = max(1, round(num_paths * _TAIL))
    is_tail = np.zeros(num_paths, np.bool_)
    is_tail[np.argsort(-step_ns, kind="stable")[:num_tail]] = True
    rank_names = [f"rank {one}" for one in graph.ranks]
    return Shares(
        operations=_that_matter(names, by_operation, step_ns, is_tail=is_tail),
        ranks=rank_shares(rank_names, (by_rank, work_ns), step_ns, is_tail=is_tail),
        num_paths=num_paths,
        num_tail=num_tail,
    )


def _that_matter(
    names: Sequence[str], by_path_ns: Float64s, step_ns: Float64s, *, is_tail: Bools
) -> tuple[VarianceShare, ...]:
    rows = shares_of(names, by_path_ns, step_ns, is_tail)
    return tuple(one for one in rows if one.path_ns or one.tail_ns)


def rank_shares(
    names: Sequence[str],
    times_ns: tuple[Float64s, Float64s],
    step_ns: Float64s,
    *,
    is_tail: Bools,
) -> tuple[VarianceShare, ...]:
    """How much of the step's variance goes with each rank's work in all.

    Paths hop between ranks that wait for each other, so a rank's time on the path says little:
    the share is the squared correlation of the rank's work with the step. Shares of ranks do not
    add up to anything.

    Args:
        names: of the ranks.
        times_ns: float64[paths, ranks or more] on the path, and of all work.
        step_ns: float64[paths].
        is_tail: bool[paths].
    """
    on_path, work = times_ns
    centred = step_ns - step_ns.mean()
    found = []
    for at, name in enumerate(names):
        own = work[:, at] - work[:, at].mean()
        scale = float((own**2).sum() * (centred**2).sum())
        share = float((own * centred).sum()) ** 2 / scale if scale > 0 else 0.0
        tail = float(on_path[is_tail, at].mean())
        found.append(VarianceShare(name, share, float(on_path[:, at].mean()), tail))
    return tuple(sorted(found, key=lambda one: -one.share))


def _operations(graph: ExecutionGraph, *, is_laid_out: bool) -> tuple[Int64s, list[str]]:
    """What every node is called, and the names; the last is for what is no node's."""
    has_collective = (graph.kind == NodeKind.FINISH) & (graph.collective != NO_COLLECTIVE)
    named = graph.operator < 0 if not is_laid_out else np.ones(graph.num_nodes, np.bool_)
    shown = np.where(named, graph.name, graph.operator).astype(np.int64)
    meetings: dict[str, int] = {}
    of_meeting = np.array(
        graph.collectives.each(
            lambda one: meetings.setdefault(
                f"{one.name} of {one.group or 'a group'}", len(meetings)
            )
        )
        or [0],
        np.int64,
    )
    code = np.where(has_collective, len(graph.names) + of_meeting[graph.collective], shown)
    distinct, group = np.unique(code, return_inverse=True)
    texts = [*graph.names, *meetings]
    names = [texts[at] for at in distinct.tolist()]
    return group.reshape(-1).astype(np.int64), [*names, "hand-overs"]
