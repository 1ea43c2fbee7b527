"""What every node of an arranged graph takes at the edited job's sizes, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Float64s, Int32s, Int64s, ScenarioError, UInt8s, numbered_rows
from foretrace.cost import CostModel, Costs, Source, scaled
from foretrace.graph import NO_NODE, NodeKind, Part, operator_classes
from foretrace.operators import Tensor, parsed_shapes
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.resize.collectives import Exchanged, Sizing, exchanged
from foretrace.whatif.resize.models import Models, distinct_rows, filled, models_of, requests_of
from foretrace.whatif.resize.named import Dimensions, Sizes, dimensions
from foretrace.whatif.resize.parameters import UNCHANGED, Amounts, amounts_of
from foretrace.whatif.resize.read import read_sizes
from foretrace.whatif.resize.recorded_blocks import RecordedBlocks, recorded_blocks
from foretrace.whatif.resize.signatures import Shaped, Signatures, signatures_after
from foretrace.whatif.scenario import Scenario

_UNIT_NS = 1_000_000_000  # a measurement to scale, so that rounding does not count
RECORDED = "measured"
_SIZES_APART = 2  # between sizes that tell a start
_BY_ELEMENTS, _BY_NEIGHBOURS = "by elements", "like its neighbours"

_NOT_BY_NEIGHBOURS = (Part.OPTIMIZER, Part.BUCKET, Part.DATA)


@dataclass(frozen=True)
class Ratios:
    """Columns over a recording's nodes."""

    ratio: Float64s  # float64[nodes], new duration over measured
    low: Float64s  # the same at both ends of the interval
    high: Float64s
    source: UInt8s  # uint8[nodes], Source
    family: Int32s  # int32[nodes], position in `families`
    families: tuple[str, ...]
    is_guessed: Bools  # bool[nodes], neither shapes nor a model: as what is around it changed


def unchanged_ratios(size: int) -> Ratios:
    """Everything takes what it took."""
    return Ratios(
        ratio=np.ones(size),
        low=np.ones(size),
        high=np.ones(size),
        source=np.full(size, Source.MEASURED, np.uint8),
        family=np.zeros(size, np.int32),
        families=(RECORDED, _BY_NEIGHBOURS),
        is_guessed=np.zeros(size, np.bool_),
    )


def ratios_of(
    blocks: RecordedBlocks, signatures: Signatures, models: Models, amounts: Amounts
) -> Ratios:
    """Ratios of all operators; where nothing changes they are one.

    Args:
        blocks: recorded operators.
        signatures: theirs, after the edit.
        models: of costs.
        amounts: what each part works on, for operators that say nothing of themselves.
    """
    graph = blocks.graph
    found = unchanged_ratios(graph.num_nodes)
    is_shaped = np.isin(signatures.shaped, (Shaped.CHANGED, Shaped.UNSURE))
    if models.is_other_chip:
        is_shaped |= (signatures.shaped != Shaped.NOTHING) & (graph.operator_signature >= 0)
    nodes = np.flatnonzero(is_shaped)
    if len(nodes):
        found = _by_models(found, (blocks, nodes), signatures, models)
    is_open = signatures.shaped == Shaped.UNKNOWN
    is_open |= is_shaped & (found.source == Source.UNKNOWN)
    if is_open.any():
        _by_neighbours(found, blocks, is_open, amounts)
    return found


def _by_models(
    into: Ratios, at: tuple[RecordedBlocks, Int64s], signatures: Signatures, models: Models
) -> Ratios:
    """Each distinct change is costed once."""
    blocks, nodes = at
    graph = blocks.graph
    rows, inverse = distinct_rows(
        graph.operator[nodes],
        graph.operator_signature[nodes],
        signatures.signature[nodes],
        graph.name[nodes],
    )
    operator, old, new, kernel = rows.T.copy()
    before = requests_of(operator, old, kernel, signatures.texts)
    after = requests_of(operator, new, kernel, signatures.texts)
    unit_ns = np.full(len(rows), _UNIT_NS, np.int64)
    costs = scaled(unit_ns, models.before.kernel_costs(before), models.after.kernel_costs(after))
    if not models.is_other_chip:
        own = models.recorded
        other = scaled(unit_ns, own.kernel_costs(before), own.kernel_costs(after))
        costs = filled(costs, other)
        took_ns = np.bincount(inverse, graph.measured_ns[nodes]) / np.bincount(inverse)
        costs = filled(costs, by_elements(rows, signatures.texts, took_ns, own.shortest_ns))
    into.ratio[nodes] = (costs.duration_ns / _UNIT_NS)[inverse]
    into.low[nodes] = (costs.low_ns / _UNIT_NS)[inverse]
    into.high[nodes] = (costs.high_ns / _UNIT_NS)[inverse]
    into.source[nodes] = costs.source[inverse]
    into.family[nodes] = (costs.family + len(into.families))[inverse]
    families = (*into.families, *costs.families)
    return Ratios(
        into.ratio, into.low, into.high, into.source, into.family, families, into.is_guessed
    )


def by_elements(
    rows: Int32s, texts: tuple[str, ...], took_ns: Float64s, shortest_ns: float
) -> Costs:
    """A start, and time in proportion to the elements of an operator's tensors, of each operator.

    How much is start shows where an operator was recorded at several sizes; of one size it is as
    long as the shortest operators. That a small operator takes no longer with more elements, and
    that a large one takes as many times as long as it has elements, bound what no model knows.
    """
    pairs = [
        (_num_elements(texts[old]), _num_elements(texts[new])) for _, old, new, _ in rows.tolist()
    ]
    old, new = np.array(pairs, np.float64).reshape(-1, 2).T
    is_known = (old > 0) & (new > 0)
    per_element = np.maximum(took_ns - shortest_ns, 0.0) / np.maximum(old, 1)
    for operator in np.unique(rows[is_known, 0]).tolist():
        mine = is_known & (rows[:, 0] == operator)
        if old[mine].max() >= _SIZES_APART * old[mine].min():
            per_element[mine] = _slope(old[mine], took_ns[mine])
    work = np.minimum(per_element * old, took_ns) / np.maximum(took_ns, 1e-9)
    most = np.where(is_known, new / np.maximum(old, 1), 0.0)
    unit = np.where(is_known, (1 - work + work * most) * _UNIT_NS, 0.0)
    return Costs(
        duration_ns=np.rint(unit).astype(np.int64),
        low_ns=np.rint(np.minimum(most, 1.0) * is_known * _UNIT_NS).astype(np.int64),
        high_ns=np.rint(np.maximum(most, 1.0) * is_known * _UNIT_NS).astype(np.int64),
        source=np.where(is_known, Source.SCALED, Source.UNKNOWN).astype(np.uint8),
        family=np.zeros(len(rows), np.int32),
        families=(_BY_ELEMENTS,),
    )


def _slope(elements: Float64s, took_ns: Float64s) -> float:
    """Time of an element, from each pair of sizes of one operator: the median (Theil, Sen)."""
    first, second = np.triu_indices(len(elements), 1)
    is_apart = elements[first] != elements[second]
    first, second = first[is_apart], second[is_apart]
    slopes = (took_ns[second] - took_ns[first]) / (elements[second] - elements[first])
    return max(float(np.median(slopes)), 0.0)


def _num_elements(signature: str) -> int:
    shapes = parsed_shapes(signature)
    if shapes is None:
        return 0
    tensors = [
        one
        for given in shapes.inputs
        if given is not None
        for one in ((given,) if isinstance(given, Tensor) else given)
    ]
    return sum(math.prod(one.shape) for one in tensors if one.shape)


def _by_neighbours(into: Ratios, blocks: RecordedBlocks, is_open: Bools, amounts: Amounts) -> None:
    """Operators without shapes change as their part's others of the same class do. Out: `into`.

    Of a phase first, then of both; then as all of the part, or as what the part works on.
    """
    graph = blocks.graph
    nodes = blocks.nodes
    classes, _ = operator_classes(graph, nodes)
    is_known = ~is_open[nodes]
    part, phase = graph.part[nodes].astype(np.int64), graph.phase[nodes].astype(np.int64)
    known_ns = np.where(is_known, graph.measured_ns[nodes], 0).astype(np.float64)
    ratio = into.ratio[nodes].copy()
    rest = ~is_known
    into.is_guessed[nodes[rest]] = True
    for keys in ((part, phase, classes), (part, classes), (part, phase), (part,)):
        group = numbered_rows(keys)
        total_ns = np.bincount(group, known_ns)
        mean = np.bincount(group, known_ns * ratio) / np.maximum(total_ns, 1e-9)
        low, high = _range(group, ratio, known_ns > 0)
        chosen = rest & (total_ns[group] > 0) & ~np.isin(part, _NOT_BY_NEIGHBOURS)
        _put(into, nodes[chosen], (mean, low, high), group[chosen])
        rest &= ~chosen
    left = nodes[rest]
    factor = amounts.factors(graph.part[left], graph.rank[left])
    into.ratio[left] = factor
    into.low[left], into.high[left] = np.minimum(factor, 1.0), np.maximum(factor, 1.0)
    changed = into.is_guessed & (into.ratio != 1.0)
    into.source[into.is_guessed] = Source.MEASURED
    into.source[changed] = Source.SCALED
    into.family[changed] = into.families.index(_BY_NEIGHBOURS)


def _put(
    into: Ratios, nodes: Int64s, by_group: tuple[Float64s, Float64s, Float64s], group: Int64s
) -> None:
    mean, low, high = by_group
    into.ratio[nodes] = mean[group]
    into.low[nodes] = low[group]
    into.high[nodes] = high[group]


def _range(group: Int64s, ratio: Float64s, is_known: Bools) -> tuple[Float64s, Float64s]:
    """Least and largest ratio of each group."""
    size = int(group.max(initial=-1)) + 1
    low, high = np.full(size, np.inf), np.zeros(size)
    np.minimum.at(low, group[is_known], ratio[is_known])
    np.maximum.at(high, group[is_known], ratio[is_known])
    return low, high


@dataclass(frozen=True)
class Resizing:
    """How a recording's operators change from one scenario to another."""

    blocks: RecordedBlocks
    known: Dimensions
    table_rows: tuple[int, ...]  # as `read_sizes` found them
    changed: Signatures | None  # `None`: no shape changes
    ratios: Ratios
    exchanged: Exchanged
    models: Models
    notes: tuple[str, ...] = ()  # what was taken to be so, and is not known

    @property
    def signatures(self) -> Signatures:
        """Of all operators after the edit; most edits change none, and nobody asks."""
        if self.changed is not None:
            return self.changed
        return self.blocks.once(signatures_after, self.known, self.table_rows)


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
    if known.is_unchanged and not models.is_other_chip:
        changed, amounts = None, UNCHANGED
        ratios = unchanged_ratios(program.graph.num_nodes)
    else:
        changed = signatures_after(blocks, known, read.table_rows)
        amounts = amounts_of(blocks, changed, known)
        ratios = ratios_of(blocks, changed, models, amounts)
    sizes = Sizing(known, amounts)
    found = exchanged(program, arranged, after.plan, models=models, sizes=sizes)
    notes = (*read.notes, *models.notes)
    return Resizing(blocks, known, read.table_rows, changed, ratios, found, models, notes)


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
