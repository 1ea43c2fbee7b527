"""`SliceSubjects`: what a node is about: name, operator, class and block, each text once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from foretrace.analyze import NO_BLOCK, NodeLabels, block_name
from foretrace.answer import bytes_text
from foretrace.base import Int16s, Int32s, Int64s, UInt8s, cut_short
from foretrace.graph import NO_MICROBATCH, Collective, ExecutionGraph, NodeKind

MAX_NAME_LENGTH = 90
NO_TEXT = -1
IntegerColumn: TypeAlias = UInt8s | Int16s | Int32s | Int64s

FACETS = ("name", "operator", "class", "block")


@dataclass(frozen=True)
class SliceSubjects:
    """Distinct subjects of some nodes, and which of them each node is about."""

    texts: tuple[str, ...]
    facets: tuple[tuple[int, ...], ...]  # per subject, positions in `texts` by `FACETS`; NO_TEXT
    of_node: Int64s  # int64[nodes asked for], position in `facets`

    def extended(self, more: Sequence[tuple[str, ...]]) -> SliceSubjects:
        """With these after the nodes, each given by its texts."""
        pool = {text: place for place, text in enumerate(self.texts)}
        facets = tuple(
            tuple(pool.setdefault(text, len(pool)) if text else NO_TEXT for text in texts)
            for texts in more
        )
        places = len(self.facets) + np.arange(len(more))
        return SliceSubjects(
            tuple(pool), (*self.facets, *facets), np.concatenate([self.of_node, places])
        )

    def joined(self, other: SliceSubjects) -> SliceSubjects:
        """With the nodes of another graph behind these."""
        pool = {text: place for place, text in enumerate(self.texts)}
        places = [pool.setdefault(text, len(pool)) for text in other.texts]
        facets = tuple(
            tuple(NO_TEXT if text == NO_TEXT else places[text] for text in one)
            for one in other.facets
        )
        of_node = np.concatenate([self.of_node, other.of_node + len(self.facets)])
        return SliceSubjects(tuple(pool), (*self.facets, *facets), of_node)


def subjects(graph: ExecutionGraph, nodes: Int64s, labels: NodeLabels) -> SliceSubjects:
    """What these nodes are about."""
    is_collective = graph.kind[nodes] == NodeKind.FINISH
    # A collective is called by its kind, size and group, so its number stands for its name.
    name = np.where(is_collective, len(graph.names) + graph.collective[nodes], graph.name[nodes])
    blocks = (graph.part, graph.phase, graph.layer, graph.microbatch)
    first, of_node = _distinct(
        (name, graph.operator[nodes], labels.label[nodes], *(column[nodes] for column in blocks))
    )
    pool: dict[str, int] = {}

    def place(text: str) -> int:
        return pool.setdefault(text, len(pool)) if text else NO_TEXT

    facets = tuple(
        (
            place(_name(graph, own_name)),
            place(_name(graph, int(graph.operator[node]))),
            place(labels.labels[labels.label[node]]),
            place(_block(graph, node)),
        )
        for own_name, node in zip(name[first].tolist(), nodes[first].tolist(), strict=True)
    )
    return SliceSubjects(tuple(pool), facets, of_node)


def collective_text(collective: Collective) -> str:
    """A collective by what it does: `allreduce 64.0 MiB, group 3 #12`."""
    size = "" if collective.num_bytes < 0 else f" {bytes_text(collective.num_bytes)}"
    group = f"group {collective.group}" if collective.group.isdigit() else collective.group
    return shortened(f"{collective.name}{size}, {group} #{collective.position}")


def shortened(name: str) -> str:
    """A name that fits a line."""
    return cut_short(name, MAX_NAME_LENGTH)


def _name(graph: ExecutionGraph, name: int) -> str:
    if name >= len(graph.names):
        return collective_text(graph.collectives[name - len(graph.names)])
    return shortened(graph.names[name]) if name >= 0 else ""


def _block(graph: ExecutionGraph, node: int) -> str:
    name = block_name(graph, node)
    microbatch = int(graph.microbatch[node])
    if name == NO_BLOCK:
        return ""
    return name if microbatch == NO_MICROBATCH else f"{name}, microbatch {microbatch}"


def _distinct(columns: tuple[IntegerColumn, ...]) -> tuple[Int64s, Int64s]:
    """Where each distinct row of these columns stands first, and which of them each row is."""
    if not len(columns[0]):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    table = np.stack([column.astype(np.int64) for column in columns], axis=1)
    _, first, of_row = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return first, of_row.reshape(-1).astype(np.int64)
