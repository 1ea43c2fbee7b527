"""`Check`: operators that notice when they are wrong, and what noticing adds to the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import Selection, fitting, selected, windows
from foretrace.answer import count_text, duration_text
from foretrace.base import FORMAT_BY_NAME, Bools, Float64s, Int64s, ScenarioError
from foretrace.cost import (
    ATTENTION,
    GEMM,
    MOVEMENT,
    Access,
    FittedKernels,
    Operation,
    Source,
    node_operations,
)
from foretrace.graph import ExecutionGraph, NodeKind, Timeline
from foretrace.operators import OperatorClass, operator_class, parsed_shapes
from foretrace.whatif.edits.costed import CostedJob, with_followers
from foretrace.whatif.edits.edit import Edit, EditTurn, Holds, Key, StatedValues, WorkEdit

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

CHECK_NAME = "check of sums"
SUMS, COLUMN, TWICE = "sums", "column", "twice"
_MANNERS = {
    SUMS: "sums of each result against those of its operands, by a kernel of their own",
    COLUMN: "a column of sums in each product, and its result read once",
    TWICE: "computed again; the comparison counts as nothing",
}
_INDICES = ("int64", "int32")
# Of a row of an int8 table: its sum, its scale and its bias, 32 bits each (arXiv:2103.00130).
_ROW_BYTES = 12
_ACCUMULATOR_BYTES = 4  # of a sum of int8 products
_MATRIX = 2  # dimensions


@dataclass(frozen=True)
class Check(WorkEdit):
    """Every selected product, attention and embedding is followed by its check.

    Each check is an operator of its own on the same stream, launched behind what it checks, so
    that the simulation says where it hides. What follows waits for it.
    """

    manner: str = SUMS  # "sums", "column", "twice", or a share of the operator's time: "0.05"
    of: Selection = field(default=Selection())

    CHECK = Key(
        "check",
        Holds.NAMES,
        "Checks behind products, attention, embeddings: sums, column, twice, 0.05; sums=WORK.",
        "sums, column, twice or a share of the time and, behind `=`, the work that it is for",
        "HOW[=WORK]",
    )
    KEYS = (CHECK,)
    TURNS = (EditTurn.CHECKS,)

    def __post_init__(self) -> None:
        """Refuse a manner that does not exist."""
        if self.manner not in _MANNERS and self._share is None:
            raise ScenarioError(
                f"no check is called {self.manner!r}: there are {', '.join(_MANNERS)}, and a share "
                "of the operator's time, as 0.05"
            )

    @property
    def _share(self) -> float | None:
        try:
            share = float(self.manner)
        except ValueError:
            return None
        return share if 0 <= share < float("inf") else None

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Check]:
        """One for each manner."""
        for name, work in stated.names_of_work(cls.CHECK):
            yield cls(name, work)

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`all work checked: sums of each result against ...`."""
        how = _MANNERS.get(self.manner, f"{self.manner} of its time more")
        return f"{self.of} checked: {how}"

    def check(self, job: CostedJob) -> None:
        """Something that can be checked must be selected, and its chip known."""
        selected(job.graph, self.of)
        if not self._checked(job.graph).any():
            raise ScenarioError(
                f"{str(self.of)!r} selects no product, attention or embedding whose shapes were "
                "recorded (record_shapes=True): there is nothing that a check is for."
            )
        if self.manner in {SUMS, COLUMN} and job.chip is None:
            raise ScenarioError(
                f"checks by {self.manner} are costed for a chip, and the recording names none that "
                "is known: state the machine that the job runs on, or a share of the time, as "
                "check 0.05."
            )

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """An operator more behind each that is checked."""
        is_checked = self._checked(job.graph)
        share = 1.0 if self.manner == TWICE else self._share
        if share is not None or job.chip is None:
            of_own = job.times(np.full(job.graph.num_nodes, share or 0.0))
            return with_followers(job, is_checked, CHECK_NAME, of_own)
        nodes = np.flatnonzero(is_checked)
        operations, rows = node_operations(job.graph, nodes)
        num_bytes = np.array([_bytes(one, self.manner) for one in operations])[rows]
        names = (*job.graph.names, "")
        for at in np.flatnonzero(num_bytes == 0).tolist():
            num_bytes[at] = _table_bytes(names[job.graph.operator_signature[nodes[at]]])
        wider = [
            1 / max(one.sizes[2], 1) if one.model == GEMM and self.manner == COLUMN else 0.0
            for one in operations
        ]
        within = np.bincount(nodes, np.array(wider)[rows], job.graph.num_nodes)
        of_own = job.times(within.astype(np.float64))
        return with_followers(job, is_checked, CHECK_NAME, _reading(of_own, nodes, num_bytes))

    def _checked(self, graph: ExecutionGraph) -> Bools:
        """Which nodes are of a class that has checks, and of known shape; bool[nodes]."""
        working = graph.is_device if graph.has_device else graph.is_of(NodeKind.OPERATOR)
        nodes = np.flatnonzero(fitting(graph, self.of) & working)
        operations, rows = node_operations(graph, nodes)
        names = (*graph.names, "")
        pairs = np.stack([rows, graph.name[nodes], graph.operator[nodes]])
        distinct, which = np.unique(pairs, axis=1, return_inverse=True)
        has_check = [
            _has_check(operations[row], names[kernel], names[operator])
            for row, kernel, operator in distinct.T.tolist()
        ]
        found = np.zeros(graph.num_nodes, np.bool_)
        found[nodes] = np.array(has_check, np.bool_)[which.reshape(-1)]
        return found


def _has_check(operation: Operation, kernel: str, operator: str) -> bool:
    """Whether one is known: of products forward and backward, of others forward alone."""
    is_lookup = operator_class(kernel, operator) == OperatorClass.EMBEDDING
    is_forward = "backward" not in operator
    return operation.model in {GEMM, ATTENTION} or (
        operation.model == MOVEMENT and is_lookup and is_forward
    )


def _bytes(operation: Operation, manner: str) -> float:
    """What a check of an operation reads; 0 of embeddings, whose shapes say more."""
    if operation.model == MOVEMENT:
        return 0.0
    item = FORMAT_BY_NAME[operation.dtype].num_bytes
    if operation.model == ATTENTION:  # queries and results of all heads, keys and values
        batch, heads, kv_heads, width, length, kv_length = operation.sizes[:6]
        return 2 * batch * width * item * (heads * length + kv_heads * kv_length)
    batch, m, n, k = operation.sizes[:4]
    if manner == COLUMN:
        return batch * m * n * (_ACCUMULATOR_BYTES if item == 1 else item)
    return batch * m * (n + k) * item


def _table_bytes(signature: str) -> float:
    """Of an embedding: its result once, and what is stored of every row that is read."""
    shapes = parsed_shapes(signature)
    tensors = () if shapes is None else shapes.single
    picked = [one for one in tensors if one.dtype in _INDICES]
    tables = [one for one in tensors if one.dtype not in _INDICES and len(one.shape) == _MATRIX]
    if not tables or not picked:
        return 0.0
    row_bytes = tables[0].num_bytes / max(tables[0].shape[0], 1)
    num_rows, *offsets = (one.num_elements for one in picked)
    return (offsets[0] if offsets else num_rows) * row_bytes + num_rows * _ROW_BYTES


def _reading(job: CostedJob, nodes: Int64s, num_bytes: Float64s) -> CostedJob:
    """Nodes take so much longer as a kernel does that sums so many bytes along rows."""
    if job.chip is None:
        return job
    costs = FittedKernels(job.chip).operation_costs(
        [Operation(MOVEMENT, "rows", "", (round(one), int(Access.ROWS))) for one in num_bytes]
    )
    columns = {"duration_ns": costs.duration_ns, "low_ns": costs.low_ns, "high_ns": costs.high_ns}
    found = replace(job, source=job.source.copy())
    for name, added in columns.items():
        column = getattr(job, name).copy()
        column[nodes] += added
        found = replace(found, **{name: column})
    found.source[nodes] = np.maximum(costs.source, Source.SCALED)
    return found


def check_notes(effects: Sequence[tuple[Edit, int]], timeline: Timeline) -> tuple[str, ...]:
    """How much of what checks take hides: `effects` are edits with what they add to the step."""
    graph = timeline.graph
    added_ns = sum(change_ns for edit, change_ns in effects if isinstance(edit, Check))
    if CHECK_NAME not in graph.names:
        return ()
    mine = np.flatnonzero(graph.name == graph.names.index(CHECK_NAME))
    num_steps = max(len(windows(timeline)), 1)
    by_rank_ns = np.bincount(graph.rank[mine], timeline.duration_ns[mine])
    rank = int(by_rank_ns.argmax())
    work_ns = float(by_rank_ns[rank]) / num_steps
    number = count_text(round(int((graph.rank[mine] == rank).sum()) / num_steps), "check")
    told = (
        f"{number} take {duration_text(round(work_ns))} of a step of rank {rank}, which has the "
        f"most; the step grows by {duration_text(max(added_ns, 0))}: "
    )
    if added_ns > work_ns:
        return (f"{told}none of it hides, and launches and hand-overs add to it",)
    hidden = 1 - max(added_ns, 0) / work_ns if work_ns else 0.0
    return (f"{told}{hidden:.0%} hides where the device waited",)
