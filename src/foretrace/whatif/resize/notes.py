"""What a reader must know of operators at other sizes: what was guessed, and what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from foretrace.base import Bools, Int64s, cut_short
from foretrace.cost import Costs, Source
from foretrace.graph import NO_NODE, ExecutionGraph
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.resize.resized import Resizing
from foretrace.whatif.resize.signatures import NO_WEIGHT, Shaped
from foretrace.whatif.scenario import Scenario

_NAMED = 3  # operators that a note names
_LETTERS = 60  # of a name: kernels of C++ have some of kilobytes
_SLIGHT = 0.001  # share of the operators' time below which nobody needs to know


def resize_notes(
    arranged: Arranged, found: Resizing, costs: Costs, before: Scenario, after: Scenario
) -> tuple[str, ...]:
    """Sentences about what was costed anew: products, and what has no shapes of its own.

    Args:
        arranged: the edited job.
        found: how the recording's operators change.
        costs: of the arranged graph's nodes.
        before: the recording's scenario.
        after: the edited one.
    """
    if (costs.source == Source.MEASURED).all():
        return ()
    notes = list(found.notes)
    if before.plan.tensor != after.plan.tensor:
        notes.append(_products(arranged, found, costs, before, after))
    if before.plan.tensor == 1 < after.plan.tensor:
        notes.append(
            "ranks of tp divide layers alone: every rank keeps the whole tables of the embedding "
            "and of the output projection"
        )
    notes += _unsized(found)
    graph = found.blocks.graph
    nodes = found.blocks.nodes
    total_ns = max(int(graph.measured_ns[nodes].sum()), 1)
    shaped = found.signatures.shaped
    for state, words in (
        (Shaped.UNKNOWN, "has no shapes that sizes explain, and changes as what is around it does"),
        (
            Shaped.UNSURE,
            "has sizes that fit several dimensions of the model: the likelier was taken",
        ),
    ):
        is_so = (shaped == state) & (found.ratios.ratio != 1.0)
        share = int(graph.measured_ns[is_so].sum()) / total_ns
        if share >= _SLIGHT:
            notes.append(f"{share:.1%} of the operators' time {words}: {_named(graph, is_so)}")
    return tuple(notes)


def _unsized(found: Resizing) -> Iterator[str]:
    """Collectives that change, and whose bytes nobody recorded."""
    costs = found.exchanged
    chosen = (costs.num_bytes < 0) & (costs.source == Source.SCALED)
    if chosen.any():
        yield (
            f"{int(chosen.sum()):,} collectives have no recorded sizes: they take "
            f"x {float(np.median(costs.ratio[chosen])):.2f}, as large ones would, and the interval "
            "holds what small ones would"
        )


def _products(
    arranged: Arranged, found: Resizing, costs: Costs, before: Scenario, after: Scenario
) -> str:
    """How much of the job's work products are, and how sure their new times."""
    has_source = arranged.source != NO_NODE
    is_product = np.zeros(arranged.graph.num_nodes, np.bool_)
    weight = found.signatures.weight[arranged.source[has_source]]
    is_product[has_source] = weight != NO_WEIGHT
    is_work = np.zeros(arranged.graph.num_nodes, np.bool_)
    is_work[has_source] = found.signatures.shaped[arranged.source[has_source]] != Shaped.NOTHING
    columns = (costs.duration_ns, costs.low_ns, costs.high_ns)
    new_ns, low_ns, high_ns = (_sum(one, is_product) for one in columns)
    share = new_ns / max(_sum(costs.duration_ns, is_work), 1)
    new_ns = max(new_ns, 1)
    return (
        f"tp {before.plan.tensor} -> {after.plan.tensor}: products are costed anew from their "
        f"shapes, {share:.0%} of the operators' time, "
        f"{low_ns / new_ns - 1:+.0%} to {high_ns / new_ns - 1:+.0%} if all are off alike"
    )


def _sum(values: Int64s, chosen: Bools) -> int:
    return int(values[chosen].sum())


def _named(graph: ExecutionGraph, chosen: Bools) -> str:
    """The operators that take most of it."""
    times: Counter[str] = Counter()
    for node in np.flatnonzero(chosen).tolist():
        operator = int(graph.operator[node])
        name = graph.names[operator if operator >= 0 else int(graph.name[node])]
        times[name] += int(graph.measured_ns[node])
    names = [cut_short(name, _LETTERS) for name, _ in times.most_common(_NAMED)]
    return ", ".join(names) + (", ..." if len(times) > _NAMED else "")
