"""`Recording`: a graph with what was measured beside it; and what a question may be asked of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from foretrace.answer import Answer, Json, Plain, Sentences, Subject, Table, Told, plain
from foretrace.base import NS_PER_S, Int32s, Int64s
from foretrace.graph.blocks.table import Blocks
from foretrace.graph.graph import ExecutionGraph, Finding, Timeline
from foretrace.graph.nodes import NodeKind
from foretrace.trace import ChakraTrace


@dataclass(frozen=True)
class BlockEvidence(Plain):
    """One question about blocks and what answered it."""

    about: str  # "phases", "layers", "backward layers", "microbatches", "stages"
    source: str  # "repetition", "modules", "sequence numbers", ...; "" nothing
    is_inferred: bool  # from order or repetition, where nothing states it
    share: float  # of the device's (on the CPU: the operators') time with this known, 0 to 1
    note: str = ""  # a number or name that a reader can check: "40 layers", "TransformerLayer"

    @property
    def sentence(self) -> str:
        """What was found from what, and how sure that is."""
        source = self.source or ("nothing" if self.about != "parts" else "all of these")
        note = f", {self.note}" if self.note else ""
        sure = ", inferred" if self.is_inferred else ""
        share = f"{100 * self.share:.1f} % of the work"
        return f"{self.about}: {source}{note}{sure}; {share}"


@dataclass(frozen=True, repr=False)
class BlocksWithEvidence(Answer):
    """A run's blocks, and what they were found from."""

    blocks: Blocks
    evidence: tuple[BlockEvidence, ...]
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """How many blocks, and how much of the work they hold."""
        return self.blocks.headline

    @property
    def note(self) -> str:
        """How times are counted."""
        return self.blocks.note

    @property
    def is_empty(self) -> bool:
        """Whether no block was found."""
        return self.blocks.is_empty

    def parts(self) -> tuple[Told, ...]:
        """The blocks, what they rest on, and what must be known."""
        return (
            *self.blocks.parts(),
            Sentences.of("found from", (one.sentence for one in self.evidence)),
            Sentences.of("notes", self.notes),
        )

    def tables(self) -> tuple[Table, ...]:
        """The blocks' tables."""
        return self.blocks.tables()

    def as_json(self) -> Json:
        """The blocks, and the evidence."""
        return {**self.blocks.as_json(), "evidence": plain(self.evidence)}


@dataclass(frozen=True)
class Clock:
    """How one rank's clock was laid onto the first rank's."""

    rank: int
    offset_ns: int  # what to subtract from this rank's timestamps
    drift_ppb: int  # ns per second that remain, removed too
    spread_ns: int  # median absolute residual of the matched collective ends
    num_matches: int  # collectives used; 0: not aligned, only the start of the trace is


@dataclass(frozen=True)
class MemoryEvents:
    """Allocations and frees on one memory of one rank, in order of time."""

    rank: int
    is_device: bool
    device: int  # index; -1 of the host
    at_ns: Int64s  # int64[events], on the timeline's clock and zero
    change_bytes: Int64s  # int64[events]; negative frees
    allocated_bytes: Int64s  # int64[events], total after the event; -1 unknown
    reserved_bytes: Int64s  # int64[events], held by the allocator after the event; -1 unknown
    operators: tuple[str, ...] = ()
    operator: Int32s | None = None  # int32[events], position in `operators`; -1 unknown


@dataclass(frozen=True)
class Begun:
    """What one rank began at a place of its group."""

    rank: int
    name: str  # "allreduce", ...
    num_bytes: int  # -1 unknown
    is_open: bool  # it was issued, and never ran to its end
    called_ns: int  # when it was issued, on the timeline's clock and zero


@dataclass(frozen=True)
class Unmatched:
    """A place of a process group at which its recorded members differ.

    Some began an operation that others never did, or they began different ones.
    """

    name: str  # "allreduce", ...
    group: str
    position: int  # in the group, from 0
    num_bytes: int  # -1 unknown
    ranks: tuple[int, ...]  # recorded members that began it
    missing_ranks: tuple[int, ...]  # recorded members that did not
    begun: tuple[Begun, ...] = ()  # one per rank of `ranks`
    ended_ranks: tuple[int, ...] = ()  # missing ones that begin nothing later in the group either


@dataclass(frozen=True)
class Ending:
    """What one rank was doing when its file ends."""

    rank: int
    at_ns: int  # last event, on the timeline's clock and zero
    operator: str  # framework operator that began last; "" none
    open_names: tuple[str, ...]  # annotations, operators and calls around the end, outermost first
    is_cut_off: bool  # the file stops in the middle


@dataclass(frozen=True)
class ChakraOrigin:
    """The Chakra files that a graph was read from, so that nothing of them is lost on the way."""

    traces: tuple[ChakraTrace, ...]  # by rank
    trace: Int32s  # int32[nodes], position in `traces`; -1 of nodes that no record stands for
    row: Int64s  # int64[nodes], record in that file
    # Of each file, whether its control dependencies hold nodes up as its data dependencies do.
    is_control_held: tuple[bool, ...]


@dataclass(frozen=True)
class Recording:
    """Traces of one job, understood: what `load` returns the inside of.

    `graph` alone reaches a simulation. `measured` and `recorded_ns` are the answer to compare
    with, and the null models' input.
    """

    graph: ExecutionGraph
    measured: Timeline  # observed start and end of every node, on the aligned clock
    recorded_ns: Int64s  # int64[nodes], duration as the trace has it, waiting included
    clocks: tuple[Clock, ...]
    findings: tuple[Finding, ...]
    unprofiled_step_ns: dict[int, int]  # rank -> median step time without profiler, if recorded
    memory: tuple[MemoryEvents, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    endings: tuple[Ending, ...] = ()  # one per rank
    block_evidence: tuple[BlockEvidence, ...] = ()  # what parts, phases and layers rest on
    chakra: ChakraOrigin | None = None  # of a graph from Chakra files that others wrote
    # rank -> raw timestamp, as its file has it, of the end of its RANK_START; empty of Chakra
    began_ns: Mapping[int, int] = field(default_factory=dict)

    def on_timeline(self, rank: int, raw_ns: Int64s) -> Int64s:
        """Timestamps as a rank's file has them on the timeline's clock and zero.

        Raises:
            KeyError: if the files' own timestamps are not known.
        """
        graph = self.graph
        (start,) = np.flatnonzero((graph.kind == NodeKind.RANK_START) & (graph.rank == rank))
        drift_ppb = next((one.drift_ppb for one in self.clocks if one.rank == rank), 0)
        since_ns = raw_ns - self.began_ns[rank]
        # as `Clocks.aligned` has it: ns * ppb passes int64 after 54 minutes at 200 ppm
        seconds, rest_ns = np.divmod(since_ns, NS_PER_S)
        drift_ns = seconds * drift_ppb + rest_ns * drift_ppb // NS_PER_S
        aligned_ns: Int64s = since_ns - drift_ns + self.measured.end_ns[start]
        return aligned_ns


@runtime_checkable
class HasTimeline(Protocol):
    """An estimate, a prediction, a job under edits: simulated once."""

    @property
    def timeline(self) -> Timeline:
        """When each node starts and ends."""
        ...


class HasRecording(Protocol):
    """A job."""

    @property
    def recording(self) -> Recording:
        """What was measured."""
        ...

    @property
    def replayed(self) -> Timeline:
        """Its replay."""
        ...

    def check_times(self, doing: str) -> None:
        """Refuse what says how long nothing took."""
        ...


Run: TypeAlias = Timeline | HasTimeline | HasRecording


def measured_of(run: Run) -> Timeline:
    """What was measured of a job; a timeline as it is; of anything else what was simulated."""
    if isinstance(run, Timeline):
        return run
    if isinstance(run, HasTimeline):
        return run.timeline
    run.check_times("measure")
    return run.recording.measured


def replayed_of(run: Run) -> Timeline:
    """The replay of a job; a timeline as it is; of anything else what was simulated."""
    if isinstance(run, Timeline):
        return run
    if isinstance(run, HasTimeline):
        return run.timeline
    run.check_times("replay")
    return run.replayed


def recording_of(run: Recording | HasRecording) -> Recording:
    """The recording of a job, or one as it is."""
    return run if isinstance(run, Recording) else run.recording


MEASURED: Subject[Run, Timeline] = Subject("measured", measured_of)
REPLAYED: Subject[Run, Timeline] = Subject("replayed", replayed_of)
# What is simulated again in any case, so that a measured timeline stands for its replay.
SIMULATED: Subject[Run, Timeline] = Subject("simulated", replayed_of)
RECORDING: Subject[Recording | HasRecording, Recording] = Subject("recording", recording_of)
