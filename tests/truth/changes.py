"""Hidden interventions: the same draws, and only the stated change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tests.truth.config import JobConfig
from tests.truth.names import DATA_LOADER
from tests.truth.structure import Int64s, Node, Structure


class Change(Protocol):
    """A change to a job: to its program, or to its drawn durations."""

    def config(self, config: JobConfig) -> JobConfig:
        """The program of the changed job."""

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """The durations of the changed job."""


class _DurationsOnly:
    def config(self, config: JobConfig) -> JobConfig:
        """Unchanged."""
        return config


def _scaled(duration_ns: Int64s, chosen: np.ndarray, factor: float) -> Int64s:
    return np.where(chosen, np.rint(duration_ns * factor).astype(np.int64), duration_ns)


@dataclass(frozen=True)
class KernelFamily(_DurationsOnly):
    """Every kernel of one family takes `factor` times as long (0.7: 30% faster)."""

    family: str
    factor: float

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """Kernels of the family scaled."""
        chosen = structure.family == structure.families.index(self.family)
        return _scaled(duration_ns, chosen, self.factor)


@dataclass(frozen=True)
class AllKernels(_DurationsOnly):
    """Every compute kernel takes `factor` times as long; copies, fills and NCCL do not."""

    factor: float

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """Compute kernels scaled."""
        return _scaled(duration_ns, structure.family >= 0, self.factor)


@dataclass(frozen=True)
class SlowRank(_DurationsOnly):
    """One rank's compute kernels take `factor` times as long (1.1: 10% slower)."""

    rank: int
    factor: float

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """That rank's compute kernels scaled."""
        chosen = (structure.rank == self.rank) & (structure.family >= 0)
        return _scaled(duration_ns, chosen, self.factor)


@dataclass(frozen=True)
class SlowFamily(_DurationsOnly):
    """One rank's kernels of one family take `factor` times as long."""

    rank: int
    family: str
    factor: float

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """That rank's kernels of the family scaled."""
        of_family = structure.family == structure.families.index(self.family)
        return _scaled(duration_ns, of_family & (structure.rank == self.rank), self.factor)


@dataclass(frozen=True)
class LateLoader(_DurationsOnly):
    """One rank's data loader takes `extra_ns` longer in every step."""

    rank: int
    extra_ns: int

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """The host time inside the loader's annotation lengthened."""
        spans = structure.ranks[self.rank].spans
        loading = [span.begin + 1 for span in spans if span.name.startswith(DATA_LOADER)]
        if not loading:
            raise ValueError("the job loads no data: data_loading_ns is 0")
        changed = duration_ns.copy()
        changed[loading] += self.extra_ns
        return changed


@dataclass(frozen=True)
class SlowLink(_DurationsOnly):
    """Transfers of one kind of group take `factor` times as long (2.0: link 2x slower)."""

    link: str  # "tp", "dp", "pp", "world", "ring"
    factor: float

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """Transfers over that link scaled."""
        chosen = structure.link == structure.links.index(self.link)
        return _scaled(duration_ns, chosen, self.factor)


@dataclass(frozen=True)
class SlowWhile(_DurationsOnly):
    """One rank's compute kernels take `factor` times as long between two shares of its program."""

    rank: int
    factor: float
    begin: float  # 0 to 1
    end: float

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """That rank's kernels of the stretch scaled."""
        mine = np.flatnonzero((structure.rank == self.rank) & (structure.family >= 0))
        chosen = np.zeros(len(duration_ns), np.bool_)
        chosen[mine[int(self.begin * len(mine)) : int(self.end * len(mine))]] = True
        return _scaled(duration_ns, chosen, self.factor)


@dataclass(frozen=True)
class SlowGroup(_DurationsOnly):
    """Transfers of the one group of a kind that a rank is in take `factor` times as long."""

    link: str
    rank: int
    factor: float

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """That group's transfers scaled."""
        chosen = np.zeros(len(duration_ns), np.bool_)
        for one in structure.collectives:
            if one.group.link == self.link and self.rank in one.finishes:
                chosen[list(one.finishes.values())] = True
        return _scaled(duration_ns, chosen, self.factor)


@dataclass(frozen=True)
class LongerSegment(_DurationsOnly):
    """The host time right before one call is longer by `extra_ns`."""

    rank: int
    correlation: int  # of the call
    extra_ns: int

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """The segment before the call lengthened."""
        calls = structure.ranks[self.rank].calls
        call = next(call for call in calls if call.correlation == self.correlation)
        edges = slice(structure.first_edge[call.node], structure.first_edge[call.node + 1])
        before = [
            node
            for node in structure.predecessor[edges].tolist()
            if structure.kind[node] == Node.SEGMENT
        ]
        changed = duration_ns.copy()
        changed[before[0]] += self.extra_ns
        return changed


@dataclass(frozen=True)
class MergedBuckets:
    """Gradient bucket `first` joins its neighbour `second`: one reduction, when both are ready."""

    first: int
    second: int

    def config(self, config: JobConfig) -> JobConfig:
        """The program with the merged bucket."""
        return replace(config, merged_buckets=(self.first, self.second))

    def duration_ns(self, structure: Structure, duration_ns: Int64s) -> Int64s:
        """Unchanged: the merged transfer is drawn from its own size."""
        del structure
        return duration_ns
