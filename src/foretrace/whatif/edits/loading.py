"""What microbatches hold, `UnevenDocuments`, and how long steps wait for it, `DataLoading`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import Float64s, Int64s, ScenarioError, numbered_rows
from foretrace.graph import NO_MICROBATCH, NO_STEP, ExecutionGraph, NodeKind, Part
from foretrace.operators import Tensor, parsed_shapes
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
from foretrace.workload import replica_of_rank

if TYPE_CHECKING:
    from foretrace.balance import DocumentWork
    from foretrace.whatif.scenario import Scenario

_SHARE = 0.5  # of attention; only how it grows counts here

# What a step's own thread spends on a batch that workers made: it maps shared memory and gives the
# last batch's back; whoever reads the batch first touches each of its pages. Measured as CPU time
# of that thread, PyTorch 2.13's DataLoader on an AMD EPYC, batches of 0.4 to 38.5 MB: 1.19, 2.16,
# 6.22 and 11.18 ms, and 0.09, 0.56, 1.80 and 3.17 ms more for the first reading than the second.
_TAKEN_NS, _TAKEN_NS_PER_BYTE, _TOUCHED_NS_PER_BYTE = 1_070_000, 0.262, 0.083
WORKERS = "workers"
# Of names of copies, as CUPTI and roctracer spell them.
_TO_DEVICE, _PAGEABLE = "HtoD", "Pageable"
_WORD = 4  # bytes of an element whose format a list of tensors does not tell
_LOADING_KINDS = (NodeKind.HOST_SEGMENT, NodeKind.OPERATOR, NodeKind.CALL)


@dataclass(frozen=True)
class UnevenDocuments(WorkEdit):
    """Microbatches hold documents as they come, drawn anew for every step and copy of the model.

    Attention takes as long as its documents make it, everything else of a microbatch as its
    tokens do. What was recorded counts as one document for each sequence.
    """

    documents: str  # a dataset's index, or a law: as `balance` takes it
    seed: int = 0

    DOCUMENTS = Key(
        "documents",
        Holds.NAME,
        "Documents of a dataset, as in `balance`, in every microbatch.",
        "a dataset's index, a list of lengths, or lognormal:MU,SIGMA[,LONGEST]",
        "FILE|LAW",
    )
    KEYS = (DOCUMENTS,)
    TURNS = (EditTurn.FACTORS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[UnevenDocuments]:
        """Of the dataset that is named."""
        name = stated.fields(cls.KEYS).get(cls.DOCUMENTS.name)
        if name is not None:
            yield cls(str(name))

    def sentence(self, before: Scenario) -> str:
        """`documents of lognormal:8,1 as they come, where each sequence of 512 tokens was one`."""
        return (
            f"documents of {self.documents} as they come, where each sequence of "
            f"{before.plan.sequence:,} tokens was one"
        )

    def check(self, job: CostedJob) -> None:
        """Microbatches must be known."""
        if job.plan is None or not (job.graph.microbatch != NO_MICROBATCH).any():
            raise ScenarioError(
                "no work here is known to belong to a microbatch, so documents change none: load "
                "a recording of training steps with forward and backward passes"
            )

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Factors of every node, by its step, copy of the model and microbatch."""
        # Here and below: documents are rare, and what packs them is much to load.
        from foretrace.balance import documents_of
        from foretrace.estimate import Follows, drawn_mix

        graph, plan = job.graph, job.plan
        assert plan is not None  # noqa: S101  checked
        follows = Follows.of(graph)
        num_steps = max(1, len(graph.step_names))
        count = follows.num_microbatches
        tokens, attention = drawn_mix(
            replace(plan, global_batch=count * plan.micro_batch * plan.data),
            self._work(job),
            documents=documents_of(self.documents),
            num_copies=num_steps * plan.data,
            seed=self.seed,
        )
        factor = follows.factors(tokens, attention)
        replicas = replica_of_rank(plan)
        replica = np.where(graph.rank >= 0, replicas[graph.rank % len(replicas)], 0)
        row = np.maximum(graph.step, 0) * plan.data + replica
        return replace(job, factor=job.factor * factor[row, follows.label])

    def _work(self, job: CostedJob) -> DocumentWork:
        """From kernels of the stated model, or by the square of lengths."""
        from foretrace.balance import DocumentWork, document_work  # as above

        assert job.plan is not None  # noqa: S101  checked
        if job.transformer is None or job.model is None:
            return DocumentWork.of_share(job.plan.sequence, _SHARE)
        return document_work(job.transformer, job.plan, job.model)


@dataclass(frozen=True)
class DataLoading(WorkEdit):
    """Getting a step's data takes so long, or so many times as long, or workers do it.

    Where workers do, the step takes their batch over, which grows with its bytes. Of several
    lengths the one stated last wins; factors multiply.
    """

    duration_ns: int | None = None
    factor: float = 1.0
    ranks: tuple[int, ...] | None = None  # `None`: all
    by_workers: bool = False

    DATA_LOADING = Key(
        "data_loading",
        Holds.TIME_OR_FACTOR,
        "Of loading a step's data: 5ms, a factor, or workers.",
        "a time, as in '5 ms', a factor, or 'workers'",
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
        if self.by_workers and (self.duration_ns is not None or self.factor != 1):
            raise ScenarioError("data loaded by workers takes what it takes: state no length")
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
        elif value == WORKERS:
            yield cls(by_workers=True)
        elif value is not None:
            if not isinstance(value, str):
                raise stated.refused(cls.DATA_LOADING)
            yield cls(duration_ns_of(value))

    @property
    def changes_nothing(self) -> bool:
        """As long as it was."""
        return self.duration_ns is None and self.factor == 1 and not self.by_workers

    @property
    def order(self) -> str:
        """Lengths as given, then factors."""
        return repr(self) if self.duration_ns is None and not self.by_workers else ""

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`data loading takes 5 ms on rank 1`."""
        where = "" if self.ranks is None else " on rank " + ",".join(map(str, self.ranks))
        if self.by_workers:
            return f"data loaded by workers, taken over from shared memory{where}"
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
        if self.by_workers:
            _take_over(job, nodes, (factor, extra_ns))
        elif self.duration_ns is None:
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


def _take_over(job: CostedJob, nodes: Int64s, into: tuple[Float64s, Float64s]) -> None:
    """Leave each rank's step what taking a batch over costs. Out: factor and extra.

    Copies of pageable memory to the device read it first, where there are any; else the host does.
    """
    graph, (factor, extra_ns) = job.graph, into
    copies = _copies_to_device(graph)
    staged = copies[[_PAGEABLE in graph.names[name] for name in graph.name[copies].tolist()]]
    extra_ns[staged] = [_TOUCHED_NS_PER_BYTE * _largest_bytes(graph, one) for one in staged]
    by_copies = set(np.unique(graph.rank[staged]).tolist())
    group = numbered_rows([graph.rank[nodes], graph.step[nodes]])
    _, first = np.unique(group, return_index=True)
    total_ns = np.bincount(group, job.duration_ns[nodes]).astype(np.float64)
    taken_ns = {
        rank: _TAKEN_NS
        + (_TAKEN_NS_PER_BYTE + (rank not in by_copies) * _TOUCHED_NS_PER_BYTE)
        * _batch_bytes(graph, copies[graph.rank[copies] == rank], rank)
        for rank in graph.ranks
    }
    own_ns = np.array([taken_ns[rank] for rank in graph.rank[nodes[first]].tolist()], np.float64)
    left = np.minimum(own_ns / np.where(total_ns > 0, total_ns, 1.0), 1.0)
    factor[nodes] = left[group]


def _copies_to_device(graph: ExecutionGraph) -> Int64s:
    """Copies to devices inside of steps, int64[copies]."""
    is_copy = np.array([_TO_DEVICE in name for name in graph.names], np.bool_)
    found = (graph.kind == NodeKind.MEMCPY) & (graph.step != NO_STEP)
    return np.flatnonzero(found & is_copy[graph.name])


def _batch_bytes(graph: ExecutionGraph, copies: Int64s, rank: int) -> float:
    """Bytes of a step's batch: what is copied to the device, or the largest thing that was loaded.

    0 where no shapes tell.
    """
    if len(copies):
        num_steps = len(np.unique(graph.step[copies]))
        return sum(_largest_bytes(graph, node) for node in copies.tolist()) / num_steps
    loaded = (graph.part == Part.DATA) & (graph.kind == NodeKind.OPERATOR) & (graph.rank == rank)
    nodes = np.flatnonzero(loaded & (graph.step != NO_STEP)).tolist()
    return max((_largest_bytes(graph, node) for node in nodes), default=0.0)


def _largest_bytes(graph: ExecutionGraph, node: int) -> float:
    """Of an operation's inputs, a list of tensors as one; 0 where shapes do not tell."""
    at = int(graph.operator_signature[node])
    shapes = parsed_shapes(graph.names[at]) if at >= 0 else None
    if shapes is None:
        return 0.0
    tensors = [(one,) if isinstance(one, Tensor) else one for one in shapes.inputs if one]
    sizes = [
        sum(each.num_elements * (each.element_bytes or _WORD) for each in one) for one in tensors
    ]
    return float(max(sizes, default=0))
