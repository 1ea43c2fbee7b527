"""What is true of a generated job, as frozen records. All times are on the true clock, in ns."""

from __future__ import annotations

from dataclasses import dataclass

from tests.truth.structure import Block, Dependency

Ref = tuple[int, int]  # rank, correlation


@dataclass(frozen=True, slots=True)
class TrueOperation:
    """One kernel, copy or fill; (rank, correlation) names it."""

    rank: int
    correlation: int
    name: str
    family: str
    category: str
    stream: int
    start_ns: int
    end_ns: int
    collective: int  # position in `Job.collectives`; -1
    block: Block


@dataclass(frozen=True, slots=True)
class TrueCall:
    """One runtime call; its time includes its waiting, as a profiler sees it."""

    rank: int
    correlation: int
    name: str
    thread: int  # thread id in the file
    start_ns: int
    end_ns: int
    waited_ns: int  # of its time, how long it waited for the device


@dataclass(frozen=True, slots=True)
class TrueEdge:
    """`target` waits for `source`; which is a call and which an operation follows from `kind`.

    LAUNCH call to operation; QUEUE and SYNC operation to call; STREAM and INTER_STREAM operation
    to operation; HOST and THREAD call to call, whose `delay_ns` is the host time between.
    """

    kind: Dependency
    source: Ref
    target: Ref
    delay_ns: int  # how much later the target starts than its other edges would let it


@dataclass(frozen=True, slots=True)
class TrueMember:
    """One rank's part in a communication; wait + transfer = its kernel's duration."""

    rank: int
    correlation: int
    arrival_ns: int
    wait_ns: int
    transfer_ns: int


@dataclass(frozen=True, slots=True)
class TrueCollective:
    """One communication."""

    index: int
    name: str  # "allreduce", "transfer" (send and receive), "exchange" (ring neighbours)
    group: str
    link: str  # "tp", "dp", "pp", "world", "ring"
    position: int  # number within its group and channel
    num_bytes: int
    members: tuple[TrueMember, ...]


@dataclass(frozen=True, slots=True)
class TrueClock:
    """What the files' timestamps of one rank are: true + offset + drift * true."""

    rank: int
    offset_ns: int
    drift_ppb: int

    def written_ns(self, true_ns: int) -> int:
        """The timestamp, in ns, that stands for a true moment."""
        return true_ns + self.offset_ns + true_ns * self.drift_ppb // 1_000_000_000
