"""Blocks of a recording: part, phase, layer and microbatch of every node, found once.

The order of work: points of work in the order of the program; their phases from scopes; passes
from autograd's numbers; layers of forward passes from whatever names them, else from repetition;
backward work from the forward work it undoes; communication from its groups. Then every other
node takes the label of the point it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s
from foretrace.graph.assembly import DraftNodes
from foretrace.graph.blocks.autograd import NO_POINT, undone_points, with_late_recompute
from foretrace.graph.blocks.corrections import Corrections
from foretrace.graph.blocks.exchange import (
    StageOrder,
    StageTransfers,
    bucket_points,
    communication_points,
    pipeline_stages,
    transfer_phases,
    transfers_of,
)
from foretrace.graph.blocks.facts import ScopeFacts, scope_facts
from foretrace.graph.blocks.labels import Labels, neighbours, phases_of_points, spread_labels
from foretrace.graph.blocks.layers import (
    ForwardLayers,
    forward_layers,
    layers_by_reversal,
    stretches,
)
from foretrace.graph.blocks.marks import layer_marks, ruled_points
from foretrace.graph.blocks.passes import NO_PASS, passes_of
from foretrace.graph.blocks.points import WorkPoints, work_points
from foretrace.graph.communication import CommunicationOps
from foretrace.graph.graph import Finding
from foretrace.graph.nodes import (
    DEVICE_KINDS,
    NO_LAYER,
    NO_MICROBATCH,
    NO_STEP,
    NodeKind,
    Part,
    Phase,
)
from foretrace.graph.operations import Operations
from foretrace.graph.operations.scopes import Scopes
from foretrace.graph.recording import BlockEvidence
from foretrace.trace import NO_ID

_BACKWARDS = (Phase.BACKWARD, Phase.RECOMPUTE)
_WORK = (*DEVICE_KINDS, NodeKind.FINISH, NodeKind.OPERATOR)


def evidence_of(
    nodes: DraftNodes, layers: ForwardLayers, stages: StageOrder, backward_source: str
) -> tuple[BlockEvidence, ...]:
    """What answered each question, and the share of all work that has the answer.

    Args:
        nodes: with their blocks.
        layers: of the forward passes, and what named them.
        stages: of the pipeline.
        backward_source: what joined backward work to forward work; "" nothing.
    """
    columns = nodes.columns
    is_work: Bools = np.isin(columns["kind"], [int(kind) for kind in _WORK])
    in_step = columns["step"] != NO_STEP
    if in_step.any():  # what ran when the recording began is of no step
        is_work &= in_step
    work_ns = np.where(is_work, columns["measured_ns"], 0).astype(np.int64)
    phase, part = columns["phase"], columns["part"]
    is_backward: Bools = np.isin(phase, [int(one) for one in _BACKWARDS])
    has_backward = bool((is_backward & is_work).any())
    # of what autograd evaluates, host nodes are marked too
    is_host = ~np.isin(columns["kind"], [int(kind) for kind in DEVICE_KINDS])
    has_autograd = bool((is_backward & is_host).any())
    rows = [
        BlockEvidence(
            "phases",
            ("autograd and marks" if has_autograd else "names of kernels")
            if has_backward
            else "no backward pass",
            is_inferred=False,
            share=_share(work_ns, phase != Phase.UNKNOWN),
        ),
        BlockEvidence(
            "layers",
            layers.source,
            is_inferred=layers.source == "repetition",
            share=_share(work_ns, columns["layer"] != NO_LAYER),
            note=_layers_note(layers),
        ),
        BlockEvidence("parts", "", is_inferred=False, share=_share(work_ns, part != Part.UNKNOWN)),
    ]
    if has_backward:
        rows.append(
            BlockEvidence(
                "backward layers",
                backward_source,
                is_inferred=backward_source == "order",
                share=_share(work_ns, is_backward & (part != Part.UNKNOWN)),
            )
        )
    if stages.num_stages > 1:
        note = f"{stages.num_stages} stages"
        rows.append(
            BlockEvidence("stages", "sends and receives", is_inferred=False, share=1.0, note=note)
        )
    return tuple(rows)


def _share(work_ns: Int64s, is_known: Bools) -> float:
    return float(work_ns[is_known].sum() / max(int(work_ns.sum()), 1))


def _layers_note(layers: ForwardLayers) -> str:
    if not layers.source:
        return ""
    low, high = int(layers.num_layers.min()), int(layers.num_layers.max())
    called = f" called {layers.kind!r}" if layers.kind else ""
    return (f"{high} layers" if low == high else f"{low}-{high} layers") + called


def findings_of(
    evidence: Sequence[BlockEvidence], stages: StageOrder, corrections: Corrections
) -> tuple[Finding, ...]:
    """What could not be told, and what would help."""
    source = {one.about: one.source for one in evidence}
    findings = []
    if not source["layers"]:
        findings.append(
            Finding(
                "blocks",
                "no layers were found: nothing names them and no sequence of operators repeats "
                "for a quarter of the forward work. Record with with_modules=True or "
                'record_function("layer 0"), or name them in a file (docs/blocks.md).',
            )
        )
    elif not source.get("backward layers", "none"):
        findings.append(
            Finding(
                "blocks",
                "backward work could not be assigned to layers: the trace has no autograd "
                "sequence numbers and no arrows, and its order does not repeat as the forward's. "
                "Record with PyTorch's own profiler and operators.",
            )
        )
    stated = corrections.layers_per_stage
    if stated and len(stated) != stages.num_stages:
        findings.append(
            Finding(
                "blocks",
                f"layers_per_stage names {len(stated)} stages, but {stages.num_stages} were "
                "found; it is not used.",
            )
        )
    return tuple(findings)


@dataclass(frozen=True)
class CommunicationNodes:
    """The nodes of every communication, in rows of `CommunicationOps`."""

    comm: CommunicationOps
    arrive: Int64s  # int64[rows]
    finish: Int64s  # int64[rows]
    hub: Int64s  # int64[collectives]


@dataclass(frozen=True)
class FoundBlocks:
    """Nodes with their blocks, and what these rest on."""

    nodes: DraftNodes
    evidence: tuple[BlockEvidence, ...]
    findings: tuple[Finding, ...]


def with_blocks(
    operations: Operations,
    scopes: Scopes,
    nodes: DraftNodes,
    *,
    scope: Int32s,
    names: Sequence[str],
    met: CommunicationNodes,
    corrections: Corrections,
) -> FoundBlocks:
    """Collected nodes with part, phase, layer and microbatch.

    Args:
        operations: of all ranks.
        scopes: of the same.
        nodes: collected, operators known.
        scope: innermost scope of each node.
        names: of nodes and operators.
        met: nodes of communications.
        corrections: what the user's file says; it comes before all other evidence.
    """
    position = {text: index for index, text in enumerate(names)}
    points = work_points(operations, nodes, scopes, scope, position)
    names = list(position)
    if not len(points):
        return FoundBlocks(nodes, (), ())
    facts = scope_facts(operations.traces, scopes)
    found = _labelled(
        operations,
        points,
        facts=facts,
        scopes=scopes,
        names=names,
        met=met,
        corrections=corrections,
    )
    labels = found.labels
    nodes = spread_labels(
        nodes,
        points,
        labels,
        facts=facts,
        scope=scope,
        met_nodes=(met.arrive, met.finish, met.hub),
        names=names,
    )
    evidence = evidence_of(nodes, found.layers, found.stages, found.backward_source)
    return FoundBlocks(nodes, evidence, findings_of(evidence, found.stages, corrections))


@dataclass(frozen=True)
class _Found:
    labels: Labels
    layers: ForwardLayers
    stages: StageOrder
    backward_source: str


def _labelled(
    operations: Operations,
    points: WorkPoints,
    *,
    facts: ScopeFacts,
    scopes: Scopes,
    names: Sequence[str],
    met: CommunicationNodes,
    corrections: Corrections,
) -> _Found:
    ranks = operations.ranks
    communications = communication_points(points, met.comm, met.arrive)
    moved = transfers_of(points, communications, met.comm, names, ranks)
    stages = pipeline_stages(points, moved, ranks)
    ruled = ruled_points(operations, points, scopes, corrections)
    phase = with_late_recompute(points, phases_of_points(points, facts, names), facts)
    phase = np.where(ruled.phase != Phase.UNKNOWN, ruled.phase, phase)
    phase = transfer_phases(points, phase, moved, stages, ranks)
    inner = np.where(moved.is_transfer, np.uint8(Phase.UNKNOWN), phase)
    passes = passes_of(points, inner, facts, moved.is_transfer)
    is_bucket = bucket_points(points, communications, moved, phase=phase, facts=facts)
    marks = layer_marks(operations, _chosen(points, passes.forward != NO_PASS), corrections)
    layers = forward_layers(
        points,
        passes.forward,
        marks,
        is_bucket,
        known_part=facts.part[points.scope],
        names=names,
        stage=stages.stage,
    )
    part, layer = layers.part.copy(), layers.layer.copy()
    lasting = facts.part[points.scope]
    is_plain_loss = (lasting == Part.LOSS) & (part == Part.UNKNOWN) & (phase == Phase.FORWARD)
    part[is_plain_loss] = Part.LOSS
    is_plain_embedding = (lasting == Part.EMBEDDING) & (part == Part.UNKNOWN)
    part[is_plain_embedding & (phase == Phase.FORWARD)] = Part.EMBEDDING
    part, layer = ruled.with_parts(part, layer)
    key = part.astype(np.int64) + 16 * (layer + 1) + (passes.forward + 1) * (1 << 32)
    starts = stretches(points, scopes, passes.forward, key)
    undone, source = undone_points(
        operations, points, facts, scopes, found=starts, backward=passes.backward
    )
    is_known = undone != NO_POINT
    part[is_known] = part[undone[is_known]]
    layer[is_known] = layer[undone[is_known]]
    # Evaluations without a number of their own whose name says what they undo.
    is_backward = np.isin(phase, (Phase.BACKWARD, Phase.RECOMPUTE))
    has_number = facts.own_sequence[facts.root[points.scope]] != NO_ID
    is_named = is_backward & ~has_number & (lasting == Part.EMBEDDING)
    part[is_named], layer[is_named] = Part.EMBEDDING, NO_LAYER
    if not source and layers.source:
        by_order = layers_by_reversal(points, passes, layers, is_bucket | moved.is_transfer, names)
        rows = by_order.layer != NO_LAYER
        layer[rows], part[rows] = by_order.layer[rows], by_order.part[rows]
        source = "order" if rows.any() else ""
    labels = Labels(part, phase, layer, passes.microbatch_of_points().astype(np.int64))
    labels = _with_communication(points, labels, is_bucket, moved, phase)
    part, layer = ruled.with_parts(labels.part, labels.layer)
    labels = Labels(part, labels.phase, layer, labels.microbatch)
    labels = _with_stages(points, labels, layers, stages, corrections)
    return _Found(labels, layers, stages, source)


def _chosen(points: WorkPoints, is_chosen: np.ndarray) -> WorkPoints:
    return WorkPoints(
        **{name: getattr(points, name)[is_chosen] for name in WorkPoints.__dataclass_fields__}
    )


def _with_communication(
    points: WorkPoints,
    labels: Labels,
    is_bucket: np.ndarray,
    moved: StageTransfers,
    phase: UInt8s,
) -> Labels:
    """Labels with buckets, transfers, updates and data in their own parts."""
    part, layer, microbatch = labels.part.copy(), labels.layer.copy(), labels.microbatch.copy()
    part[is_bucket] = Part.BUCKET
    # A bucket's copies happen when all is reduced: which layer's gradients they hold is unknown.
    is_copy = is_bucket & ~points.is_communication
    layer[is_copy], microbatch[is_copy] = NO_LAYER, NO_MICROBATCH
    part[moved.is_transfer] = Part.TRANSFER
    layer[moved.is_transfer] = NO_LAYER
    for of_phase, own in ((Phase.OPTIMIZER, Part.OPTIMIZER), (Phase.DATA, Part.DATA)):
        chosen = (phase == of_phase) & ~is_bucket & ~moved.is_transfer
        part[chosen], layer[chosen], microbatch[chosen] = own, NO_LAYER, NO_MICROBATCH
    microbatch = _transfer_microbatches(points, microbatch, moved, phase)
    return Labels(part, labels.phase, layer, microbatch)


def _transfer_microbatches(
    points: WorkPoints, microbatch: Int64s, moved: StageTransfers, phase: UInt8s
) -> Int64s:
    """A send belongs to the pass before it, a receive to the pass after it, of its own phase."""
    segment = points.rank.astype(np.int64) * (int(points.step.max()) + 2) + points.step + 1
    found = microbatch.copy()
    for own_phase in (Phase.FORWARD, Phase.BACKWARD):
        is_pass = (phase == own_phase) & ~moved.is_transfer & (microbatch != NO_MICROBATCH)
        before, after = neighbours(segment, is_pass)
        padded = np.append(microbatch, NO_MICROBATCH)
        rows = np.flatnonzero(moved.is_transfer & (phase == own_phase))
        found[rows] = np.where(moved.is_send[rows], padded[before[rows]], padded[after[rows]])
    return found


def _with_stages(
    points: WorkPoints,
    labels: Labels,
    layers: ForwardLayers,
    stages: StageOrder,
    corrections: Corrections,
) -> Labels:
    """Layers counted over all pipeline stages."""
    if stages.num_stages == 1:
        return labels
    per_stage = np.zeros(stages.num_stages, np.int64)
    np.maximum.at(per_stage, stages.stage, layers.num_layers)
    stated = corrections.layers_per_stage
    if len(stated) == stages.num_stages:
        per_stage = np.array(stated, np.int64)
    first = np.append(0, np.cumsum(per_stage)[:-1])
    shift = first[stages.stage][points.rank]
    layer = np.where(labels.layer == NO_LAYER, NO_LAYER, labels.layer + shift)
    return Labels(labels.part, labels.phase, layer, labels.microbatch)
