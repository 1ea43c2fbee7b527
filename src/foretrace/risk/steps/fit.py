"""Duration models from repeats: what a recording's ranks and steps say about how times vary.

A duration is mean of its operation x factor of its rank x factor of its step x rest. Operations
are told apart by kind, name, framework operator and shapes, communication also by group and size,
of a serving engine by what its steps work on;
its durations are transfers, with waits removed. The factor of a rank holds in all steps (spatial
variation), the rest is drawn anew each time (temporal). The factor of a step is what everything in
it has in common: a slow step is slow everywhere. Host work, device work and communication have
step factors of their own that are kept together, step by step, and in the order of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretrace.analyze import alike_steps, batch_labels
from foretrace.answer import Answer, Column, Json, Table, Told, Unit, count_text, rows_json
from foretrace.base import Float64s, Int64s, RiskError, numbered_rows, turns_within
from foretrace.graph import DEVICE_KINDS, HOST_KINDS, ExecutionGraph, NodeKind
from foretrace.risk.steps.models import DurationModel, Family, fitted_model

HOST, DEVICE, COMMUNICATION = 0, 1, 2
WORK = ("host", "device", "communication")

Key = tuple[str, ...]

_FITTED_SHARE = 0.999  # of all time: the rest is too short for its family to matter


@dataclass(frozen=True)
class OperationModel:
    """How long one operation takes, its rank's and step's factors taken out."""

    key: Key  # class of work, kind, name, operator, shapes or group and size
    work: int  # HOST, DEVICE, COMMUNICATION
    mean_ns: float
    model: DurationModel
    total_ns: float  # in the recording

    @property
    def label(self) -> str:
        """A short name."""
        return self.key[3] or self.key[2]


@dataclass(frozen=True, repr=False)
class FittedModels(Answer):
    """What repeats say about the durations of a job."""

    operations: tuple[OperationModel, ...]  # the longest in total first
    ranks: tuple[int, ...]
    rank_factor: Float64s  # float64[ranks, 2], of host and device work
    step_factor: Float64s  # float64[steps, 3], by kind of work; the noise of short steps taken out
    num_steps: int

    @cached_property
    def by_key(self) -> Mapping[Key, OperationModel]:
        """Operations by what tells them apart."""
        return {one.key: one for one in self.operations}

    @property
    def step_variation(self) -> Float64s:
        """Standard deviation of step factors; float64[3]."""
        found: Float64s = self.step_factor.std(axis=0)
        return found

    @property
    def rank_variation(self) -> Float64s:
        """Standard deviation of rank factors; float64[2]."""
        found: Float64s = self.rank_factor.std(axis=0)
        return found

    def temporal_variation(self, work: int) -> float:
        """Variation of single durations of one kind of work, weighted by time."""
        own = [one for one in self.operations if one.work == work]
        total = sum(one.total_ns for one in own)
        return sum(one.model.variation * one.total_ns for one in own) / total if total else 0.0

    @property
    def headline(self) -> str:
        """How much repeats vary."""
        ranks = count_text(len(self.ranks), "rank")
        operations = count_text(len(self.operations), "operation")
        return f"{operations} of {ranks} over {count_text(self.num_steps, 'step')}"

    def parts(self) -> tuple[Told, ...]:
        """Every operation's model."""
        return (self._operations(),)

    def _operations(self) -> Table:
        return Table.of(
            "operations",
            self.operations,
            Column("work", unit=Unit.WORD, value=lambda one: WORK[one.work]),
            Column("operation", unit=Unit.NAME, value="label"),
            Column("mean_ns"),
            Column("total_ns"),
            Column("family", unit=Unit.WORD, value=lambda one: str(one.model.family)),
            Column("variation", unit=Unit.SHARE, value="model.variation"),
            Column("distance", unit=Unit.NUMBER, value="model.distance"),
            Column("num_samples", value="model.num_samples"),
        )

    def as_json(self) -> Json:
        """Variation by kind of work, by rank and by step, and every operation's model."""
        return {
            "num_steps": self.num_steps,
            "ranks": list(self.ranks),
            "rank_factor": self.rank_factor.tolist(),
            "rank_variation": self.rank_variation.tolist(),
            "step_variation": self.step_variation.tolist(),
            "temporal_variation": [self.temporal_variation(work) for work in range(len(WORK))],
            **rows_json(self._operations()),
        }


@dataclass(frozen=True)
class Timed:
    """Nodes that take time inside a step, and what each is."""

    node: Int64s  # int64[timed]
    operation: Int64s  # int64[timed], position in `keys`
    work: Int64s  # int64[timed]
    rank: Int64s  # int64[timed]
    step: Int64s  # int64[timed]
    duration_ns: Float64s  # float64[timed]
    place: Int64s  # int64[timed]: kind of lane, operation and turn in the step, on any rank
    keys: tuple[Key, ...]


def timed(graph: ExecutionGraph) -> Timed:
    """The nodes of a graph whose durations vary."""
    kinds = np.array([*HOST_KINDS, *DEVICE_KINDS, NodeKind.FINISH], np.uint8)
    node = np.flatnonzero(graph.is_of(*kinds) & (graph.step >= 0))
    kind = graph.kind[node].astype(np.int64)
    work = np.where(np.isin(kind, np.array(DEVICE_KINDS)), DEVICE, HOST)
    work[kind == NodeKind.FINISH] = COMMUNICATION
    has_collective = work == COMMUNICATION
    meeting = np.full(len(graph.collectives) + 1, -1, np.int64)
    known: dict[tuple[str, str, int, int], int] = {}
    for at, one in enumerate(graph.collectives):
        what = (one.name, one.group, one.num_bytes, len(one.ranks))
        meeting[at] = known.setdefault(what, len(known))
    columns = [
        kind,
        np.where(has_collective, -1, graph.name[node]),
        np.where(has_collective, -1, graph.operator[node]),
        np.where(has_collective, -1, graph.operator_signature[node]),
        np.where(has_collective, meeting[graph.collective[node]], -1),
        alike_steps(graph.step_names)[graph.step[node]],  # unlike batches are no repeats
    ]
    code = numbered_rows(columns)
    first = np.unique(code, return_index=True)[1]
    meetings = list(known)
    labels = sorted({*batch_labels(graph.step_names), ""})
    keys = []
    for at in first.tolist():
        row = [int(column[at]) for column in columns]
        texts = [graph.names[one] if one >= 0 else "" for one in row[1:4]]
        if row[4] >= 0:
            found = meetings[row[4]]
            texts = [found[0], f"{found[0]} of {found[1]}", f"{found[2]} bytes, {found[3]} ranks"]
        if labels[row[5]]:
            texts[2] = f"{texts[2]} in {labels[row[5]]}".lstrip()
        keys.append((WORK[int(work[at])], NodeKind(row[0]).name, *texts))
    return Timed(
        node=node,
        operation=code,
        work=work.astype(np.int64),
        rank=graph.rank[node].astype(np.int64),
        step=graph.step[node].astype(np.int64),
        duration_ns=graph.measured_ns[node].astype(np.float64),
        place=_places(graph, node, code),
        keys=tuple(keys),
    )


def without_host(whole: Timed) -> Timed:
    """The same without host work."""
    kept = whole.work != HOST
    return Timed(
        node=whole.node[kept],
        operation=whole.operation[kept],
        work=whole.work[kept],
        rank=whole.rank[kept],
        step=whole.step[kept],
        duration_ns=whole.duration_ns[kept],
        place=numbered_rows((whole.place[kept],)),
        keys=whole.keys,
    )


def _places(graph: ExecutionGraph, node: Int64s, operation: Int64s) -> Int64s:
    """Where in the program a node is: the same number on all ranks and in all steps."""
    lane = graph.lane[node].astype(np.int64)
    number = [(one.is_device, one.number if one.is_device else 0) for one in graph.lanes]
    kinds = {kind: at for at, kind in enumerate(dict.fromkeys(number))}
    kind = np.array([*(kinds[one] for one in number), len(kinds)], np.int64)[lane]
    inside = numbered_rows((kind, operation))
    # Turns are counted by lane and step, in node order.
    turn = turns_within(numbered_rows((lane, graph.step[node], inside)))
    return numbered_rows((inside, turn))


def place_mean_ns(whole: Timed, factor: Float64s) -> Float64s:
    """Mean duration of every node's place, drawn towards its operation's; float64[timed].

    How far depends on how much places of an operation differ, against repeats of one place
    (one-way analysis of variance): a place that few saw is believed as much as it deserves.
    Without repeats it is the operation's mean.

    Args:
        whole: every node.
        factor: float64[timed], of rank and step, taken out.
    """
    value = np.divide(whole.duration_ns, factor, out=np.zeros(len(factor)), where=factor > 0)
    operation = whole.operation
    size = len(whole.keys)
    count = np.bincount(operation, minlength=size)
    mean = np.bincount(operation, value, minlength=size) / np.maximum(count, 1)
    seen = np.bincount(whole.place)
    of_place = np.bincount(whole.place, value) / seen
    _, first = np.unique(whole.place, return_index=True)
    owner = operation[first]
    places = np.bincount(owner, minlength=size)
    within = np.bincount(operation, (value - of_place[whole.place]) ** 2, minlength=size)
    within = np.divide(within, count - places, out=np.zeros(size), where=count > places)
    among = np.bincount(owner, seen * (of_place - mean[owner]) ** 2, minlength=size)
    among = np.divide(among, places - 1, out=np.zeros(size), where=places > 1)
    each = count / np.maximum(places, 1)
    between = np.maximum(0.0, (among - within) / np.maximum(each, 1.0))
    total = between[owner] + within[owner] / seen
    has_repeats = (count > places)[owner]
    weight = np.divide(between[owner], total, out=np.zeros(len(owner)), where=total > 0)
    weight = np.where(has_repeats, weight, 0.0)
    found: Float64s = (mean[owner] + weight * (of_place - mean[owner]))[whole.place]
    return found


def fit_models(graphs: Sequence[ExecutionGraph], *, by_place: bool = False) -> FittedModels:
    """How durations vary in one or more recordings of the same program.

    Args:
        graphs: their steps count as one after the other.
        by_place: what is left is measured from the mean of a node's place in the program, instead
            of from its operation's: to sample the recorded program itself, where the same product
            is slower in one layer than in the next.

    Raises:
        RiskError: if no step is recorded.
    """
    whole = _joined([timed(graph) for graph in graphs])
    if not len(whole.node):
        raise RiskError(
            "no step with durations is recorded, so there is nothing to fit: record some with "
            "foretrace.record(..., steps=10)"
        )
    num_operations = len(whole.keys)
    count = np.bincount(whole.operation, minlength=num_operations)
    total_ns: Float64s = np.bincount(
        whole.operation, whole.duration_ns, minlength=num_operations
    ).astype(np.float64)
    mean_ns = total_ns / count
    ranks, rank = np.unique(whole.rank, return_inverse=True)
    rank = rank.reshape(-1)
    expected_ns = mean_ns[whole.operation]
    rank_factor = np.ones((len(ranks), len(WORK)))
    is_local = whole.work != COMMUNICATION
    rank_factor[:, :COMMUNICATION] = _ratio(
        rank[is_local], whole, expected_ns, np.flatnonzero(is_local), count=len(ranks)
    )[:, :COMMUNICATION]
    expected_ns = expected_ns * rank_factor[rank, whole.work]
    steps, step = np.unique(whole.step, return_inverse=True)
    step = step.reshape(-1)
    every = np.arange(len(step))
    if by_place:
        expected_ns = place_mean_ns(whole, rank_factor[rank, whole.work])
        expected_ns *= rank_factor[rank, whole.work]
    seen = _ratio(step, whole, expected_ns, every, count=len(steps))
    apart = np.divide(whole.duration_ns, expected_ns, out=np.ones(len(step)), where=expected_ns > 0)
    step_factor = _without_noise(seen, step, whole, mean_ns, rest=apart)
    models = _models(whole, apart / step_factor[step, whole.work], total_ns)
    return FittedModels(
        operations=tuple(
            OperationModel(
                whole.keys[at],
                WORK.index(whole.keys[at][0]),
                float(mean_ns[at]),
                models[at],
                float(total_ns[at]),
            )
            for at in np.argsort(-total_ns, kind="stable").tolist()
        ),
        ranks=tuple(ranks.tolist()),
        rank_factor=rank_factor[:, :COMMUNICATION],
        step_factor=step_factor,
        num_steps=len(steps),
    )


def _joined(parts: Sequence[Timed]) -> Timed:
    """Several recordings as one; steps of the later ones are numbered on."""
    keys: dict[Key, int] = {}
    operation, step = [], []
    first_step = 0
    for one in parts:
        own = np.array([keys.setdefault(key, len(keys)) for key in one.keys], np.int64)
        operation.append(own[one.operation] if len(own) else one.operation)
        step.append(one.step + first_step)
        first_step += int(one.step.max(initial=-1)) + 1
    return Timed(
        node=np.concatenate([one.node for one in parts]),
        operation=np.concatenate(operation),
        work=np.concatenate([one.work for one in parts]),
        rank=np.concatenate([one.rank for one in parts]),
        step=np.concatenate(step),
        duration_ns=np.concatenate([one.duration_ns for one in parts]),
        place=_joined_places(parts, operation),
        keys=tuple(keys),
    )


def _joined_places(parts: Sequence[Timed], operation: Sequence[Int64s]) -> Int64s:
    """Places of several recordings: those of one recording alone if there is one, else apart."""
    first = 0
    found = []
    for one, _ in zip(parts, operation, strict=True):
        found.append(one.place + first)
        first += int(one.place.max(initial=-1)) + 1
    return np.concatenate(found)


def _ratio(
    group: Int64s, whole: Timed, expected_ns: Float64s, chosen: Int64s, *, count: int
) -> Float64s:
    """Time taken over time expected, by group and kind of work; 1 where there is none."""
    place = group * len(WORK) + whole.work[chosen]
    size = count * len(WORK)
    taken = np.bincount(place, whole.duration_ns[chosen], minlength=size)
    expected = np.bincount(place, expected_ns[chosen], minlength=size)
    found = np.divide(taken, expected, out=np.ones(size), where=expected > 0)
    return found.reshape(count, len(WORK))


def _models(whole: Timed, rest: Float64s, total_ns: Float64s) -> list[DurationModel]:
    """A model of every operation; one that was seen once varies as others of its kind of work."""
    order = np.argsort(whole.operation, kind="stable")
    ends = np.cumsum(np.bincount(whole.operation, minlength=len(total_ns)))
    by_size = np.argsort(-total_ns, kind="stable")
    share = np.cumsum(total_ns[by_size]) / max(float(total_ns.sum()), 1.0)
    is_long = np.zeros(len(total_ns), np.bool_)
    is_long[by_size[: int(np.searchsorted(share, _FITTED_SHARE)) + 1]] = True
    found = []
    for at, end in enumerate(ends.tolist()):
        begin = ends[at - 1] if at else 0
        own = rest[order[begin:end]]
        families = None if is_long[at] else (Family.NORMAL,)
        found.append(fitted_model(own, families))
    for at, one in enumerate(found):
        if one.num_samples == 1:
            found[at] = _typical(whole.keys[at][0], whole.keys, found, total_ns)
    return found


def _typical(
    work: str, keys: Sequence[Key], models: Sequence[DurationModel], total_ns: Float64s
) -> DurationModel:
    """How operations of a kind of work vary that were seen more than once, weighted by time."""
    own = [at for at, one in enumerate(models) if keys[at][0] == work and one.num_samples > 1]
    weight = float(total_ns[own].sum())
    if not weight:
        return DurationModel(Family.FIXED, num_samples=1)
    variation = float(sum(models[at].variation * total_ns[at] for at in own)) / weight
    family = Family.NORMAL if variation else Family.FIXED
    return DurationModel(family, variation, num_samples=1)


def _without_noise(
    seen: Float64s, step: Int64s, whole: Timed, mean_ns: Float64s, *, rest: Float64s
) -> Float64s:
    """Step factors drawn towards their mean by what single durations alone would spread them.

    With weights w of the durations in a step, an operation's variance V is that of steps, B, plus
    its own, and the variance S of seen factors is B + sum w^2 (V - B): so B follows from S and V.
    """
    place = step * len(WORK) + whole.work
    mean = mean_ns[whole.operation]
    size = len(seen) * len(WORK)
    count = np.bincount(whole.operation)
    average = np.bincount(whole.operation, rest) / count
    variance = np.bincount(whole.operation, (rest - average[whole.operation]) ** 2) / count
    weight = np.bincount(place, mean, minlength=size)
    squares = np.bincount(place, mean**2, minlength=size)
    varied = np.bincount(place, mean**2 * variance[whole.operation], minlength=size)
    is_seen = weight.reshape(seen.shape) > 0
    share, noise = (
        np.divide(one, weight**2, out=np.zeros(size), where=weight > 0).reshape(seen.shape)
        for one in (squares, varied)
    )
    rows = np.maximum(is_seen.sum(axis=0), 1)
    share, noise = share.sum(axis=0) / rows, noise.sum(axis=0) / rows
    spread = seen.var(axis=0)
    of_steps = np.maximum(0.0, spread - noise) / np.maximum(1.0 - share, 1e-9)
    kept = np.divide(of_steps, spread, out=np.zeros(len(WORK)), where=spread > 0)
    centre = seen.mean(axis=0)
    found: Float64s = centre + (seen - centre) * np.sqrt(np.minimum(kept, 1.0))
    return found
