"""What names say: the phase and part of work inside an operator or annotation.

Only names that frameworks give themselves are read, and plain words in a user's annotations
("## forward ##"). The innermost scope that says something wins.

What holds around a scope holds in it (`inherited`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s, used_positions
from foretrace.graph._compiled import inherit
from foretrace.graph.nodes import Part, Phase
from foretrace.graph.operations.scopes import NO_SCOPE, Scopes
from foretrace.trace import NO_ID, Trace, is_autograd_node

_ENGINE = "autograd::engine::evaluate_function"
_RECOMPUTES = re.compile(r"CheckpointFunctionBackward|Checkpoint\w*Backward")
# Operators that only updates use: fused and multi-tensor ones.
_UPDATE = re.compile(r"aten::_(fused_(adam|sgd|adagrad)|foreach_|amp_)|apex::|.*multi_tensor")
_UPDATE_KERNEL = re.compile(r"multi_tensor_apply|[Ff]used_?[Aa]dam|adam_kernel|sgd_kernel")
_OPTIMIZER_MARK = re.compile(r"Optimizer\.|.*\b(optimi[sz]er|clip_grad|zero_grad)", re.IGNORECASE)
_DATA_MARK = re.compile(
    r"enumerate\(DataLoader\)|.*(data.?load|load.?batch|next.?batch|get.?batch|wait.?for.?batch)",
    re.IGNORECASE,
)
_FORWARD_MARK = re.compile(r".*forward", re.IGNORECASE)
_BACKWARD_MARK = re.compile(r".*backward", re.IGNORECASE)
_LOSS = re.compile(
    r".*(cross_entropy|nll_loss|mse_loss|l1_loss|kl_div|bce|_loss\b|\bloss\b)", re.IGNORECASE
)
_EMBEDDING = re.compile(r".*embedding", re.IGNORECASE)
_BUCKET = re.compile(r"torch[.:]+distributed[.:]+(ddp[.:]+)?reducer::")


@dataclass(frozen=True)
class ScopeFacts:
    """What is known of each scope, from its own and its surrounding scopes' names."""

    phase: UInt8s  # uint8[scopes + 1], Phase; the last row stands for "no scope"
    part: UInt8s  # uint8[scopes + 1], Part
    sequence: Int64s  # int64[scopes + 1], innermost autograd sequence number at or around
    own_sequence: Int64s  # int64[scopes + 1]
    root: Int32s  # int32[scopes + 1], outermost scope of the backward engine around; NO_SCOPE
    is_accumulating: Bools  # bool[scopes + 1], evaluations that only add a gradient up


def is_update_kernel(name: str) -> bool:
    """Whether a kernel with this name updates parameters."""
    return _UPDATE_KERNEL.search(name) is not None


def phase_of_operator(name: str) -> Phase:
    """The phase that an operator's name alone tells."""
    if name.startswith(_ENGINE):
        return Phase.BACKWARD
    if _RECOMPUTES.match(name):
        return Phase.RECOMPUTE
    if is_autograd_node(name):
        return Phase.BACKWARD
    if _UPDATE.match(name) or name.startswith("Optimizer."):
        return Phase.OPTIMIZER
    if name.startswith("enumerate(DataLoader)"):  # no annotation to older profilers
        return Phase.DATA
    return Phase.UNKNOWN


def phase_of_annotation(name: str) -> Phase:
    """The phase that an annotation's words tell; both ways at once tell nothing."""
    if _OPTIMIZER_MARK.match(name):
        return Phase.OPTIMIZER
    if _DATA_MARK.match(name):
        return Phase.DATA
    if _FORWARD_MARK.match(name) and not _BACKWARD_MARK.match(name):
        return Phase.FORWARD
    if _BACKWARD_MARK.match(name) and not _FORWARD_MARK.match(name):
        return Phase.BACKWARD
    return Phase.UNKNOWN


def part_of_name(name: str) -> Part:
    """The part that an operator's or annotation's name tells."""
    if _BUCKET.match(name):
        return Part.BUCKET
    if _LOSS.match(name):
        return Part.LOSS
    if _EMBEDDING.match(name) and not name.startswith(_ENGINE):
        return Part.EMBEDDING
    return Part.UNKNOWN


def scope_facts(traces: Sequence[Trace], scopes: Scopes) -> ScopeFacts:
    """The facts of all scopes of all ranks."""
    num = len(scopes)
    operator_phase = by_name(traces, scopes, phase_of_operator)
    mark_phase = by_name(traces, scopes, phase_of_annotation)
    own_phase = np.where(scopes.is_operator, operator_phase, mark_phase)
    own_part = by_name(traces, scopes, part_of_name)
    own_sequence = _own_sequences(traces, scopes)
    is_accumulating = by_name(traces, scopes, lambda text: "AccumulateGrad" in text)
    is_backward = scopes.is_operator & (own_phase == Phase.BACKWARD)
    root = inherited(
        scopes.parent, np.where(is_backward, np.arange(num), NO_SCOPE), NO_SCOPE, is_inner=False
    )
    is_forward_operator = scopes.is_operator & (own_sequence != NO_ID) & ~is_backward
    is_again = is_forward_operator & (root != NO_SCOPE) & (own_phase != Phase.OPTIMIZER)
    own_phase = np.where(is_again, Phase.RECOMPUTE, own_phase)
    phase = inherited(scopes.parent, own_phase.astype(np.int64), Phase.UNKNOWN, is_inner=True)
    part = inherited(scopes.parent, own_part.astype(np.int64), Part.UNKNOWN, is_inner=True)
    sequence = inherited(scopes.parent, own_sequence, NO_ID, is_inner=True)
    return ScopeFacts(
        phase=np.append(phase, Phase.UNKNOWN).astype(np.uint8),
        part=np.append(part, Part.UNKNOWN).astype(np.uint8),
        sequence=np.append(sequence, NO_ID),
        own_sequence=np.append(own_sequence, NO_ID),
        root=np.append(root, NO_SCOPE).astype(np.int32),
        is_accumulating=np.append(is_accumulating != 0, False),
    )


def by_name(traces: Sequence[Trace], scopes: Scopes, value: Callable[[str], int]) -> Int64s:
    """A number for each scope by its name; each text is asked once."""
    found = np.zeros(len(scopes), np.int64)
    known: dict[str, int] = {}
    for trace, name, rows in names_by_rank(traces, scopes):
        table = np.zeros(len(trace.strings) + 1, np.int64)
        for index in used_positions(name, len(trace.strings)).tolist():
            text = trace.strings[index]
            if text not in known:
                known[text] = int(value(text))
            table[index] = known[text]
        found[rows] = table[name]
    return found


def names_by_rank(traces: Sequence[Trace], scopes: Scopes) -> list[tuple[Trace, Int32s, slice]]:
    """Each trace, the name of each of its scopes, and where these scopes stand."""
    bounds = np.searchsorted(scopes.rank, np.arange(len(traces) + 1)).tolist()
    return [
        (trace, trace.name[scopes.event[low:high]], slice(low, high))
        for trace, low, high in zip(traces, bounds[:-1], bounds[1:], strict=True)
    ]


def _own_sequences(traces: Sequence[Trace], scopes: Scopes) -> Int64s:
    found = np.empty(len(scopes), np.int64)
    for trace, _, rows in names_by_rank(traces, scopes):
        found[rows] = trace.sequence[scopes.event[rows]]
    return found


def inherited(parent: Int32s, own: Int64s, nothing: int, *, is_inner: bool) -> Int64s:
    """Each scope's value: its own or one from around it, int64[scopes].

    Args:
        parent: scope around each; -1.
        own: value of each scope itself.
        nothing: the value that stands for none.
        is_inner: whether the innermost value wins; else the outermost.
    """
    found = np.empty(len(parent), np.int64)
    inherit(parent, own.astype(np.int64), nothing, is_inner, found)
    return found
