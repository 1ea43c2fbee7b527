"""Blocks that were found, held against what a generated job truly is."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from foretrace.graph import DEVICE_KINDS, Corrections, NodeKind, Part, Phase, Recording
from foretrace.graph import build_recording as built
from foretrace.trace import load_traces
from tests.truth import Block, JobConfig, TrueOperation, make_job, write

NO_CORRECTIONS = Corrections()


@dataclass(frozen=True)
class Judged:
    """A recording of a generated job, each device operation with its true and its found block."""

    recording: Recording
    rows: tuple[tuple[TrueOperation, Block], ...]

    def share(self, *questions: str) -> float:
        """Share of device time whose answers to all of these are right."""
        total = right = 0
        for operation, found in self.rows:
            time_ns = operation.end_ns - operation.start_ns
            total += time_ns
            is_right = all(
                getattr(operation.block, each) == getattr(found, each) for each in questions
            )
            right += time_ns * is_right
        return right / total

    def source(self, about: str) -> str:
        """What answered a question."""
        return next(each.source for each in self.recording.block_evidence if each.about == about)


@cache
def judged(config: JobConfig, corrections: Corrections = NO_CORRECTIONS) -> Judged:
    """The job's files read, and every operation found again by its stream and order."""
    job = make_job(config)
    with tempfile.TemporaryDirectory() as folder:
        write(job, Path(folder))
        recording = built(load_traces([folder]), corrections=corrections)
    graph, end_ns = recording.graph, recording.measured.end_ns
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    kinds = (*DEVICE_KINDS, NodeKind.FINISH)
    for node in graph.nodes_of(*kinds).tolist():
        where = int(graph.rank[node]), graph.lanes[graph.lane[node]].number
        found[where].append((int(end_ns[node]), node))
    rows = []
    for rank in range(job.num_ranks):
        true: dict[int, list[tuple[int, TrueOperation]]] = defaultdict(list)
        for operation in job.operations(rank):
            true[operation.stream].append((operation.end_ns, operation))
        for stream, operations in true.items():
            operations.sort(key=lambda pair: pair[0])
            pairs = zip(sorted(found[rank, stream]), operations, strict=True)
            rows += [(operation, _block_of(recording, node)) for (_, node), (_, operation) in pairs]
    return Judged(recording, tuple(rows))


def _block_of(recording: Recording, node: int) -> Block:
    graph = recording.graph
    return Block(
        part=Part(int(graph.part[node])).name.lower(),
        phase=Phase(int(graph.phase[node])).name.lower(),
        layer=int(graph.layer[node]),
        microbatch=int(graph.microbatch[node]),
    )
