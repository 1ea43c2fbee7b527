"""`graph_of_roles`: what ranks issued becomes the graph of their job, without times.

Every operator is a launch on the host and work on the device, as `layout` writes it. Collectives
of one group meet turn by turn; who was not run does as the rank that stands for it, and so arrives
with it. Where a GPU timed its kernels each is a node of its own and keeps its time, and where no
machine is named, operators that ran on the host do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from foretrace.base import CollectiveKind, collective_kind_of, known_format
from foretrace.capture import (
    BACKWARD,
    OPTIMIZER,
    DeviceWork,
    IssuedExchange,
    IssuedRole,
    IssuedWork,
    StepBegin,
    StreamHold,
)
from foretrace.graph import (
    Collective,
    EdgeKind,
    Edges,
    ExecutionGraph,
    Lane,
    NamePool,
    NodeKind,
    Phase,
)
from foretrace.trace import STEP_MARK, Category
from foretrace.workload import (
    AT_ONCE,
    BY_HUB,
    BY_ITSELF,
    Issued,
    Launch,
    graph_of_issued,
    meetings_of,
    neutral_columns,
)

_HOST, _FIRST_STREAM = 1, 7  # numbers as a trace of PyTorch shows its threads and streams
_PHASES = {BACKWARD: Phase.BACKWARD, OPTIMIZER: Phase.OPTIMIZER}
_SEND, _RECV = "send", "recv"
_STARTED = {  # category of a trace -> what a node is, and the call that started it
    Category.KERNEL: (NodeKind.KERNEL, "cudaLaunchKernel"),
    Category.MEMCPY: (NodeKind.MEMCPY, "cudaMemcpyAsync"),
    Category.MEMSET: (NodeKind.MEMSET, "cudaMemsetAsync"),
}


@dataclass
class _Rows:
    """Nodes as they are issued, column by column."""

    columns: dict[str, list[int]] = field(
        default_factory=lambda: {
            name: []
            for name in (
                "kind", "rank", "lane", "step", "name", "operator", "operator_signature", "phase",
                "measured_ns",
            )
        }
    )  # fmt: skip
    chained: list[bool] = field(default_factory=list)

    def add(self, kind: NodeKind, *, chained: bool, **values: int) -> int:
        for name, column in self.columns.items():
            column.append(values.get(name, -1 if name.startswith("operator") else 0))
        self.columns["kind"][-1] = kind
        self.chained.append(chained)
        return len(self.chained) - 1


@dataclass
class _Meeting:
    """One rank's part of an exchange."""

    arrive: int
    finish: int
    key: tuple[object, ...]
    rank: int
    collective: Collective
    held_by: int


@dataclass
class _Draft:
    """What all ranks issue, as it is being written."""

    launch: Launch
    on_device: bool
    is_timed: bool
    names: NamePool
    rows: _Rows = field(default_factory=_Rows)
    lanes: dict[tuple[int, int], int] = field(default_factory=dict)
    edges: dict[EdgeKind, list[tuple[int, int]]] = field(default_factory=dict)
    meetings: list[_Meeting] = field(default_factory=list)

    def lane(self, rank: int, stream: int | None) -> int:
        """Of a rank's host thread, or of a stream."""
        return self.lanes.setdefault((rank, -1 if stream is None else stream), len(self.lanes))

    def edge(self, kind: EdgeKind, source: int, target: int) -> None:
        self.edges.setdefault(kind, []).append((source, target))


def graph_of_roles(
    roles: Sequence[IssuedRole],
    *,
    launch: Launch,
    on_device: bool,
    warmup: int,
    is_timed: bool = False,
) -> ExecutionGraph:
    """The graph of the steps after the first few.

    Args:
        roles: of ranks that were run.
        launch: what the host takes for each launch where nothing measured it.
        on_device: whether work is launched, or done by the host in the time that it took.
        warmup: steps to leave out.
        is_timed: whether kernels are those that a GPU ran, and keep the time that they took there;
            else each operator is one kernel whose time is not known.

    Raises:
        GraphError: if roles wait for each other in a circle.
    """
    draft = _Draft(launch if on_device else AT_ONCE, on_device, is_timed, NamePool())
    num_steps = min(role.whole_steps for role in roles) - warmup
    for role in sorted(roles, key=lambda one: one.rank):
        _RoleWriter(draft, role, range(warmup, warmup + num_steps)).write()
    return _built(draft, num_steps)


class _RoleWriter:
    """Writes the nodes of one rank."""

    def __init__(self, draft: _Draft, role: IssuedRole, steps: range) -> None:
        self._draft, self._role, self._steps = draft, role, steps
        self._texts = [draft.names.of(text) if text else -1 for text in role.texts]
        self._host_lane = draft.lane(role.rank, None)
        self._step = 0
        self._is_open = False
        self._frontier: dict[int, tuple[int, ...]] = {}  # stream -> nodes that its next waits for
        self._tail: dict[int, int] = {}  # stream -> its last node
        self._of_entry: dict[int, tuple[int, ...]] = {}
        self._since: list[int] = []  # nodes that nothing of the step's end waits for yet
        self._waits: list[int] = []  # of the host, where the host works itself

    def write(self) -> None:
        """All steps."""
        self._mark(NodeKind.RANK_START, "start", chained=False)
        for at, entry in enumerate(self._role.entries):
            if isinstance(entry, StepBegin):
                self._end_step()
                if entry.number in self._steps:
                    self._begin_step(entry.number - self._steps.start)
            elif self._is_open:
                if isinstance(entry, IssuedWork):
                    self._work(at, entry)
                elif isinstance(entry, IssuedExchange):
                    self._exchange(at, entry)
                else:
                    self._hold(at, entry)
        self._end_step()

    def _mark(self, kind: NodeKind, name: str, *, chained: bool = True) -> int:
        return self._draft.rows.add(
            kind,
            chained=chained,
            rank=self._role.rank,
            lane=self._host_lane,
            name=self._draft.names.of(name),
            step=self._step if kind != NodeKind.RANK_START else -1,
        )

    def _begin_step(self, step: int) -> None:
        self._step, self._is_open = step, True
        self._mark(NodeKind.STEP_BEGIN, f"{STEP_MARK}{step}")

    def _end_step(self) -> None:
        if not self._is_open:
            return
        kind = NodeKind.SYNC if self._draft.on_device else NodeKind.THREAD_WAIT
        sync = self._mark(kind, "wait for the device")
        edge = EdgeKind.WAKE if self._draft.on_device else EdgeKind.THREAD
        for node in sorted(set(self._tail.values())):
            self._draft.edge(edge, node, sync)
        self._mark(NodeKind.STEP_END, f"{STEP_MARK}{self._step}")
        self._is_open = False

    def _work(self, at: int, entry: IssuedWork) -> None:
        draft = self._draft
        said = {
            "rank": self._role.rank, "step": self._step, "phase": _PHASES.get(
                entry.phase, Phase.FORWARD
            ),
            "operator": self._texts[entry.name],
            "operator_signature": self._texts[entry.signature],
        }  # fmt: skip
        if not draft.on_device:
            self._host_work(at, entry, said)
            return
        started = (DeviceWork(entry.name, Category.KERNEL, 0),)
        for one in entry.started if draft.is_timed else started:
            kind, call = _STARTED[Category(one.category)]
            launched = draft.rows.add(
                NodeKind.LAUNCH, chained=True, lane=self._host_lane, name=draft.names.of(call),
                measured_ns=self._launch_ns(entry.phase), **said,
            )  # fmt: skip
            node = draft.rows.add(
                kind, chained=False, lane=draft.lane(self._role.rank, entry.stream),
                name=self._texts[one.name], measured_ns=one.duration_ns, **said,
            )  # fmt: skip
            draft.edge(EdgeKind.LAUNCH, launched, node)
            self._follow(at, entry.stream, node, node)

    def _host_work(self, at: int, entry: IssuedWork, said: Mapping[str, int]) -> None:
        """An operator that the host does itself, after what it did before."""
        rows = self._draft.rows
        rows.add(
            NodeKind.HOST_SEGMENT, chained=True, lane=self._host_lane, rank=self._role.rank,
            step=self._step, name=self._draft.names.of("host"), measured_ns=entry.host_ns,
        )  # fmt: skip
        self._wait_on_host(entry.stream)
        node = rows.add(
            NodeKind.OPERATOR, chained=True, lane=self._host_lane, name=self._texts[entry.name],
            measured_ns=entry.measured_ns, **said,
        )  # fmt: skip
        rows.columns["operator"][-1] = rows.columns["operator_signature"][-1] = -1
        self._of_entry[at] = self._frontier[entry.stream] = (node,)
        self._tail[entry.stream] = node

    def _wait_on_host(self, stream: int) -> None:
        """The host waits for what the stream would: there is but one thread."""
        waits = [node for node in self._frontier.get(stream, ()) if node in self._waits]
        if waits:
            node = self._mark(NodeKind.THREAD_WAIT, "wait for a collective")
            for source in waits:
                self._draft.edge(EdgeKind.THREAD, source, node)
            self._waits = [one for one in self._waits if one not in waits]

    def _exchange(self, at: int, entry: IssuedExchange) -> None:
        draft, rank = self._draft, self._role.rank
        said = {
            "rank": rank, "step": self._step, "phase": _PHASES.get(entry.phase, Phase.FORWARD),
        }  # fmt: skip
        kind = collective_kind_of(entry.name)
        if kind is CollectiveKind.BARRIER and draft.on_device:
            # NCCL has none: PyTorch's ProcessGroupNCCL::barrier sums one number over the group.
            one = {"in_elements": 1, "out_elements": 1, "dtype": "float32"}
            entry = msgspec.structs.replace(entry, name="allreduce", **one)
            kind = CollectiveKind.ALL_REDUCE
        title = _title(kind.in_tables, on_device=draft.on_device)
        issue = draft.rows.add(
            NodeKind.LAUNCH if draft.on_device else NodeKind.CALL, chained=True,
            lane=self._host_lane, name=draft.names.of("cudaLaunchKernelExC" if draft.on_device
            else f"c10d::{entry.name}"),
            measured_ns=draft.launch.exchange_ns if draft.on_device else entry.host_ns, **said,
        )  # fmt: skip
        lane = draft.lane(rank, entry.stream)
        name = draft.names.of(title)
        arrive = draft.rows.add(NodeKind.ARRIVE, chained=False, lane=lane, name=name, **said)
        finish = draft.rows.add(NodeKind.FINISH, chained=False, lane=lane, name=name, **said)
        draft.edge(EdgeKind.LAUNCH if draft.on_device else EdgeKind.ISSUE, issue, arrive)
        for node in self._of_entry.get(entry.behind, ()):
            if draft.on_device:
                draft.edge(EdgeKind.INTER_STREAM, node, arrive)
        self._meet(entry, arrive, finish)
        self._waits.append(finish)
        self._follow(at, entry.stream, arrive, finish)

    def _meet(self, entry: IssuedExchange, arrive: int, finish: int) -> None:
        rank, members = self._role.rank, self._role.groups[entry.group]
        is_send = entry.name == _SEND
        name, group = entry.name, entry.group
        if entry.peer >= 0 and entry.name in {_SEND, _RECV}:
            members = (rank, entry.peer) if is_send else (entry.peer, rank)
            # Each direction is in order by itself, so a reader has to tell them apart.
            name, group = "send_recv", f"{group}:{members[0]}-{members[1]}"
        collective = Collective(
            name=name, group=group, ranks=members, recorded_ranks=(), position=0,
            num_bytes=entry.num_bytes,
            dtype=known_format(entry.dtype).name if entry.dtype else "",
            is_transfer_estimated=False,
        )  # fmt: skip
        key = (members, "transfer" if name == "send_recv" else "")
        held_by = BY_ITSELF if is_send and self._draft.on_device else BY_HUB
        self._draft.meetings.append(
            _Meeting(arrive, finish, key, rank, collective, held_by)
        )  # fmt: skip

    def _hold(self, at: int, entry: StreamHold) -> None:
        behind = self._of_entry.get(entry.behind, ())
        merged = tuple(dict.fromkeys((*self._frontier.get(entry.stream, ()), *behind)))
        self._frontier[entry.stream] = self._of_entry[at] = merged

    def _follow(self, at: int, stream: int, enter: int, leave: int) -> None:
        """A node is the next of its stream."""
        tail = self._tail.get(stream, -1)
        for node in self._frontier.get(stream, ()):
            if node == tail:
                self._draft.edge(EdgeKind.STREAM, node, enter)
            elif self._draft.on_device:
                self._draft.edge(EdgeKind.INTER_STREAM, node, enter)
        if tail >= 0 and tail not in self._frontier.get(stream, ()):
            self._draft.edge(EdgeKind.STREAM, tail, enter)
        self._frontier[stream] = self._of_entry[at] = (leave,)
        self._tail[stream] = leave

    def _launch_ns(self, phase: str) -> int:
        launch = self._draft.launch
        if phase == OPTIMIZER:
            return launch.optimizer_ns
        return launch.backward_ns if phase == BACKWARD else launch.forward_ns


def _title(kind: str, *, on_device: bool) -> str:
    """As libraries call what does it: `ncclDevKernel_AllReduce`, `gloo:all_reduce`."""
    if not on_device:
        return f"gloo:{kind}"
    return "ncclDevKernel_" + "".join(word.capitalize() for word in kind.split("_"))


def _built(draft: _Draft, num_steps: int) -> ExecutionGraph:
    rows, count = draft.rows, len(draft.rows.chained)
    number = {key: at for at, key in enumerate(dict.fromkeys(one.key for one in draft.meetings))}
    group = np.array([number[one.key] for one in draft.meetings], np.int64)
    met = meetings_of(
        np.array([one.arrive for one in draft.meetings], np.int64),
        np.array([one.finish for one in draft.meetings], np.int64),
        group=group,
        rank=np.array([one.rank for one in draft.meetings], np.int64),
    )
    lead = [draft.meetings[at] for at in met.member[met.lead].tolist()]
    recorded = np.split(met.rank, met.first[1:-1]) if len(met) else []
    # Collectives of a group differ; those that are alike but for their turn are one make.
    makes: dict[Collective, int] = {}
    made: list[Collective] = []
    for one, ranks in zip(lead, recorded, strict=True):
        made.append(replace(one.collective, recorded_ranks=tuple(ranks.tolist())))
        makes.setdefault(made[-1], len(makes))
    make = np.array([makes[one] for one in made], np.int64)
    collectives = met.collectives(make, lambda at: made[at])
    columns = neutral_columns(count + len(met))
    for name, column in rows.columns.items():
        columns[name][:count] = column
    issued = Issued(
        columns=columns,
        is_chained=np.array(rows.chained, np.bool_),
        lanes=tuple(_lane(rank, stream, draft) for rank, stream in draft.lanes),
        meetings=met,
        collectives=collectives,
        held_by=np.array([draft.meetings[at].held_by for at in met.member.tolist()], np.uint8),
    )
    edges = [
        Edges.of(kind, *np.array(pairs, np.int64).reshape(-1, 2).T)
        for kind, pairs in draft.edges.items()
    ]
    graph, _ = graph_of_issued(
        issued,
        Edges.joined(edges),
        names=draft.names,
        constants=draft.launch.constants,
        step_names=tuple(f"{STEP_MARK}{step}" for step in range(num_steps)),
    )
    return graph


def _lane(rank: int, stream: int, draft: _Draft) -> Lane:
    on_device = stream >= 0 and draft.on_device
    number = _HOST if stream < 0 else _FIRST_STREAM + stream
    return Lane(
        rank=rank, is_device=on_device, process=rank, device=0 if on_device else -1, number=number
    )
