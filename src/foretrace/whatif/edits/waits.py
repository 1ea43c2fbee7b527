"""How long host threads stand still: calls that wait no longer or for less, and `NoStalls`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import (
    EVERYTHING,
    Selection,
    StallKind,
    fitting,
    in_place,
    is_meant,
    nearest,
    stalls_among,
)
from foretrace.base import Bools, Int64s, ScenarioError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind
from foretrace.whatif.edits.costed import CostedJob, with_edges
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

# The others have edits of their own.
_MEANT = tuple(
    kind
    for kind in StallKind
    if kind not in {StallKind.NONE, StallKind.DATA, StallKind.SYNCHRONISATION}
)


@dataclass(frozen=True)
class RemoveSync(WorkEdit):
    """The host does not wait for the device at calls of this name.

    Kernels and families select what is waited for.
    """

    calls: str = "*"  # pattern of the runtime calls' names: "cudaStreamSynchronize"
    of: Selection = field(default=Selection())

    REMOVE_SYNC = Key(
        "remove_sync",
        Holds.NAMES,
        "Calls that no longer wait for the device.",
        "true, or the name of the calls that no longer wait",
        "CALLS",
    )
    KEYS = (REMOVE_SYNC,)
    TURNS = (EditTurn.WAITS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[RemoveSync]:
        """One for each name."""
        for calls in stated.names(cls.REMOVE_SYNC):
            yield cls(_pattern(calls))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`the host does not wait at cudaStreamSynchronize`."""
        return f"the host does not wait at {_calls(self.calls, self.of)}"

    def check(self, job: CostedJob) -> None:
        """The host must wait there."""
        _check_calls(job.graph, self)

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Without these waits."""
        smaller = with_edges(job.graph, ~_chosen_edges(job.graph, self))
        return replace(job, arranged=replace(job.arranged, graph=smaller))


@dataclass(frozen=True)
class MoveSync(WorkEdit):
    """At calls of this name the host waits for what they waited for so many steps before.

    So does a program that reads a step's loss one step later.
    """

    steps: int = 1
    calls: str = "*"
    of: Selection = field(default=Selection())

    MOVE_SYNC = Key(
        "move_sync",
        Holds.NAMES,
        "Calls that wait for what they did one step before.",
        "true, or the name of the calls that wait for the step before",
        "CALLS",
    )
    KEYS = (MOVE_SYNC,)
    TURNS = (EditTurn.WAITS,)

    def __post_init__(self) -> None:
        """Refuse what moves nothing."""
        if type(self.steps) is not int or self.steps < 1:
            raise ScenarioError(
                f"steps must be a whole number from 1 on, got {self.steps!r}; to wait for nothing "
                "at all, remove the synchronisation"
            )

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[MoveSync]:
        """One for each name."""
        for calls in stated.names(cls.MOVE_SYNC):
            yield cls(calls=_pattern(calls))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`the host waits at cudaStreamSynchronize for what it waited for 1 step before`."""
        unit = "step" if self.steps == 1 else "steps"
        calls = _calls(self.calls, self.of)
        return f"the host waits at {calls} for what it waited for {self.steps} {unit} before"

    def check(self, job: CostedJob) -> None:
        """The host must wait there."""
        _check_calls(job.graph, self)

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """With what they waited for some steps before."""
        chosen = _chosen_edges(job.graph, self)
        moved = _with_older(job.graph, chosen, self.steps)
        return replace(job, arranged=replace(job.arranged, graph=moved))


def _pattern(name: str) -> str:
    return "*" if name == EVERYTHING else name


def _calls(calls: str, of: Selection) -> str:
    named = "all calls" if calls == "*" else calls
    return named if of == Selection() else f"{named} of {of}"


def _check_calls(graph: ExecutionGraph, edit: RemoveSync | MoveSync) -> None:
    """Refuse a change that names no wait.

    Raises:
        ScenarioError: naming the calls at which the host waits.
    """
    waiting = np.unique(graph.edges_of(EdgeKind.WAKE)[1])
    if not len(waiting):
        raise ScenarioError(
            "the host waits for no device here: there is no synchronisation to remove. Without a "
            "device, what a thread waits for are other threads and ranks."
        )
    names = [graph.names[at] for at in np.unique(graph.name[waiting]).tolist()]
    if not any(is_meant(edit.calls, name) for name in names):
        raise ScenarioError(
            f"the host waits at no call named {edit.calls!r}: {nearest(edit.calls, names)}."
        )
    if not _chosen_edges(graph, edit).any():
        raise ScenarioError(
            f"no wait at {edit.calls!r} fits {str(edit.of)!r}: calls are selected by "
            "their block and operator, and by the kernels that they wait for. Leave one out."
        )


def _chosen_edges(graph: ExecutionGraph, edit: RemoveSync | MoveSync) -> Bools:
    target = graph.edge_target
    wakes: Bools = graph.edge_kind == EdgeKind.WAKE
    used = np.unique(graph.name[target[wakes]])
    named = [at for at in used.tolist() if is_meant(edit.calls, graph.names[at])]
    wakes &= (in_place(graph, edit.of) & np.isin(graph.name, named))[target]
    if edit.of.kernels is not None or edit.of.named is not None:
        of_what = Selection(kernels=edit.of.kernels, named=edit.of.named)
        wakes &= fitting(graph, of_what)[graph.predecessor]
    return wakes


def _with_older(graph: ExecutionGraph, chosen: Bools, steps: int) -> ExecutionGraph:
    """Chosen edges begin where those of the same call, so many steps before, did."""
    target = graph.edge_target
    older = _calls_before(graph, np.unique(target[chosen]), steps)
    sources = dict.fromkeys(older.tolist(), np.zeros(0, np.int64))
    for call in sources:
        edges = slice(int(graph.first_edge[call]), int(graph.first_edge[call + 1]))
        is_wake = graph.edge_kind[edges] == EdgeKind.WAKE
        sources[call] = graph.predecessor[edges][is_wake].astype(np.int64)
    added = [
        (source, call)
        for call, before in zip(np.unique(target[chosen]).tolist(), older.tolist(), strict=True)
        if before >= 0
        for source in sources[before].tolist()
    ]
    source = np.append(graph.predecessor[~chosen], [one for one, _ in added]).astype(np.int32)
    ends = np.append(target[~chosen], [one for _, one in added]).astype(np.int64)
    kind = np.append(graph.edge_kind[~chosen], np.full(len(added), EdgeKind.WAKE, np.uint8))
    lag_ns = np.append(graph.lag_ns[~chosen], np.full(len(added), _lag_ns(graph), np.int32))
    return graph.rewired(source, ends, kind=kind, lag_ns=lag_ns)


def _calls_before(graph: ExecutionGraph, calls: Int64s, steps: int) -> Int64s:
    """The same call so many steps before; -1 where there is none; int64[calls].

    The same is the one of that name with the same number on its thread, counted from the step's
    begin.
    """
    every = graph.nodes_of(NodeKind.SYNC)
    place: dict[tuple[int, int, int, int], int] = {}
    counts: dict[tuple[int, int, int], int] = {}
    of_call: dict[int, tuple[int, int, int, int]] = {}
    for call in every.tolist():
        key = int(graph.lane[call]), int(graph.name[call]), int(graph.step[call])
        number = counts[key] = counts.get(key, -1) + 1
        of_call[call] = (*key, number)
        place[(*key, number)] = call
    found = []
    for call in calls.tolist():
        lane, name, step, number = of_call[call]
        # Before the first step nothing is of one: no call there is the same one.
        found.append(place.get((lane, name, step - steps, number), -1) if step >= steps else -1)
    return np.array(found, np.int64)


def _lag_ns(graph: ExecutionGraph) -> int:
    return next((one.lag_ns for one in graph.constants if one.kind == EdgeKind.WAKE), 0)


@dataclass(frozen=True)
class NoStalls(WorkEdit):
    """Every stall of a host thread is gone: the call takes its usual time, a collection none."""

    # As `foretrace stalls` calls them, alternatives with `|` between: "garbage collection".
    kinds: str = EVERYTHING

    WITHOUT_STALLS = Key(
        "without_stalls",
        Holds.NAMES,
        "Kinds of stalls that host threads no longer have: all.",
        "true, or a kind of stalls as `foretrace stalls` calls it",
        "KIND",
    )
    KEYS = (WITHOUT_STALLS,)
    TURNS = (EditTurn.LENGTHS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[NoStalls]:
        """One for each kind."""
        for kinds in stated.names(cls.WITHOUT_STALLS):
            yield cls(kinds)

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """What it takes away."""
        if self.kinds == EVERYTHING:
            return "no call of a host thread takes longer than it usually does"
        return f"no host thread stalls for {self.kinds.replace('|', ' or ')}"

    def check(self, job: CostedJob) -> None:  # noqa: ARG002  as every edit
        """The kind must be one."""
        if not self._meant():
            told = nearest(self.kinds, [kind.words for kind in _MEANT])
            raise ScenarioError(f"no stall here is called {self.kinds!r}: {told}")

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Usual times where there was a stall.

        Raises:
            ScenarioError: if there was none.
        """
        found = stalls_among(job.graph, np.rint(job.duration_ns).astype(np.int64))
        meant = np.isin(found.kind, self._meant())
        if not meant.any():
            kinds = "" if self.kinds == EVERYTHING else f" for {self.kinds.replace('|', ' or ')}"
            raise ScenarioError(
                f"no host thread stood still{kinds}, so nothing can be taken away: `foretrace "
                "stalls` says what is looked for."
            )
        extra_ns = np.zeros(len(job.duration_ns))
        extra_ns[found.node[meant]] = (found.usual_ns - found.took_ns)[meant]
        return job.plus(extra_ns)

    def _meant(self) -> tuple[StallKind, ...]:
        if self.kinds == EVERYTHING:
            return _MEANT
        return tuple(kind for kind in _MEANT if is_meant(self.kinds, kind.words))
