"""`Subjects`: every node under the name that time lost to it is blamed on.

That is the operator at work; with a kernel, or a call that waits, its own name too; of host time
outside operators the operator that came next; and of a stall what is known of its cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretrace.analyze.host_stalls import StallKind, host_stalls
from foretrace.answer import duration_text
from foretrace.base import Int32s, Int64s, cut_short
from foretrace.graph import HOST_KINDS, ExecutionGraph, NodeKind, Timeline

MAX_NAME = 80
_NAMELESS = "(anonymous namespace)::"
_HOST, _BETWEEN_CALLS = "host", "host code between calls"  # what no operator is known of
_PLAIN, _CALL, _KERNEL = 0, 1, 2  # how a name is put together


@dataclass(frozen=True)
class Subjects:
    """One name per node; the last of `names` is empty, for time of no node."""

    timeline: Timeline
    names: tuple[str, ...]
    subject: Int32s  # int32[nodes], position in `names`
    stall: Int32s  # int32[nodes], the same of what is known of its stall; -1: it did not stall

    @classmethod
    def of(cls, timeline: Timeline) -> Subjects:
        """All nodes of a timeline's graph."""
        graph = timeline.graph
        manner = np.full(graph.num_nodes, _PLAIN, np.int64)
        manner[graph.kind == NodeKind.SYNC] = _CALL
        manner[graph.kind == NodeKind.KERNEL] = _KERNEL
        texts = np.int64(len(graph.names) + 1)
        key = manner
        for column in (graph.name, graph.operator, _coming_operator(graph)):
            key = key * texts + column + 1
        unique, row = np.unique(key, return_inverse=True)
        place: dict[str, int] = {}
        of_key = [
            place.setdefault(_name(graph.names, each, int(texts)), len(place))
            for each in unique.tolist()
        ]
        subject = np.array(of_key, np.int32)[row.reshape(-1)]
        kinds = host_stalls(timeline).kind_of_nodes(graph.num_nodes)
        of_kind = [-1, *(place.setdefault(kind.words, len(place)) for kind in StallKind if kind)]
        return cls(timeline, (*place, ""), subject, np.array(of_kind, np.int32)[kinds])

    def grown(self, rank: int, typical: int, step: int, *, is_host: bool) -> int:
        """What takes most longer on one rank than on another in a step; -1: nothing does.

        Args:
            rank: whose time grew.
            typical: the rank to compare it with.
            step: position in the graph's `step_names`; NO_STEP.
            is_host: compare the host's work; else compute.
        """
        cell = self._cells[is_host]
        mine, other = cell.get((rank, step)), cell.get((typical, step))
        if mine is None:
            return -1
        more_ns = mine if other is None else mine - other
        best = int(np.argmax(more_ns))
        return best if more_ns[best] > 0 else -1

    @cached_property
    def _cells(self) -> tuple[dict[tuple[int, int], Int64s], dict[tuple[int, int], Int64s]]:
        """Work by subject of every rank and step: of devices, or operators, and of hosts."""
        works = (NodeKind.KERNEL, NodeKind.OPERATOR)
        return self._work(works), self._work(
            tuple(kind for kind in HOST_KINDS if kind not in works)
        )

    def _work(self, kinds: tuple[NodeKind, ...]) -> dict[tuple[int, int], Int64s]:
        graph = self.timeline.graph
        node = np.flatnonzero(graph.is_of(*kinds) & (graph.rank >= 0))
        if not len(node):
            return {}
        cell = (graph.rank[node].astype(np.int64) << 32) + graph.step[node] + 1
        cells, row = np.unique(cell, return_inverse=True)
        key = row.reshape(-1) * len(self.names) + self.subject[node]
        took_ns = self.timeline.duration_ns[node]
        sums = np.bincount(key, weights=took_ns, minlength=len(cells) * len(self.names)).reshape(
            len(cells), -1
        )
        return {
            (one >> 32, (one & 0xFFFFFFFF) - 1): sums[at] for at, one in enumerate(cells.tolist())
        }


def _name(names: tuple[str, ...], key: int, texts: int) -> str:
    """The name that a key of `Subjects.of` stands for."""
    parts = []
    for _ in range(3):
        key, position = divmod(key, texts)
        parts.append(names[position - 1] if position else "")
    coming, at_work, own = parts
    if key == _CALL and at_work:
        return f"{own} in {at_work}"
    if key == _KERNEL and at_work:
        return f"{shortened(own)} of {at_work}"
    if not at_work and coming:
        return f"{own} before {coming}"
    return at_work or (_BETWEEN_CALLS if own == _HOST else own)


def _coming_operator(graph: ExecutionGraph) -> Int32s:
    """Of time between calls outside operators: the next operator on its thread; else -1."""
    host = np.flatnonzero(graph.is_host)
    host = graph.in_lanes(host)
    known = np.flatnonzero(graph.operator[host] >= 0)
    found = np.full(graph.num_nodes, -1, np.int32)
    if len(known):
        at = np.searchsorted(known, np.arange(len(host)))
        after = host[known[np.minimum(at, len(known) - 1)]]
        is_known = (at < len(known)) & (graph.lane[after] == graph.lane[host])
        found[host] = np.where(is_known, graph.operator[after], -1)
    found[graph.kind != NodeKind.HOST_SEGMENT] = -1
    return found


def of_it_text(name: str, subject_ns: int, lost_ns: int) -> str:
    """What a sentence about a loss says of what it is blamed on, and how much of it that is."""
    if not name:
        return ""
    if subject_ns == lost_ns:
        return f": {shortened(name)}"
    return f"; {duration_text(subject_ns)} of it {shortened(name)}"


def _bare(name: str) -> str:
    """A kernel's name up to its arguments, without those of templates."""
    found, depth = "", 0
    for mark in name.replace(_NAMELESS, ""):
        if mark == "(" and not depth and found[-1:].strip():
            break
        depth = max(depth + (mark == "<") - (mark == ">"), 0)
        if not depth and mark not in "<>":
            found += mark
    return found


def shortened(name: str) -> str:
    """A name short enough for a sentence: of a kernel without its template and arguments."""
    is_kernel = name.startswith("void ") or "::" in name or "<" in name
    bare = _bare(name) if is_kernel else name
    bare = bare.removeprefix("void ").strip() or name
    return cut_short(bare, MAX_NAME)
