"""`BenchProgram`: what a benchmark allocates and calls, before it is written down as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from foretrace.bench.collectives import DescribedGroup, ProgramCollective
from foretrace.bench.contents import IntegerContents
from foretrace.bench.schema import Schema, TensorRecord

USUAL_STREAM = -1  # what most operators run on


class Mode(Enum):
    """Kinds of operators to replay."""

    FULL = "full"
    COMPUTE = "compute"  # no collectives
    COMMUNICATION = "communication"  # nothing else


@dataclass(frozen=True)
class Given:
    """A tensor that is there before the first operator."""

    value: int
    record: TensorRecord
    contents: IntegerContents | None
    lies_in: int  # the given value whose memory it shares; itself, if its own


@dataclass(frozen=True)
class Number:
    """A plain number among the arguments, which PyTorch wrapped into a tensor.

    The trace does not hold it; one changes nothing that is multiplied, divided or decayed by it.
    """

    text: str  # "1.0", "1", "True"


@dataclass(frozen=True)
class TensorCut:
    """A tensor of the trace that no replayed operator returns, cut from one that is there."""

    value: int
    base: int
    record: TensorRecord


@dataclass(frozen=True)
class BenchCall:
    """One operator's call."""

    node: int
    name: str  # "aten::addmm"
    schema: Schema | None  # none: it is not known how to call it
    reads: tuple[object, ...]  # `ValueId`, lists of these, or plain values
    returns: tuple[object, ...]
    makes: frozenset[int]  # values that are new
    label: str  # what it ran inside of: "AddmmBackward0"
    collective: ProgramCollective | None
    cuts: tuple[TensorCut, ...]  # made just before
    waits: tuple[int, ...]  # nodes of collectives that must have ended before
    stream: int  # device stream of its kernels; -1: the usual one
    after: tuple[int, ...]  # other streams whose work it needs, as far as they have come
    duration_ns: int  # measured; 0: unknown
    reason: str  # why it cannot be replayed; "" if it can

    @property
    def is_supported(self) -> bool:
        """Whether the program calls it."""
        return not self.reason


@dataclass(frozen=True)
class Coverage:
    """How much of the trace is replayed; of topmost operators."""

    num_operators: int
    num_replayed: int
    num_timed: int  # that the Kineto trace gives a time
    time_ns: int  # of all; 0 where no Kineto trace was given
    replayed_ns: int
    unsupported: tuple[tuple[str, str, int, int], ...]  # name, reason, calls, ns

    @property
    def share(self) -> float:
        """Share of operators that is replayed."""
        return self.num_replayed / max(self.num_operators, 1)

    @property
    def time_share(self) -> float | None:
        """Share of their time that is replayed; none where it is unknown."""
        return self.replayed_ns / self.time_ns if self.time_ns else None


@dataclass(frozen=True)
class BenchProgram:
    """A step of a trace, ready to be written as a program."""

    source: str  # the file's name
    device: str  # "cuda" or "cpu": of most of its tensors
    given: tuple[Given, ...]
    calls: tuple[BenchCall, ...]
    values: tuple[TensorRecord, ...]  # every tensor, by position
    groups: tuple[DescribedGroup, ...]
    coverage: Coverage

    @property
    def world_size(self) -> int:
        """Ranks of the job, as far as the trace says."""
        return max((group.size for group in self.groups), default=1)


def records_in(values: Sequence[object]) -> Iterator[object]:
    """All plain values of nested arguments."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from records_in(value)
        else:
            yield value
