"""What the blocks rest on, and what a reader must know about them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph.blocks.corrections import Corrections
from foretrace.graph.blocks.exchange import StageOrder
from foretrace.graph.blocks.layers import ForwardLayers
from foretrace.graph.draft import DraftNodes
from foretrace.graph.graph import Finding
from foretrace.graph.nodes import DEVICE_KINDS, NO_LAYER, NodeKind, Part, Phase
from foretrace.graph.recording import BlockEvidence

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
    work_ns = np.where(is_work, columns["measured_ns"], 0).astype(np.int64)
    phase, part = columns["phase"], columns["part"]
    is_backward: Bools = np.isin(phase, [int(one) for one in _BACKWARDS])
    has_backward = bool((is_backward & is_work).any())
    rows = [
        BlockEvidence(
            "phases",
            "autograd and marks" if has_backward else "no backward pass",
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
