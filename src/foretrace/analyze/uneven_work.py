"""`RankWork`: is a rank slower because it has more to do, or because its hardware is?

What an operator takes at a size is known from all ranks and steps: a power of its size, fitted
within ranks, so that a slow rank is not taken for large work, and at sizes alone that all of them
run. What a rank's operators take beyond that is its hardware; the rest of a step is its work, and
beyond that of its equals it has longer documents, or more tokens. Fused attention is left out of
the first: how much it has to do under packing is in the lengths of documents, which shapes do not
tell where several share a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.calls import CallKind, calls_of
from foretrace.analyze.usual import middle_of
from foretrace.answer import Column, Plain, Table, Unit, percent_text
from foretrace.base import Bools, Float64s, Int32s, Int64s, numbered_rows
from foretrace.graph import NO_STEP, Timeline
from foretrace.operators import OperatorClass, work_of

_LEAST_KNOWN = 0.2  # of a job's compute but attention: its forward products at least
_PRIOR = 0.1  # squared logarithms of sizes that say as much as the guess: time as size
_NEAR = 1.25  # times a size: what is known there says something
_SAME = 0.02  # what equal ranks differ by
_SURE = 2.0  # standard errors over steps that a difference must lie beyond


@dataclass(frozen=True)
class RankWork(Plain):
    """Why others waited for a rank's compute."""

    rank: int
    waiting_ns: int  # of others, for its compute
    work_ns: int  # of it, for longer documents or more tokens than its equals have
    hardware_ns: int  # of it, for what takes longer at the same shapes
    work: float  # of a step, over that of its equals; mean of steps
    slowness: float  # time at the same shapes over that of its equals

    @property
    def sentence(self) -> str:
        """Which of the two it is."""
        whole = self.work_ns + self.hardware_ns
        of_work, of_chip = (
            percent_text(100 * each / whole) for each in (self.work_ns, self.hardware_ns)
        )
        more = f"longer documents or more tokens ({self.work:.2f} times its equals' work)"
        slow = f"slower hardware ({self.slowness:.2f} times their time at the same shapes)"
        parts = [f"{of_work} for {more}", f"{of_chip} for {slow}"]
        if self.hardware_ns > self.work_ns:
            parts.reverse()
        kept = [one for one in parts if not one.startswith("0.0")]
        return f"rank {self.rank}'s compute is waited for: {', '.join(kept)}"


@dataclass(frozen=True)
class StepWork:
    """What every rank computed in every step, beside what its equals did."""

    ranks: tuple[int, ...]
    more_ns: Float64s  # float64[ranks, steps], work beyond that of its equals, at their speed
    slow_ns: Float64s  # float64[ranks, steps], time beyond what its work takes its equals
    work: Float64s  # float64[ranks], over that of its equals
    slowness: Float64s  # float64[ranks], so too

    def split(self, rank: Int32s, step: Int32s, waiting_ns: Float64s) -> tuple[RankWork, ...]:
        """Others' waiting for ranks' compute, most first."""
        found = []
        for at, number in enumerate(self.ranks):
            rows = (rank == number) & (step >= 0)
            if not rows.any() or np.isnan(self.slowness[at]):
                continue
            more, slow = (
                np.maximum(each[at][step[rows]], 0.0) * _is_sure(ratio[at], each[at])
                for each, ratio in ((self.more_ns, self.work), (self.slow_ns, self.slowness))
            )
            whole = np.maximum(more + slow, 1.0)
            spent_ns = waiting_ns[rows]
            parts = [round(float((spent_ns * each / whole).sum())) for each in (more, slow)]
            if not sum(parts):
                continue
            found.append(
                RankWork(
                    rank=number,
                    waiting_ns=round(float(spent_ns.sum())),
                    work_ns=parts[0],
                    hardware_ns=parts[1],
                    work=float(self.work[at]),
                    slowness=float(self.slowness[at]),
                )
            )
        return tuple(sorted(found, key=lambda one: -one.waiting_ns))


def _is_sure(ratio: float, beyond_ns: Float64s) -> bool:
    """Whether a rank differs from its equals by more than its steps do from each other."""
    error_ns = beyond_ns.std() / np.sqrt(max(len(beyond_ns) - 1, 1))
    return bool(ratio >= 1 + _SAME and beyond_ns.mean() > _SURE * error_ns)


def work_waited_for(
    timeline: Timeline, rank: Int32s, step: Int32s, waiting_ns: Float64s
) -> tuple[RankWork, ...]:
    """Why others waited for ranks' compute, most first; none where it cannot be told.

    Args:
        timeline: of a job.
        rank: int32[waits], who was waited for.
        step: int32[waits], position in the graph's `step_names`.
        waiting_ns: float64[waits].
    """
    found = step_work(timeline) if len(rank) else None
    return () if found is None else found.split(rank, step, waiting_ns)


def work_tables(rows: tuple[RankWork, ...]) -> tuple[Table, ...]:
    """One table, a row per rank whose compute was waited for; none without any."""
    if not rows:
        return ()
    table = Table.of(
        "work",
        rows,
        Column("rank"),
        Column("waiting_ns", "others waited ms"),
        Column("work_ns", "for its documents"),
        Column("hardware_ns", "for its hardware"),
        Column("work", "its work", Unit.NUMBER),
        Column("slowness", "its time", Unit.NUMBER),
        title="longer documents, or slower hardware: times those of equal ranks",
        max_rows=8,
    )
    return (table,)


def step_work(timeline: Timeline) -> StepWork | None:
    """Compute of all ranks and steps; `None` where shapes are too little known, or none compare."""
    graph = timeline.graph
    calls = calls_of(timeline, NO_STEP, graph.step != NO_STEP)
    if not len(calls):
        return None
    sizes = np.array([_size(one.operator or one.name, one.signature) for one in calls.kinds])
    classes = [one.what.kind for one in calls.kinds]
    names = {one.operator or one.name: at for at, one in enumerate(calls.kinds)}
    operator = np.array([names[one.operator or one.name] for one in calls.kinds], np.int64)
    is_attention = np.array([one is OperatorClass.ATTENTION for one in classes])[calls.kind]
    is_product = np.array([_is_of_weights(one) for one in calls.kinds])[calls.kind]
    ranks, rank = np.unique(graph.rank[calls.node], return_inverse=True)
    step = graph.step[calls.node].astype(np.int64)
    took_ns = timeline.duration_ns[calls.node].astype(np.float64)
    size = sizes[calls.kind]
    told = ~is_attention & (size > 0) & (took_ns > 0)
    if took_ns[told].sum() < _LEAST_KNOWN * took_ns[~is_attention].sum():
        return None
    told[told] = _is_met(operator[calls.kind][told], rank[told], size[told])
    due_ns = _due_ns(operator[calls.kind][told], rank[told], size[told], took_ns[told])
    shape = (len(ranks), len(graph.step_names))

    def summed(values: Float64s, rows: Bools) -> Float64s:
        found = np.zeros(shape)
        np.add.at(found, (rank[rows], step[rows]), values)
        return found

    told_ns, all_ns = summed(took_ns[told], told), summed(took_ns, np.ones(len(rank), np.bool_))
    expected_ns = summed(due_ns, told)
    equals = _equals(summed(np.ones(int(is_product.sum())), is_product))
    return _beside(tuple(ranks.tolist()), (told_ns, expected_ns, all_ns), equals)


def _is_of_weights(kind: CallKind) -> bool:
    """Whether it is a product that equal ranks have as many of, however many documents they have.

    Batched products may be attention, document by document.
    """
    return kind.what.kind is OperatorClass.GEMM and "bmm" not in (kind.operator or kind.name)


def _is_met(operator: Int64s, rank: Int64s, size: Float64s) -> Bools:
    """Sizes of an operator about which all ranks that run it say something; bool[rows]."""
    cells, cell = np.unique(np.stack([operator, rank]), axis=1, return_inverse=True)
    cell = cell.reshape(-1)
    least, most = np.full(cells.shape[1], np.inf), np.zeros(cells.shape[1])
    np.minimum.at(least, cell, size)
    np.maximum.at(most, cell, size)
    count = int(operator.max(initial=-1)) + 1
    low, high = np.zeros(count), np.full(count, np.inf)
    np.maximum.at(low, cells[0], least)
    np.minimum.at(high, cells[0], most)
    is_alone = np.bincount(cells[0], minlength=count) == 1
    found: Bools = (size >= low[operator] / _NEAR) & (size <= high[operator] * _NEAR)
    found &= ~is_alone[operator]
    return found


def _size(operator: str, signature: str) -> float:
    """What the time of an operator goes by: FLOPs of products, else bytes; 0 unknown."""
    work = work_of(operator, signature) if signature else None
    if work is None:
        return 0.0
    return float(work.flops if work.is_product else max(work.num_bytes, 0))


def _due_ns(operator: Int64s, rank: Int64s, size: Float64s, took_ns: Float64s) -> Float64s:
    """What each row takes at its size on the mean of ranks; float64[rows]."""
    x, y = np.log(size), np.log(took_ns)
    cell = numbered_rows((operator, rank))
    count = np.maximum(np.bincount(cell), 1)
    mean_x, mean_y = np.bincount(cell, x) / count, np.bincount(cell, y) / count
    dx, dy = x - mean_x[cell], y - mean_y[cell]
    power = (np.bincount(operator, dx * dy) + _PRIOR) / (np.bincount(operator, dx * dx) + _PRIOR)
    cells, first = np.unique(cell, return_index=True)
    own = operator[first]
    level = mean_y[cells] - power[own] * mean_x[cells]
    mean = np.bincount(own, level) / np.maximum(np.bincount(own), 1)
    found: Float64s = np.exp(mean[operator] + power[operator] * x)
    return found


def _equals(num_products: Float64s) -> Int64s:
    """Ranks with as many products in the usual step, such as copies of one stage; int64[ranks].

    In a single step, a call that was held up may stand as two.
    """
    middle = np.sort(num_products, axis=1)[:, (num_products.shape[1] - 1) // 2]
    return numbered_rows((middle,))


def _beside(
    ranks: tuple[int, ...], times: tuple[Float64s, Float64s, Float64s], equals: Int64s
) -> StepWork | None:
    """Work and speed beside those of equals; nan without any."""
    told_ns, expected_ns, all_ns = times
    whole = told_ns.sum(axis=1) / np.maximum(expected_ns.sum(axis=1), 1.0)
    usual = _middle(equals, whole)
    slower = np.where(expected_ns > 0, told_ns / np.maximum(expected_ns, 1.0), 1.0) / usual[:, None]
    work_ns = all_ns / np.maximum(slower, 1e-9)
    usual_ns = np.stack([_middle(equals, one) for one in work_ns.T], axis=1)
    is_alone = np.bincount(equals)[equals] == 1
    if is_alone.all():
        return None
    slowness = np.where(is_alone, np.nan, whole / usual)
    work = work_ns.sum(axis=1) / np.maximum(usual_ns.sum(axis=1), 1.0)
    return StepWork(ranks, work_ns - usual_ns, all_ns - work_ns, work, slowness)


def _middle(group: Int64s, value: Float64s) -> Float64s:
    """The lower median of each row's group, to a millionth; float64[rows]."""
    whole = np.rint(value * 1e6).astype(np.int64)
    found: Float64s = middle_of(group, whole).usual_ns / 1e6
    return found
