from __future__ import annotations

import pytest
from hypothesis import given

from foretrace.analyze import (
    IdleCause,
    IdleCauses,
    Intervals,
    Stillness,
    breakdown,
    collective_times,
    idle,
    is_compute,
    steps,
)
from foretrace.analyze.idle import shortened
from foretrace.answer import duration_text
from foretrace.base import GraphError
from foretrace.graph import NO_COLLECTIVE, EdgeKind, NodeKind, Phase, Timeline
from foretrace.simulate import simulate
from tests.analyze.strategies import timelines
from tests.graphs import Block, Edge, GraphBuilder, timeline_of


def causes_of(timeline: Timeline) -> dict[tuple[int, str, IdleCause, int, str], int]:
    """Rank, kind, cause, culprit and subject to ns."""
    return {
        (row.rank, row.kind.name, row.cause, row.culprit_rank, row.subject): row.lost_ns
        for row in idle(timeline).rows()
    }


class OneRank:
    """A rank whose host works, launches, and perhaps waits, between two kernels of 100 ns."""

    def __init__(self, *, first_kernel_ns: int = 100) -> None:
        self.build = GraphBuilder()
        self.host = self.build.add(NodeKind.STEP_BEGIN, step="s")
        self.kernel = self.launch(takes_ns=first_kernel_ns)

    def launch(self, *, takes_ns: int = 100) -> int:
        """A launch call of 10 ns, a latency of 5, and a kernel on the one stream."""
        self.host = self.build.add(
            NodeKind.LAUNCH, name="launch", takes_ns=10, after=[self.host], step="s"
        )
        after = [Edge(self.host, EdgeKind.LAUNCH, 5)]
        if hasattr(self, "kernel"):
            after.append(Edge(self.kernel, EdgeKind.STREAM, 3))
        return self.build.add(
            NodeKind.KERNEL,
            lane="stream 7",
            name="gemm",
            operator="aten::mm",
            takes_ns=takes_ns,
            after=after,
            step="s",
        )

    def work(self, takes_ns: int, *, operator: str = "", phase: Phase = Phase.UNKNOWN) -> None:
        """Host time between calls."""
        self.host = self.build.add(
            NodeKind.HOST_SEGMENT,
            name="host",
            takes_ns=takes_ns,
            after=[self.host],
            operator=operator,
            step="s",
            block=Block(phase=phase),
        )

    def synchronise(self) -> None:
        """A call that waits for the last kernel and returns 7 ns after it."""
        self.host = self.build.add(
            NodeKind.SYNC,
            name="cudaStreamSynchronize",
            operator="aten::item",
            takes_ns=2,
            after=[self.host, Edge(self.kernel, EdgeKind.WAKE, 7)],
            step="s",
        )

    def timeline(self) -> Timeline:
        """A second kernel, and the end of the step with it."""
        self.kernel = self.launch()
        self.build.add(NodeKind.STEP_END, after=[self.host], step="s")
        return simulate(self.build.graph())


def test_idle_time_after_host_work_is_blamed_on_its_operator() -> None:
    rank = OneRank()
    rank.work(500, operator="aten::topk")

    found = causes_of(rank.timeline())

    # the first launch: 10 of host, 5 of latency; then 500 + 10 of host less the kernel's rest
    assert found == {
        (0, "IDLE", IdleCause.HOST, 0, "launch"): 10 + 10,
        (0, "IDLE", IdleCause.LAUNCH_LATENCY, 0, "gemm of aten::mm"): 5 + 5,
        (0, "IDLE", IdleCause.HOST, 0, "aten::topk"): 500 - 105,
    }


def test_a_busy_stream_leaves_only_its_hand_over() -> None:
    found = causes_of(OneRank(first_kernel_ns=2_000).timeline())

    assert found[0, "IDLE", IdleCause.STREAM, 0, "gemm of aten::mm"] == 3


@pytest.mark.parametrize("by", ["phase", "name"])
def test_data_loading_is_told_by_phase_or_by_name(by: str) -> None:
    rank = OneRank()
    if by == "phase":
        rank.work(500, operator="next", phase=Phase.DATA)
    else:
        rank.work(500, operator="enumerate(DataLoader)#__next__")

    causes = idle(rank.timeline()).by_cause()

    assert causes[IdleCause.DATA] == 395


def test_host_time_that_a_synchronisation_put_off_is_charged_to_it() -> None:
    rank = OneRank(first_kernel_ns=1_000)
    rank.synchronise()
    rank.work(60, operator="aten::add")

    found = causes_of(rank.timeline())

    name = "cudaStreamSynchronize in aten::item"
    # woken after 7, back after 2, then 60 of work and 10 of launch it could have done before
    assert found[0, "IDLE", IdleCause.SYNCHRONISATION, 0, name] == 7 + 2 + 60 + 10


def test_a_synchronisation_excuses_no_more_than_it_waited() -> None:
    rank = OneRank(first_kernel_ns=100)
    rank.synchronise()  # called at 10, returns at 122: waited 112
    rank.work(100, operator="aten::add")
    rank.work(400, operator="aten::topk")

    found = causes_of(rank.timeline())

    assert found[0, "IDLE", IdleCause.SYNCHRONISATION, 0, "cudaStreamSynchronize in aten::item"] > 0
    # begins 102 after the return, within the 112, so the piece is excused; its successor is not
    assert found[0, "IDLE", IdleCause.HOST, 0, "launch"] == 10 + 10


def test_a_long_stall_is_named_though_a_synchronisation_came_before() -> None:
    rank = OneRank(first_kernel_ns=5_000_000)
    rank.synchronise()
    rank.work(2_000_000, operator="time.sleep")

    found = causes_of(rank.timeline())

    assert found[0, "IDLE", IdleCause.HOST, 0, "time.sleep"] == 2_000_000


def test_data_loading_after_a_synchronisation_stays_data_loading() -> None:
    rank = OneRank(first_kernel_ns=5_000)
    rank.synchronise()
    rank.work(700, phase=Phase.DATA)

    assert idle(rank.timeline()).by_cause()[IdleCause.DATA] == 700


def test_in_a_measured_timeline_what_no_edge_explains_is_said_to_be_unexplained() -> None:
    build = GraphBuilder()
    begin = build.add(NodeKind.STEP_BEGIN, step="s")
    launch = build.add(NodeKind.LAUNCH, takes_ns=10, after=[begin], step="s")
    build.add(
        NodeKind.KERNEL,
        lane="stream 7",
        takes_ns=50,
        after=[Edge(launch, EdgeKind.LAUNCH, 5)],
        step="s",
    )
    build.add(NodeKind.STEP_END, after=[launch], step="s")

    timeline = timeline_of(build.graph(), [0, 0, 45, 10])

    assert idle(timeline).by_cause() == {
        IdleCause.UNEXPLAINED: 30,
        IdleCause.HOST: 10,
        IdleCause.LAUNCH_LATENCY: 5,
    }


def two_ranks(*, late_ns: int, operator: str, phase: Phase = Phase.UNKNOWN) -> Timeline:
    """Rank 1 has more host work before the same kernels and an all-reduce."""
    build = GraphBuilder()
    ready: dict[int, list[int]] = {}
    host: dict[int, int] = {}
    for rank in (0, 1):
        node = build.add(NodeKind.STEP_BEGIN, rank=rank, step="s")
        if rank == 1:
            node = build.add(
                NodeKind.HOST_SEGMENT,
                rank=1,
                name="host",
                operator=operator,
                takes_ns=late_ns,
                after=[node],
                step="s",
                block=Block(phase=phase),
            )
        host[rank] = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=10, after=[node], step="s")
        kernel = build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            name="gemm",
            takes_ns=300,
            after=[Edge(host[rank], EdgeKind.LAUNCH, 5)],
            step="s",
        )
        ready[rank] = [kernel]
    build.collective(ready, transfer_ns=40, step="s")
    for rank, node in host.items():
        build.add(NodeKind.STEP_END, rank=rank, after=[node], step="s")
    return simulate(build.graph())


def test_waiting_is_blamed_on_what_made_the_late_rank_late_not_on_what_it_did_last() -> None:
    # the last thing rank 1 does before it arrives is the same kernel as rank 0's
    found = causes_of(two_ranks(late_ns=200, operator="slow tokenizer"))

    assert found[0, "WAITING", IdleCause.HOST, 1, "slow tokenizer"] == 200
    assert {key[1] for key in found if key[0] == 1} == {"IDLE"}


def test_a_sentence_about_several_subjects_says_how_much_each_name_has() -> None:
    lost = idle(_two_subjects())

    (joined,) = [one for one in lost.offenders() if one.num_intervals > 1]
    rows = {one.subject: one.lost_ns for one in lost.rows() if one.cause == joined.cause}

    assert joined.subject_ns == rows[joined.subject]
    assert joined.lost_ns == sum(rows.values())
    assert f"{duration_text(joined.lost_ns)} in s" in joined.sentence
    assert f"; {duration_text(joined.subject_ns)} of it {joined.subject}" in joined.sentence


def _two_subjects() -> Timeline:
    """A device that two operators of the host keep waiting, one longer than the other."""
    build = GraphBuilder()
    last = build.add(NodeKind.STEP_BEGIN, step="s")
    for name, takes_ns in (("aten::short", 3_000_000), ("aten::long", 8_000_000)):
        last = build.add(
            NodeKind.HOST_SEGMENT, takes_ns=takes_ns, step="s", after=[last], operator=name
        )
        last = build.add(NodeKind.LAUNCH, takes_ns=10, step="s", after=[last], operator=name)
        build.add(
            NodeKind.KERNEL,
            lane="stream 7",
            takes_ns=100,
            step="s",
            after=[Edge(last, EdgeKind.LAUNCH)],
        )
    build.add(NodeKind.STEP_END, step="s", after=[last])
    return simulate(build.graph())


def test_waiting_for_a_late_data_loader_says_so_in_words() -> None:
    timeline = two_ranks(late_ns=12_300_000, operator="enumerate(DataLoader)", phase=Phase.DATA)

    sentences = idle(timeline).sentences(2)

    assert "rank 0 waits 12.30 ms in s for rank 1's data loading: enumerate(DataLoader)" in (
        sentences
    )


def test_waits_are_named_by_their_collective_and_idle_time_by_none() -> None:
    found = idle(two_ranks(late_ns=200, operator="x"))

    is_waiting = found.kind == Stillness.WAITING
    assert set(found.collective[is_waiting].tolist()) == {0}
    assert set(found.collective[~is_waiting].tolist()) == {NO_COLLECTIVE}


def test_a_wait_for_a_rank_that_itself_waited_goes_on_to_the_root() -> None:
    build = GraphBuilder()
    work = {0: 10, 1: 10, 2: 900}
    begin = {rank: build.add(NodeKind.STEP_BEGIN, rank=rank, step="s") for rank in work}
    kernel = {
        rank: build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            name="slow" if rank == 2 else "fast",
            takes_ns=takes_ns,
            after=[begin[rank]],
            step="s",
        )
        for rank, takes_ns in work.items()
    }
    first = build.collective(
        {1: [kernel[1]], 2: [kernel[2]]}, transfer_ns=5, group="right", step="s"
    )
    build.collective(
        {0: [kernel[0]], 1: [first[1]]}, transfer_ns=5, group="left", lane="stream 24", step="s"
    )
    for rank in work:
        build.add(NodeKind.STEP_END, rank=rank, after=[begin[rank]], step="s")

    found = idle(simulate(build.graph()))

    # rank 0 waits for rank 1, which waited for rank 2
    # of what it is late, the transfer of 5 is less than rank 0's own 10 and explains nothing
    blamed = (found.kind == Stillness.WAITING) & (found.culprit_rank != found.rank)
    assert set(found.culprit_rank[blamed].tolist()) == {2}
    assert found.duration_ns[blamed].sum() == (900 - 10) + (900 + 5 - 10)


def independent_wait_ns(timeline: Timeline, rank: int, begin_ns: int, end_ns: int) -> int:
    """Moments in which a rank is in a wait, computes nothing and transfers nothing."""
    graph, table = timeline.graph, collective_times(timeline)
    mine = table.rank == rank
    waits = Intervals.union_of(table.arrive_ns[mine], table.transfer_begin_ns[mine])
    computes = is_compute(graph)
    busy: set[int] = set()
    for arrive, finish in zip(table.transfer_begin_ns[mine], table.finish_ns[mine], strict=True):
        busy.update(range(arrive, finish))
    for node in range(graph.num_nodes):
        if graph.rank[node] == rank and computes[node]:
            busy.update(range(timeline.start_ns[node], timeline.end_ns[node]))
    waited = {
        moment
        for low, high in zip(waits.start_ns.tolist(), waits.end_ns.tolist(), strict=True)
        for moment in range(max(low, begin_ns), min(high, end_ns))
    }
    return len(waited - busy)


@given(timeline=timelines())
def test_every_idle_and_waiting_moment_has_one_cause(timeline: Timeline) -> None:
    found = idle(timeline)

    assert (found.begin_ns < found.end_ns).all()
    for row in breakdown(timeline).rows:
        in_row = (found.rank == row.rank) & (found.step == row.step)
        for kind, expected in (
            (Stillness.IDLE, row.parts.idle_ns),
            (Stillness.WAITING, waiting_of(timeline, row.rank, row.step)),
        ):
            chosen = in_row & (found.kind == kind)
            begin_ns, end_ns = found.begin_ns[chosen], found.end_ns[chosen]
            assert int((end_ns - begin_ns).sum()) == expected
            assert Intervals.union_of(begin_ns, end_ns).total_ns() == expected


def waiting_of(timeline: Timeline, rank: int, step: int) -> int:
    """Exposed waiting of one rank in one step's window."""
    table = steps(timeline)
    (at,) = ((table.rank == rank) & (table.step == step)).nonzero()[0]
    return independent_wait_ns(timeline, rank, int(table.begin_ns[at]), int(table.end_ns[at]))


@given(timeline=timelines())
def test_tables_sum_to_the_intervals(timeline: Timeline) -> None:
    found = idle(timeline)

    total_ns = found.total_ns()
    assert sum(row.lost_ns for row in found.rows()) == total_ns
    assert sum(row.lost_ns for row in found.offenders()) == total_ns
    assert sum(found.by_cause().values()) == total_ns
    assert sum(found.by_operator().values()) == total_ns
    assert found.to_polars()["lost_ns"].sum() == total_ns
    assert isinstance(found.as_json(), dict)


def test_one_step_can_be_chosen_and_an_unknown_one_is_refused() -> None:
    timeline = two_ranks(late_ns=200, operator="x")

    assert idle(timeline, step="s").rows() == idle(timeline).rows()
    with pytest.raises(GraphError, match="no step 'other': the recording has s"):
        idle(timeline, step="other")


def test_a_graph_without_steps_has_no_rows() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=5)

    found = idle(simulate(build.graph()))

    assert isinstance(found, IdleCauses)
    assert len(found) == 0
    assert found.rows() == ()
    assert found.to_polars().height == 0


def test_names_of_kernels_lose_their_templates_and_of_loaders_nothing() -> None:
    kernel = "void at::native::vectorized_elementwise_kernel<4, std::array<char*, 3> >(int, float)"

    assert shortened(kernel) == "at::native::vectorized_elementwise_kernel"
    assert shortened("enumerate(DataLoader)#__next__") == "enumerate(DataLoader)#__next__"
