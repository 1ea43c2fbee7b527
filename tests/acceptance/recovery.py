"""What a recording recovered of a generated job, laid beside the truth.

Public results only: the graph, its measured timeline and simulations of it. Device nodes are named
as the truth names operations, (rank, correlation): on one stream both list them in launch order.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from foretrace.analyze import steps
from foretrace.base import Bools, Int64s
from foretrace.graph import (
    DEVICE_KINDS,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Recording,
    Timeline,
    build_recording,
)
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.truth import Dependency, Job, Ref, write

INTER_STREAM = (EdgeKind.INTER_STREAM, EdgeKind.INTER_STREAM_INFERRED)
_ENTER = (*DEVICE_KINDS, NodeKind.ARRIVE)
_LEAVE = (*DEVICE_KINDS, NodeKind.FINISH)


def recording_of_job(job: Job) -> Recording:
    """The recording that the job's files give."""
    with tempfile.TemporaryDirectory() as folder:
        return build_recording(load_traces(write(job, Path(folder), compress=False)))


@dataclass(frozen=True)
class Recovered:
    """A generated job and the recording made of its files."""

    job: Job
    recording: Recording

    @property
    def graph(self) -> ExecutionGraph:
        """The recovered graph."""
        return self.recording.graph

    @cached_property
    def replayed(self) -> Timeline:
        """The recording's own durations, simulated."""
        return simulate(self.graph)

    def step_ns(self, timeline: Timeline) -> Int64s:
        """Step times as the truth gives them, int64[ranks, steps]."""
        table = steps(timeline)
        found = np.full(self.job.step_ns.shape, -1, np.int64)
        found[table.rank, table.step] = table.duration_ns
        return found

    @cached_property
    def entered(self) -> dict[Ref, int]:
        """Node in which each operation begins: the operation itself, or its arrival."""
        return self._nodes(_ENTER)

    @cached_property
    def left(self) -> dict[Ref, int]:
        """Node in which each operation ends: the operation itself, or its finish."""
        return self._nodes(_LEAVE)

    def _nodes(self, kinds: tuple[NodeKind, ...]) -> dict[Ref, int]:
        graph = self.graph
        chosen = graph.nodes_of(*kinds)
        by_lane: dict[tuple[int, int], list[int]] = {}
        for node in chosen.tolist():
            lane = graph.lanes[graph.lane[node]]
            by_lane.setdefault((lane.rank, lane.number), []).append(node)
        found: dict[Ref, int] = {}
        for rank in range(self.job.num_ranks):
            streams: dict[int, list[Ref]] = {}
            for each in self.job.operations(rank):
                streams.setdefault(each.stream, []).append((rank, each.correlation))
            for stream, refs in streams.items():
                nodes = by_lane.pop((rank, stream))
                found.update(zip(refs, nodes, strict=True))
        assert not by_lane, "lanes with operations that the truth does not know"
        return found

    @cached_property
    def ref_of_node(self) -> dict[int, Ref]:
        """The operation of every device node."""
        return {node: ref for nodes in (self.entered, self.left) for ref, node in nodes.items()}

    def inter_stream_edges(self) -> set[tuple[Ref, Ref]]:
        """The recovered edges between streams."""
        graph = self.graph
        chosen = np.isin(graph.edge_kind, INTER_STREAM)
        source, target = graph.predecessor[chosen].tolist(), graph.edge_target[chosen].tolist()
        name = self.ref_of_node
        return {(name[one], name[other]) for one, other in zip(source, target, strict=True)}

    def delaying_edges(self) -> set[tuple[Ref, Ref]]:
        """The true edges between streams that delay their target by more than the jitter."""
        return {
            (edge.source, edge.target)
            for rank in range(self.job.num_ranks)
            for edge in self.job.edges(rank, (Dependency.INTER_STREAM,))
            if edge.delay_ns > self.job.config.jitter_ns
        }

    def wait_errors_ns(self) -> Int64s:
        """Recovered minus true wait of every member of every collective, int64[members]."""
        measured = self.recording.measured
        members = [member for each in self.job.collectives for member in each.members]
        refs = [(member.rank, member.correlation) for member in members]
        arrive = np.array([self.entered[ref] for ref in refs])
        finish = np.array([self.left[ref] for ref in refs])
        waited_ns = measured.start_ns[finish] - measured.start_ns[arrive]
        error_ns: Int64s = waited_ns - np.array([member.wait_ns for member in members])
        return error_ns

    def has_family(self, family: str) -> Bools:
        """Nodes of compute kernels of one family, bool[nodes]."""
        return self._mask(
            [
                self.entered[rank, each.correlation]
                for rank in range(self.job.num_ranks)
                for each in self.job.operations(rank)
                if each.family == family
            ]
        )

    def is_kernel_of(self, rank: int) -> Bools:
        """Compute kernels of one rank, bool[nodes]."""
        chosen: Bools = (self.graph.kind == NodeKind.KERNEL) & (self.graph.rank == rank)
        return chosen

    def has_link(self, link: str) -> Bools:
        """Finish nodes of the collectives over one link, bool[nodes]."""
        return self._mask(
            [
                self.left[member.rank, member.correlation]
                for each in self.job.collectives
                if each.link == link
                for member in each.members
            ]
        )

    def _mask(self, nodes: list[int]) -> Bools:
        mask = np.zeros(self.graph.num_nodes, np.bool_)
        mask[nodes] = True
        return mask

    def scaled_ns(self, chosen: Bools, factor: float) -> Int64s:
        """The recording's durations, those chosen times `factor`."""
        measured_ns = self.graph.measured_ns
        return np.where(chosen, np.rint(measured_ns * factor).astype(np.int64), measured_ns)

    def prediction_error(self, duration_ns: Int64s, changed: Job) -> float:
        """Largest relative error of any rank's any step against the changed job's truth."""
        predicted_ns = self.step_ns(simulate(self.graph, duration_ns))
        return float(np.abs(predicted_ns / changed.step_ns - 1).max())

    def merged_buckets_ns(self, first: int, second: int) -> Int64s:
        """Durations with one gradient bucket joined to another, as a user could edit them.

        In every step the first bucket's transfer and its copy out take no time of their own; the
        second's take what both need: a latency and both sizes at the bandwidth that the trace's
        own transfers among the same ranks show, and both copies.
        """
        graph = self.graph
        duration_ns = graph.measured_ns.copy()
        finish = graph.nodes_of(NodeKind.FINISH)
        by_rank_and_step: dict[tuple[int, int], list[int]] = {}
        for node in finish[self.has_link("dp")[finish]].tolist():
            key = int(graph.rank[node]), int(graph.step[node])
            by_rank_and_step.setdefault(key, []).append(node)
        latency_ns, bytes_per_ns = self._fitted_link()
        for key, nodes in by_rank_and_step.items():
            one, other = nodes[first], nodes[second]
            sizes = [graph.collectives[graph.collective[node]].num_bytes for node in (one, other)]
            duration_ns[one] = 0
            duration_ns[other] = round(latency_ns + sum(sizes) / bytes_per_ns)
            copies = self._gradient_copies(*key)
            duration_ns[copies[second]] += duration_ns[copies[first]]
            duration_ns[copies[first]] = 0
        return duration_ns

    def _fitted_link(self) -> tuple[float, float]:
        """Latency and bytes per ns of the transfers among gradient groups' ranks."""
        graph = self.graph
        finish = np.flatnonzero(self.has_link("dp") | self.has_link("ring"))
        size = np.array([graph.collectives[of].num_bytes for of in graph.collective[finish]])
        slope, latency_ns = np.polyfit(size, graph.measured_ns[finish], 1)
        return float(latency_ns), float(1 / slope)

    def _gradient_copies(self, rank: int, step: int) -> list[int]:
        """Copies within the device: one per bucket, in the order of the buckets."""
        graph = self.graph
        is_own = self._is_gradient_copy & (graph.rank == rank) & (graph.step == step)
        return [int(node) for node in np.flatnonzero(is_own)]

    @cached_property
    def _is_gradient_copy(self) -> Bools:
        is_within = np.array(["DtoD" in name for name in self.graph.names], np.bool_)
        chosen: Bools = is_within[self.graph.name] & (self.graph.kind == NodeKind.MEMCPY)
        return chosen
