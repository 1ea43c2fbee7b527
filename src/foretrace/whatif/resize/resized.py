"""`resizing`, `costs_of`: what every node of an arranged graph takes at the edited job's sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, Int32s, Int64s, ScenarioError, UInt8s
from foretrace.cost import CostModel, Costs, Source
from foretrace.graph import NO_NODE, NodeKind
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.resize.collectives import Exchanged, Sizing, exchanged
from foretrace.whatif.resize.models import Models, filled, models_of, requests_of
from foretrace.whatif.resize.named import Dimensions, dimensions
from foretrace.whatif.resize.parameters import Amounts, amounts_of
from foretrace.whatif.resize.ratios import Ratios, ratios_of, unchanged_ratios
from foretrace.whatif.resize.read import read_sizes
from foretrace.whatif.resize.recorded_blocks import RecordedBlocks, recorded_blocks
from foretrace.whatif.resize.signatures import Signatures, signatures_after
from foretrace.whatif.resize.sizes import Sizes
from foretrace.whatif.scenario import Scenario


@dataclass(frozen=True)
class Resizing:
    """How a recording's operators change from one scenario to another."""

    blocks: RecordedBlocks
    known: Dimensions
    signatures: Signatures
    amounts: Amounts
    ratios: Ratios
    exchanged: Exchanged
    models: Models
    notes: tuple[str, ...] = ()  # what was taken to be so, and is not known


def resizing(
    arranged: Arranged,
    program: Program,
    before: Scenario,
    after: Scenario,
    *,
    costs: CostModel | None = None,
) -> Resizing:
    """How everything that an edit resizes changes: `costs_of` makes durations of it.

    Args:
        arranged: the edited job, from recorded pieces.
        program: the recorded one.
        before: the recording's scenario.
        after: the edited one.
        costs: what predicts durations at other sizes; the machine's, or the recording's own.

    Raises:
        ScenarioError: if a size is edited that no shape shows, if ranks cannot divide one evenly,
            if the job is moved to a machine without its own being stated, or if nothing tells what
            a collective takes.
    """
    _check(before, after)
    read = read_sizes(program, stated=before.sizes)
    known = dimensions((before.sizes, before.plan), (after.sizes, after.plan), read.divided)
    models = models_of(
        program,
        before,
        after,
        costs=costs,
        has_new_shapes=not known.is_unchanged or len(_made_operators(arranged)) > 0,
    )
    blocks = program.once(recorded_blocks)
    signatures = signatures_after(blocks, known, tables=read.table_rows)
    amounts = amounts_of(blocks, signatures, known)
    if known.is_unchanged and not models.is_other_chip:
        ratios = unchanged_ratios(program.graph.num_nodes)
    else:
        ratios = ratios_of(blocks, signatures, models, amounts)
    sizes = Sizing(known, amounts)
    found = exchanged(program, arranged, after.plan, models=models, sizes=sizes)
    notes = (*read.notes, *models.notes)
    return Resizing(blocks, known, signatures, amounts, ratios, found, models, notes)


def _check(before: Scenario, after: Scenario) -> None:
    """Refuse what shapes cannot follow.

    Raises:
        ScenarioError: naming the size.
    """
    pairs = {
        name: (getattr(before.sizes, name), getattr(after.sizes, name))
        for name in Sizes.__dataclass_fields__
        if name != "layers"
    }
    pairs["sequence"] = (before.plan.sequence, after.plan.sequence)
    for name, (old, new) in pairs.items():
        if new is None or old == new:
            continue
        if old is None:
            raise ScenarioError(
                f"{name} becomes {new:,}, and no recorded shape shows what it was: state it, as in "
                f"sizes=Sizes({name}=...)."
            )
        if name == "experts":
            raise ScenarioError(
                f"experts {old:,} -> {new:,}: which tokens the recorded ones had is in no shape; "
                "state model and machine, so that two estimates can be compared."
            )
        if before.sizes.heads is None:
            raise ScenarioError(
                f"{name} {old:,} -> {new:,}: no attention was recorded that would tell what is as "
                "long as a sequence or as wide as the model; of such a model the microbatch alone "
                "can be changed, or state model and machine for two estimates."
            )


def costs_of(arranged: Arranged, found: Resizing) -> Costs:
    """What every node of the arranged graph takes, where that comes from, and how sure it is.

    What keeps its shape keeps its measured time (times the scale of its piece); what changes takes
    `measured x model(new) / model(old)`; what nobody recorded takes what the model says.
    """
    graph = arranged.graph
    has_source = arranged.source != NO_NODE
    source_node = arranged.source[has_source]
    measured_ns = graph.measured_ns
    columns = np.stack([measured_ns] * 3).astype(np.float64)
    source = np.full(graph.num_nodes, Source.MEASURED, np.uint8)
    family = np.zeros(graph.num_nodes, np.int32)
    ratios = found.ratios
    for row, ratio in enumerate((ratios.ratio, ratios.low, ratios.high)):
        columns[row, has_source] *= ratio[source_node]
    source[has_source] = ratios.source[source_node]
    family[has_source] = ratios.family[source_node]
    families = _collectives(arranged, found, columns, source, family)
    families = _operators(arranged, found, (columns, source, family), families)
    duration_ns, low_ns, high_ns = np.rint(columns).astype(np.int64)
    return Costs(duration_ns, low_ns, high_ns, source, family, families)


def _made_operators(arranged: Arranged) -> Int64s:
    """Nodes of operators that nobody recorded."""
    working = (NodeKind.KERNEL, NodeKind.OPERATOR)
    return np.flatnonzero((arranged.source == NO_NODE) & arranged.graph.is_of(*working))


def _operators(
    arranged: Arranged,
    found: Resizing,
    columns: tuple[Float64s, UInt8s, Int32s],
    families: tuple[str, ...],
) -> tuple[str, ...]:
    """Durations of made operators, times the scale of their piece. Out: `columns`."""
    nodes = _made_operators(arranged)
    if not len(nodes):
        return families
    graph, models = arranged.graph, found.models
    requests = requests_of(
        graph.operator[nodes], graph.operator_signature[nodes], graph.name[nodes], graph.names
    )
    costs = filled(models.after.kernel_costs(requests), models.recorded.kernel_costs(requests))
    duration, source, family = columns
    for row, values in enumerate((costs.duration_ns, costs.low_ns, costs.high_ns)):
        duration[row, nodes] = values * arranged.scale[nodes]
    source[nodes], family[nodes] = costs.source, costs.family + len(families)
    return (*families, *costs.families)


def _collectives(
    arranged: Arranged, found: Resizing, columns: Float64s, source: UInt8s, family: Int32s
) -> tuple[str, ...]:
    """Durations of what finishes collectives. Out: `columns`, `source`, `family`."""
    graph, costs = arranged.graph, found.exchanged
    finishes = graph.nodes_of(NodeKind.FINISH)
    of = graph.collective[finishes]
    is_changed = costs.source[of] != Source.MEASURED
    finishes, of = finishes[is_changed], of[is_changed]
    is_made = arranged.source[finishes] == NO_NODE
    duration = np.where(is_made, costs.made_ns[of], graph.measured_ns[finishes] * costs.ratio[of])
    columns[:, finishes] = duration, duration * costs.low[of], duration * costs.high[of]
    source[finishes] = costs.source[of]
    names = tuple(dict.fromkeys(f"exchange {name}".rstrip() for name in costs.group))
    place = {name: at for at, name in enumerate(names)}
    numbers = np.array([place[f"exchange {name}".rstrip()] for name in costs.group], np.int32)
    family[finishes] = numbers[of] + len(found.ratios.families)
    return (*found.ratios.families, *names)
