"""`CollectiveKind`: what a communication between ranks does, and one reading of all its names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from foretrace.base.arrays import Float64s, Int64s

# NCCL's own number on one host of A100s or H100s behind NVSwitch, as its log says; what is measured
# without stating another is taken to be measured with it. Source: NVIDIA/nccl-tests, issue 100
# (A100); NVIDIA/nccl, issue 1367 (H100).
USUAL_CHANNELS = 24


class CollectiveKind(StrEnum):
    """What a communication does; the value is what graphs and answers call it."""

    ALL_REDUCE = "allreduce"
    ALL_GATHER = "allgather"
    REDUCE_SCATTER = "reducescatter"
    ALL_TO_ALL = "alltoall"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    BARRIER = "barrier"
    SEND = "send"
    RECV = "recv"
    SEND_RECV = "sendrecv"  # NCCL runs sends, receives and all-to-all in one kernel of that name
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        """The text that it is, since messages quote it."""
        return repr(self.value)

    @property
    def is_transfer(self) -> bool:
        """Whether it goes from rank to rank; one of two ranks is point to point."""
        return self in _TRANSFERS

    @property
    def in_tables(self) -> str:
        """What tables of measured times and fitted constants call it: `all_reduce`."""
        return _IN_TABLES.get(self, self.value)

    @property
    def num_rounds(self) -> int:
        """How often data goes around: an all-reduce scatters, then gathers."""
        return 2 if self is CollectiveKind.ALL_REDUCE else 1

    def bus_share(self, num_ranks: Float64s) -> Float64s:
        """Bytes that one rank's links carry one way, of the message's; float64[rows].

        Source: nccl-tests, doc/PERFORMANCE.md, "bus bandwidth".
        """
        others = (num_ranks - 1) / num_ranks
        if self is CollectiveKind.ALL_REDUCE:
            return 2 * others
        return others if self in PARTED else np.ones_like(num_ranks)


_TRANSFERS = {CollectiveKind.SEND, CollectiveKind.RECV, CollectiveKind.SEND_RECV}
# Of whose message every rank holds, or is sent, one part.
PARTED = frozenset(
    (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL)
)
_IN_TABLES = {
    CollectiveKind.ALL_REDUCE: "all_reduce",
    CollectiveKind.ALL_GATHER: "all_gather",
    CollectiveKind.REDUCE_SCATTER: "reduce_scatter",
    CollectiveKind.SEND_RECV: "send_recv",
}
# The first that is found in a name without capitals and marks is its kind.
_PARTS_OF_NAMES = {
    "crossdevicereduce": CollectiveKind.ALL_REDUCE,
    "quickreduce": CollectiveKind.ALL_REDUCE,
    "internode": CollectiveKind.ALL_TO_ALL,  # DeepEP: dispatch, combine, and what announces them
    "intranode": CollectiveKind.ALL_TO_ALL,
    "morimoeep": CollectiveKind.ALL_TO_ALL,
    **{
        kind.value: kind
        for kind in (
            CollectiveKind.REDUCE_SCATTER,
            CollectiveKind.ALL_REDUCE,
            CollectiveKind.ALL_GATHER,
            CollectiveKind.ALL_TO_ALL,
            CollectiveKind.SEND_RECV,
            CollectiveKind.BROADCAST,
            CollectiveKind.BARRIER,
            CollectiveKind.GATHER,
            CollectiveKind.SCATTER,
            CollectiveKind.REDUCE,
            CollectiveKind.SEND,
            CollectiveKind.RECV,
        )
    },
}


def distinct(parts: Float64s | Int64s | float, chosen: Float64s | Int64s | float) -> Float64s:
    """How many of so many parts hold one or more of what is chosen at random, on average.

    A token that chose 8 experts reaches 5.3 of 8 ranks.
    """
    number = np.asarray(parts, np.float64)
    found: Float64s = number * (1 - (1 - 1 / number) ** np.asarray(chosen, np.float64))
    return found


class Library(StrEnum):
    """What sends a token once to each rank of its experts; elsewhere NCCL sends every copy."""

    DEEP_EP = "DeepEP"
    HYBRID_EP = "Hybrid-EP"


@dataclass(frozen=True)
class Dispatched:
    """Tokens on their way to their experts, or home, by a library made for that.

    A token goes once to each rank that holds any of its experts, and to another host once, which
    forwards it.
    """

    library: Library
    chosen: int  # experts of a token
    host_ranks: int = 0  # most ranks that are taken for one host; 0: all of a scale-up domain
    most_hosts: int = 0  # that a token goes to; 0: as many as it chooses
    most_ranks: int = 0  # so too

    @property
    def name(self) -> str:
        """What graphs call the exchange: "alltoall by DeepEP, top 8, hosts of 8, at most 4"."""
        hosts = f", hosts of {self.host_ranks}" if self.host_ranks else ""
        most = f", at most {self.most_hosts}" if self.most_hosts else ""
        ranks = f", on {self.most_ranks} ranks" if self.most_ranks else ""
        kind = CollectiveKind.ALL_TO_ALL.value
        return f"{kind} by {self.library}, top {self.chosen}{hosts}{most}{ranks}"

    def copies(self, num_ranks: Float64s | float) -> Float64s:
        """Ranks of so many that a token goes to, on average."""
        return np.minimum(distinct(num_ranks, self.chosen), self.most_ranks or np.inf)

    def hosts_reached(self, num_hosts: Float64s | float) -> Float64s:
        """Hosts of so many that a token goes to, on average."""
        most = min(self.most_hosts or np.inf, self.most_ranks or np.inf)
        return np.minimum(distinct(num_hosts, self.chosen), most)

    @classmethod
    def named(cls, name: str) -> Dispatched | None:
        """What `name` was made of; none for any other name."""
        found = _DISPATCHED.fullmatch(name)
        if found is None:
            return None
        return cls(Library(found[1]), *(int(each or 0) for each in found.groups()[1:]))


_DISPATCHED = re.compile(
    rf"{CollectiveKind.ALL_TO_ALL} by ({'|'.join(Library)}), top (\d+)"
    r"(?:, hosts of (\d+))?(?:, at most (\d+))?(?:, on (\d+) ranks)?"
)
_CHANNELS = re.compile(r" in (\d+) channels$")
_ARGUMENTS = re.compile(r"[(<].*", re.DOTALL)
_MARKS = re.compile(r"[\W\d_]+")


@lru_cache(maxsize=4096)  # graphs ask for the same few names again and again
def collective_kind_of(name: str) -> CollectiveKind:
    """The kind that a kernel, an annotation, a call or a library's word for it states.

    `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`, `nccl:_all_gather_base` and `all-to-all` alike.
    """
    stem = _MARKS.sub("", _ARGUMENTS.sub("", name)).lower()
    found = (kind for part, kind in _PARTS_OF_NAMES.items() if part in stem)
    return next(found, CollectiveKind.UNKNOWN)


def in_channels(name: str, channels: int) -> str:
    """What graphs call a collective that NCCL divides over so many channels."""
    return f"{name} in {channels} channels"


def channels_of(name: str) -> int:
    """Channels that a collective's name states; 0: as many as NCCL itself takes."""
    found = _CHANNELS.search(name)
    return 0 if found is None else int(found[1])


class NetworkUse(StrEnum):
    """Whether collectives find every link empty."""

    PRIVATE = "private"  # each takes as long as alone
    SHARED = "shared"  # those that meet on a link divide it
