"""`recommender_layout`: a recommender's step in which every rank has the work of its own tables.

The graph is that of `layout`, all ranks of it; only which operators its kernels are, with which
shapes, differs from rank to rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.workload.blocks.block import ModelBlocks, Operator
from foretrace.workload.blocks.recommender import blocks_of_recommender, table_operators
from foretrace.workload.layout.laid_out import LaidOut
from foretrace.workload.layout.layout import layout
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.plan.plan import Plan
from foretrace.workload.sharding.access import EVEN_IDS
from foretrace.workload.sharding.placed import PlacedTables
from foretrace.workload.sharding.placement import tables_of_plan


def recommender_layout(
    model: Recommender, plan: Plan, placed: PlacedTables | None = None
) -> LaidOut:
    """The graph of all ranks, each with what it has to look up and update itself.

    Exchanges are as large as the most that any rank sends or gets, since none ends before.

    Args:
        model: tables and networks.
        plan: a legal plan for it.
        placed: where tables stand; as the plan says, if left out.
    """
    placed = placed or tables_of_plan(model, plan)
    blocks = blocks_of_recommender(model, plan, placed=placed, is_alike=True)
    whole = layout(blocks, plan, folded=False)
    own = [table_operators(model, plan, placed, rank) for rank in range(plan.data)]
    return replace(whole, graph=_with_operators(whole.graph, blocks, own))


def is_uneven(plan: Plan) -> bool:
    """Whether somebody stated how much the ranks of a recommender have to do each."""
    tables = plan.tables
    is_stated = tables is not None and (bool(tables.places) or tables.ids != EVEN_IDS)
    return is_stated and plan.data > 1


def _with_operators(
    graph: ExecutionGraph, blocks: ModelBlocks, own: Sequence[Sequence[Operator]]
) -> ExecutionGraph:
    """The graph whose kernels on tables are each rank's own operators."""
    (passes,) = blocks.layers
    items = (*passes.forward.items, *passes.backward.items)
    operators = [one for one in items if isinstance(one, Operator)]
    labels = {one.label for one in own[0]}
    on_tables = [at for at, one in enumerate(operators) if one.label in labels]
    nodes = np.flatnonzero(graph.kind == NodeKind.KERNEL)
    # Kernels of every rank in the order in which it launches them.
    by_rank = nodes[np.argsort(graph.rank[nodes], kind="stable")].reshape(len(own), -1)
    place = {name: at for at, name in enumerate(graph.names)}
    signature = graph.operator_signature.copy()
    for row, made in zip(by_rank, own, strict=True):
        texts = [one.signature for one in made]
        signature[row[on_tables]] = [place.setdefault(text, len(place)) for text in texts]
    return replace(graph, operator_signature=signature, names=tuple(place))
