"""How long steps wait for their data: `DataLoading`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import Float64s, Int64s, ScenarioError, numbered_rows
from foretrace.graph import NO_STEP, ExecutionGraph, NodeKind, Part
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.edit import (
    EditTurn,
    Holds,
    Key,
    StatedValues,
    WorkEdit,
    duration_ns_of,
    is_factor,
)

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_LOADING_KINDS = (NodeKind.HOST_SEGMENT, NodeKind.OPERATOR, NodeKind.CALL)


@dataclass(frozen=True)
class DataLoading(WorkEdit):
    """Getting a step's data takes so long, or so many times as long.

    Of several lengths the one stated last wins; factors multiply.
    """

    duration_ns: int | None = None
    factor: float = 1.0
    ranks: tuple[int, ...] | None = None  # `None`: all

    DATA_LOADING = Key(
        "data_loading",
        Holds.TIME_OR_FACTOR,
        "Of loading a step's data: 5ms, or a factor.",
        "a time, as in '5 ms', or a factor",
        "TIME",
    )
    KEYS = (DATA_LOADING,)
    TURNS = (EditTurn.LOADING,)

    def __post_init__(self) -> None:
        """Refuse a length and a factor together, and what is neither."""
        if self.duration_ns is not None and self.factor != 1:
            raise ScenarioError(
                f"data loading takes {self.duration_ns} ns or {self.factor:g} times as long: "
                "state one of them"
            )
        if (self.duration_ns or 0) < 0 or not 0 <= self.factor < float("inf"):
            raise ScenarioError(
                f"data loading must take 0 or more, got {self.duration_ns} ns, x {self.factor}"
            )

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[DataLoading]:
        """A factor where it is a bare number, else a time."""
        value = stated.values.get(cls.DATA_LOADING.name)
        if is_factor(value):
            yield cls(factor=float(str(value)))
        elif value is not None:
            if not isinstance(value, str):
                raise stated.refused(cls.DATA_LOADING)
            yield cls(duration_ns_of(value))

    @property
    def changes_nothing(self) -> bool:
        """As long as it was."""
        return self.duration_ns is None and self.factor == 1

    @property
    def order(self) -> str:
        """Lengths as given, then factors."""
        return "" if self.duration_ns is not None else repr(self)

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`data loading takes 5 ms on rank 1`."""
        where = "" if self.ranks is None else " on rank " + ",".join(map(str, self.ranks))
        if self.duration_ns is None:
            return f"data loading x {self.factor:g}{where}"
        return f"data loading takes {self.duration_ns / 1e6:g} ms{where}"

    def check(self, job: CostedJob) -> None:
        """The loading must be known."""
        loading_nodes(job.graph, self.ranks)

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """The length of each step's loading on each rank, or the factor."""
        nodes = loading_nodes(job.graph, self.ranks)
        factor = np.ones(job.graph.num_nodes)
        extra_ns = np.zeros(job.graph.num_nodes)
        if self.duration_ns is None:
            factor[nodes] = self.factor
        else:
            _set_length(job, nodes, self.duration_ns, (factor, extra_ns))
        job = job.times(factor)
        return job.plus(extra_ns) if extra_ns.any() else job


def loading_nodes(graph: ExecutionGraph, ranks: tuple[int, ...] | None) -> Int64s:
    """Host time in which steps get their data: int64[found].

    Raises:
        ScenarioError: if none is known.
    """
    is_loading = (graph.part == Part.DATA) & graph.is_of(*_LOADING_KINDS)
    is_loading &= graph.step != NO_STEP
    if not is_loading.any():
        raise ScenarioError(
            "no step's data loading is known: no part of this job is called data. Name the calls "
            "that load it in a blocks file, or delay the first part of the forward pass."
        )
    if ranks is not None:
        loaders = np.unique(graph.rank[is_loading])
        is_loading &= np.isin(graph.rank, ranks)
        if not is_loading.any():
            raise ScenarioError(
                f"ranks {', '.join(map(str, ranks))} load no data: ranks "
                f"{', '.join(map(str, loaders[:8].tolist()))} do."
            )
    return np.flatnonzero(is_loading)


def _set_length(
    job: CostedJob, nodes: Int64s, length_ns: int, into: tuple[Float64s, Float64s]
) -> None:
    """Factors that make each rank's loading in each step so long. Out: factor and extra."""
    graph, (factor, extra_ns) = job.graph, into
    group = numbered_rows([graph.rank[nodes], graph.step[nodes]])
    _, first = np.unique(group, return_index=True)
    total_ns = np.bincount(group, job.duration_ns[nodes]).astype(np.float64)
    factor[nodes] = (length_ns / np.where(total_ns > 0, total_ns, length_ns or 1))[group]
    extra_ns[nodes[first]] = np.where(total_ns > 0, 0.0, length_ns)
