"""A generated job: its true graph, its true times, and everything asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tests.truth.assembly import Program, built, training
from tests.truth.changes import Change
from tests.truth.config import JobConfig
from tests.truth.draws import normals
from tests.truth.engine import Times, contended, longest_path
from tests.truth.records import (
    TrueCall,
    TrueClock,
    TrueCollective,
    TrueEdge,
    TrueMember,
    TrueOperation,
)
from tests.truth.structure import Collective, Dependency, Int64s, Span, Structure

CLOCK_ORIGIN_NS = 400_000_000_000_000  # keeps every timestamp positive, offsets of hours too
_MIN_SHARE = 5  # no draw falls below its base / 5
_SAME_RANK = (
    Dependency.THREAD,
    Dependency.LAUNCH,
    Dependency.QUEUE,
    Dependency.SYNC,
    Dependency.STREAM,
    Dependency.INTER_STREAM,
)


def process_id(rank: int) -> int:
    """The process id in a rank's file; also its main thread's id."""
    return 2_590_000 + 100 * rank


def thread_id(rank: int, thread: int) -> int:
    """The id of a host thread: 0 main, 1 autograd."""
    return process_id(rank) + 40 * thread


@dataclass(frozen=True)
class Job:
    """One run of a generated training job; `make_job` makes it, `after` changes it."""

    config: JobConfig
    structure: Structure
    times: Times
    clocks: tuple[TrueClock, ...]
    program: Program
    changes: tuple[Change, ...]

    def after(self, *changes: Change) -> Job:
        """The same job with the same draws and these changes, on top of earlier ones."""
        return _run(self.config, self.structure, self.program, (*self.changes, *changes))

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.config.num_ranks

    # -- what happened -------------------------------------------------------------------------

    @cached_property
    def step_ns(self) -> Int64s:
        """True step times, int64[ranks, steps]: host mark to the later of host and device end.

        The device end is that of the last operation launched between the marks.
        """
        return np.array(
            [
                [
                    self.step_end_ns(rank, step) - self.moment_ns(span.begin, span.begin_part)
                    for step, span in enumerate(items.steps)
                ]
                for rank, items in enumerate(self.structure.ranks)
            ],
            np.int64,
        )

    def step_end_ns(self, rank: int, step: int) -> int:
        """When a step is over on a rank, on the true clock."""
        span = self.structure.ranks[rank].steps[step]
        items = self.structure.ranks[rank]
        # A rank's nodes are numbered in the order of its program, across its threads.
        launched = (
            self.ends_ns[each.node]
            for each in items.operations
            if span.begin < items.calls[each.call].node < span.end
        )
        return max(self.moment_ns(span.end, span.end_part), max(launched, default=0))

    @cached_property
    def host_step_ns(self) -> Int64s:
        """Host mark to host mark, int64[ranks, steps]."""
        bounds = [
            [self._step_bounds(span) for span in items.steps] for items in self.structure.ranks
        ]
        return np.array([[high - low for low, high in rank] for rank in bounds], np.int64)

    def _step_bounds(self, span: Span) -> tuple[int, int]:
        return (
            self.moment_ns(span.begin, span.begin_part),
            self.moment_ns(span.end, span.end_part),
        )

    @cached_property
    def starts_ns(self) -> list[int]:
        """Start of every node, on the true clock."""
        listed: list[int] = self.times.start_ns.tolist()
        return listed

    @cached_property
    def ends_ns(self) -> list[int]:
        """End of every node, on the true clock."""
        listed: list[int] = self.times.end_ns.tolist()
        return listed

    @cached_property
    def _first_edge(self) -> list[int]:
        listed: list[int] = self.structure.first_edge.tolist()
        return listed

    @cached_property
    def _predecessor(self) -> list[int]:
        listed: list[int] = self.structure.predecessor.tolist()
        return listed

    def moment_ns(self, node: int, part: int) -> int:
        """A place inside a host segment, `part` of 64, on the true clock."""
        return self.starts_ns[node] + (self.ends_ns[node] - self.starts_ns[node]) * part // 64

    def call_begin_ns(self, node: int) -> int:
        """When a host thread gets to a call: its first edge is the host's order."""
        return self.ends_ns[self._predecessor[self._first_edge[node]]]

    def calls(self, rank: int) -> Iterator[TrueCall]:
        """Every runtime call of a rank, in the order of the program."""
        for call in self.structure.ranks[rank].calls:
            begin = self.call_begin_ns(call.node)
            yield TrueCall(
                rank=rank,
                correlation=call.correlation,
                name=call.name,
                thread=thread_id(rank, call.thread),
                start_ns=begin,
                end_ns=self.ends_ns[call.node],
                waited_ns=self.starts_ns[call.node] - begin,
            )

    def operations(self, rank: int) -> Iterator[TrueOperation]:
        """Every device operation of a rank, in the order of launch."""
        for each in self.structure.ranks[rank].operations:
            yield TrueOperation(
                rank=rank,
                correlation=each.correlation,
                name=each.name,
                family=each.family,
                category=each.category,
                stream=each.stream,
                start_ns=self.starts_ns[each.arrive],
                end_ns=self.ends_ns[each.node],
                collective=each.collective,
                block=each.belongs_to,
            )

    @cached_property
    def collectives(self) -> tuple[TrueCollective, ...]:
        """Every communication with each member's arrival, wait and transfer."""
        return tuple(self._true_collective(each) for each in self.structure.collectives)

    def _true_collective(self, each: Collective) -> TrueCollective:
        members = []
        for rank in sorted(each.expected):
            arrival = self.starts_ns[each.arrives[rank]]
            begin = arrival if each.hub < 0 else self.ends_ns[each.hub]
            if each.is_exchange:
                begin = max(self.ends_ns[self._predecessor[slot]] for slot in each.slots[rank])
            end = self.ends_ns[each.finishes[rank]]
            correlation = each.correlations[rank]
            members.append(TrueMember(rank, correlation, arrival, begin - arrival, end - begin))
        return TrueCollective(
            index=each.index,
            name=each.name,
            group=each.group.name,
            link=each.group.link,
            position=each.position,
            num_bytes=each.num_bytes,
            members=tuple(members),
        )

    # -- why -----------------------------------------------------------------------------------

    def edges(self, rank: int, kinds: tuple[Dependency, ...] = _SAME_RANK) -> list[TrueEdge]:
        """The true edges within a rank, of these kinds; members of `collectives` are the rest."""
        structure = self.structure
        correlation = self._correlation_of(rank)
        edges = []
        for node in correlation:
            low, high = self._first_edge[node], self._first_edge[node + 1]
            for edge in range(low, high):
                kind = Dependency(int(structure.edge_kind[edge]))
                if kind in kinds and self._predecessor[edge] in correlation:
                    edges.append(
                        TrueEdge(
                            kind=kind,
                            source=(rank, correlation[self._predecessor[edge]]),
                            target=(rank, correlation[node]),
                            delay_ns=self._delay_ns(edge, low, high),
                        )
                    )
        return edges + self._host_edges(rank, kinds)

    def _correlation_of(self, rank: int) -> dict[int, int]:
        """Node to correlation, of calls and of both nodes of operations."""
        items = self.structure.ranks[rank]
        found = {call.node: call.correlation for call in items.calls}
        for each in items.operations:
            found[each.arrive] = found[each.node] = each.correlation
        return found

    def _delay_ns(self, edge: int, low: int, high: int) -> int:
        lag = self._lag
        ready = [self.ends_ns[self._predecessor[at]] + lag[at] for at in range(low, high)]
        others = ready[: edge - low] + ready[edge - low + 1 :]
        return max(0, ready[edge - low] - max(others, default=0))

    @cached_property
    def _lag(self) -> list[int]:
        listed: list[int] = self.structure.lag_ns.tolist()
        return listed

    def _host_edges(self, rank: int, kinds: tuple[Dependency, ...]) -> list[TrueEdge]:
        """Call to next call, on one thread or across a hand-over; delay: host time between."""
        edges = []
        for before, after in pairwise(self.structure.ranks[rank].calls):
            crosses = before.thread != after.thread
            kind = Dependency.THREAD if crosses else Dependency.HOST
            if kind in kinds:
                between_ns = self.call_begin_ns(after.node) - self.ends_ns[before.node]
                source, target = (rank, before.correlation), (rank, after.correlation)
                edges.append(TrueEdge(kind, source, target, between_ns))
        return edges


def drawn_ns(config: JobConfig, structure: Structure) -> tuple[Int64s, Int64s]:
    """Drawn duration and start delay of every node; zero stays zero."""
    salt = int(np.random.default_rng(config.seed).integers(1 << 62))
    drawn = structure.base_ns + np.rint(structure.std_ns * normals(structure.key, salt))
    duration = np.maximum(drawn.astype(np.int64), structure.base_ns // _MIN_SHARE)
    for rank, factor in config.slow_ranks:
        chosen = (structure.rank == rank) & (structure.family >= 0)
        duration = np.where(chosen, np.rint(duration * factor).astype(np.int64), duration)
    delays = structure.delay_std_ns * np.abs(normals(structure.delay_key, salt))
    return duration, np.rint(delays).astype(np.int64)


def _run(
    config: JobConfig, structure: Structure | None, program: Program, changes: tuple[Change, ...]
) -> Job:
    changed = config
    for change in changes:
        changed = change.config(changed)
    rng = np.random.default_rng((config.seed, 1))
    skews = rng.integers(0, config.start_skew_ns + 1, config.num_ranks)
    offsets = rng.integers(-config.clock_offset_ns, config.clock_offset_ns + 1, config.num_ranks)
    drifts = rng.uniform(-1.0, 1.0, config.num_ranks) * config.clock_drift_ppm * 1_000.0
    if structure is None or changed != config:
        structure = built(changed, tuple(skews.tolist()), program)
    duration_ns, delay_ns = drawn_ns(config, structure)
    for change in changes:
        duration_ns = change.duration_ns(structure, duration_ns)
    if config.contention > 1.0:
        times = contended(structure, duration_ns, delay_ns, config.contention)
    else:
        times = longest_path(structure, duration_ns, delay_ns)
    clocks = tuple(
        TrueClock(rank, CLOCK_ORIGIN_NS + int(offset), round(drift))
        for rank, (offset, drift) in enumerate(zip(offsets, drifts, strict=True))
    )
    return Job(changed, structure, times, clocks, program, changes)


def make_job(config: JobConfig, program: Program = training) -> Job:
    """A run of the job that `config` describes; the same config gives the same run.

    `program` is what each rank runs; the training loop unless told.
    """
    return _run(config, None, program, ())
