"""Derivatives, exact effects and switching points, held against simulation without rounding."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import (
    FASTER,
    LeverKind,
    Sensitivity,
    SensitivityRow,
    critical_path,
    effect,
    sensitivity,
    step_time_ns,
    what_helps,
    windows,
)
from foretrace.analyze.activity import newly_at_once_ns
from foretrace.base import Bools, GraphError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Timeline
from foretrace.simulate import Scaling, simulate
from tests.analyze.step_graphs import KERNELS, step_graphs
from tests.graphs import Edge, GraphBuilder
from tests.oracles import batch as oracle

STEP = "ProfilerStep#0"


def in_lever(graph: ExecutionGraph, row: SensitivityRow) -> Bools:
    """Nodes of a lever of the random graphs, by its text alone."""
    kernel, finish = graph.kind == NodeKind.KERNEL, graph.kind == NodeKind.FINISH
    host = graph.is_of(NodeKind.HOST_SEGMENT, NodeKind.LAUNCH, NodeKind.SYNC)
    names = np.array(graph.names)[graph.name]
    of_collective = np.array([one.name for one in graph.collectives] or [""])[graph.collective]
    by_class = {
        "gemm": kernel & (names == KERNELS[0]),
        "softmax": kernel & (names == KERNELS[1]),
        "elementwise": kernel & (names == KERNELS[2]),
        "host": graph.kind == NodeKind.HOST_SEGMENT,
        "launch": graph.kind == NodeKind.LAUNCH,
        "synchronisation": graph.kind == NodeKind.SYNC,
    }
    transfer = finish & (of_collective == row.label)
    by_kind: dict[LeverKind, Bools] = {
        LeverKind.CLASS: by_class.get(row.label, transfer),
        LeverKind.KERNEL: kernel & (names == row.label),
        LeverKind.COLLECTIVE: transfer,
        LeverKind.GROUP: finish,
        LeverKind.HOST: host,
        LeverKind.COMPUTE: kernel,
        LeverKind.COMMUNICATION: finish,
    }
    if row.kind in {LeverKind.RANK_COMPUTE, LeverKind.RANK_HOST}:
        of_rank = graph.rank == int(row.label.split()[1])
        chosen: Bools = of_rank & (kernel if row.kind == LeverKind.RANK_COMPUTE else host)
        return chosen
    return by_kind[row.kind]


CHECKED = (
    LeverKind.CLASS,
    LeverKind.KERNEL,
    LeverKind.COLLECTIVE,
    LeverKind.GROUP,
    LeverKind.HOST,
    LeverKind.COMPUTE,
    LeverKind.COMMUNICATION,
    LeverKind.RANK_COMPUTE,
    LeverKind.RANK_HOST,
    LeverKind.LATENCY,
)


class Exact:
    """A step's length with one lever at any factor, in fractions."""

    def __init__(self, found: Sensitivity, row: SensitivityRow) -> None:
        graph = found.timeline.graph
        self._graph, self._span = graph, found.span
        on_edges = row.kind == LeverKind.LATENCY
        chosen = np.zeros(graph.num_nodes, np.bool_) if on_edges else in_lever(graph, row)
        self.mask = chosen
        self._label = chosen.astype(np.int32)
        names = [kind.name.lower().replace("_", " ") + " latency" for kind in EdgeKind]
        self._kinds = np.array([on_edges and name == row.label for name in names])

    def step_ns(self, factor: float) -> Fraction:
        """The step's length; another node may end it, the same mark begins it."""
        ends = self._ends(factor)
        return max(self._last(ends, self._span.steps[-1]) - self._begin_ns(ends), Fraction(0))

    def begin_moves(self) -> bool:
        """Whether the step begins at another time with the lever free."""
        return self._begin_ns(self._ends(0.0)) != self._begin_ns(self._ends(1.0))

    def _ends(self, factor: float) -> oracle.Ends:
        scaling = Scaling(
            label=self._label,
            factor=np.array([[1.0, factor]]),
            lag_factor=np.where(self._kinds, factor, 1.0)[None, :],
        )
        return oracle.ends(self._graph, scaling, 0)

    def _begin_ns(self, ends: oracle.Ends) -> Fraction:
        if self._span.steps_before:
            return max(self._last(ends, step) for step in self._span.steps_before)
        return ends[self._span.begin_node]

    def _last(self, ends: oracle.Ends, step: int) -> Fraction:
        graph = self._graph
        ending = (NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.KERNEL, NodeKind.FINISH)
        in_step = (graph.step == step) & graph.is_of(*ending)
        if self._span.rank is not None:
            in_step &= graph.rank == self._span.rank
        return max(ends[node] for node in np.flatnonzero(in_step).tolist())


@given(graph=step_graphs(max_ranks=2, max_steps=2), data=st.data())
def test_every_lever_does_what_its_row_says(graph: ExecutionGraph, data: st.DataObject) -> None:
    timeline = simulate(graph)
    rank = data.draw(st.sampled_from((None, *graph.ranks)))
    table = windows(timeline)
    row_of_step = data.draw(st.integers(0, len(table) - 1))
    try:
        found = sensitivity(timeline, step=graph.step_names[row_of_step], rank=rank)
    except GraphError:
        assert table.duration_ns[row_of_step] == 0 or rank is not None
        return
    rows = [row for row in found.rows if row.kind in CHECKED]
    if not rows:
        return
    row = data.draw(st.sampled_from(rows))
    exact = Exact(found, row)
    base_ns = exact.step_ns(1.0)

    assert base_ns == found.step_ns
    assert row.derivative_ns is not None
    assert row.linear_to is not None
    if row.kind != LeverKind.LATENCY:
        by_node = found.derivative.astype(np.int64) * graph.measured_ns
        assert row.derivative_ns == by_node[exact.mask].sum()
    assert row.faster_ns == pytest.approx(float(exact.step_ns(FASTER) - base_ns), abs=1e-6)
    assert row.free_ns == float(exact.step_ns(0.0) - base_ns)
    share = data.draw(st.floats(0, 1))
    factor = row.linear_to + share * (1 - row.linear_to)
    expected = row.derivative_ns * (factor - 1)
    assert float(exact.step_ns(factor) - base_ns) == pytest.approx(expected, rel=1e-6, abs=1e-5)
    below = row.linear_to - 4e-6  # switching points of such small graphs lie further apart
    if below > 0 and not exact.begin_moves():
        expected = row.derivative_ns * (below - 1)
        assert abs(float(exact.step_ns(below) - base_ns) - expected) > 1e-6


@given(graph=step_graphs())
def test_a_first_steps_derivatives_are_its_critical_path(graph: ExecutionGraph) -> None:
    timeline = simulate(graph)
    step = graph.step_names[0]
    path = critical_path(timeline, step=step)
    if not path.step_ns:
        return

    found = sensitivity(timeline, step=step)

    work_ns = found.derivative.astype(np.int64) * graph.measured_ns
    lags_ns = sum(row.derivative_ns or 0 for row in found.of_kind(LeverKind.LATENCY))
    assert work_ns.sum() + lags_ns == path.step_ns
    assert (found.derivative[path.node[path.kind == 0]] >= 0).all()


@given(graph=step_graphs(), data=st.data())
def test_removing_all_waits_for_the_device_is_a_graph_without_them(
    graph: ExecutionGraph, data: st.DataObject
) -> None:
    step = data.draw(st.sampled_from(graph.step_names))
    before = simulate(graph)
    row = windows(before).row_of(step)
    if windows(before).duration_ns[row] == 0:
        return
    keeps = graph.edge_kind != EdgeKind.WAKE
    target = graph.edge_target[keeps]
    without = replace(
        graph,
        first_edge=np.searchsorted(target, np.arange(graph.num_nodes + 1)),
        predecessor=graph.predecessor[keeps],
        edge_kind=graph.edge_kind[keeps],
        lag_ns=graph.lag_ns[keeps],
    )

    found = sensitivity(before, step=step).of_kind(LeverKind.SYNCHRONISATION)

    freed = simulate(without)
    change_ns = windows(freed).duration_ns[row] - windows(before).duration_ns[row]
    into_step = np.repeat(graph.step, np.diff(graph.first_edge)) == row
    waits = bool((graph.edge_kind[into_step] == EdgeKind.WAKE).any())
    begins = windows(before).begin_node[row] >= 0
    if found:
        assert waits
        assert not begins or found[0].free_ns == change_ns
    elif waits and begins:  # most of the gain would be kernels at once
        assert 2 * newly_at_once_ns(before, freed) > -change_ns


def _forked() -> Timeline:
    """Two streams join: 90 ns of matrix products beside 60 ns of softmax, then 10 ns of softmax."""
    build = GraphBuilder()
    host = build.add(NodeKind.STEP_BEGIN, step=STEP)
    long = build.add(
        NodeKind.KERNEL, lane="stream 7", name=KERNELS[0], takes_ns=90, after=[host], step=STEP
    )
    short = build.add(
        NodeKind.KERNEL, lane="stream 8", name=KERNELS[1], takes_ns=60, after=[host], step=STEP
    )
    build.add(
        NodeKind.KERNEL,
        lane="stream 7",
        name=KERNELS[1],
        takes_ns=10,
        after=[Edge(long, EdgeKind.STREAM), Edge(short, EdgeKind.INTER_STREAM)],
        step=STEP,
    )
    build.add(NodeKind.STEP_END, after=[host], step=STEP)
    return simulate(build.graph())


def _row(found: Sensitivity, kind: LeverKind, label: str) -> SensitivityRow:
    (row,) = [row for row in found.of_kind(kind) if row.label == label]
    return row


def test_the_path_switches_where_the_longer_branch_is_the_shorter_one() -> None:
    row = _row(sensitivity(_forked()), LeverKind.CLASS, "gemm")

    assert row.derivative_ns == 90
    assert row.linear_to == pytest.approx(60 / 90, abs=1e-8)
    assert row.faster_ns == pytest.approx(-18)
    assert row.free_ns == pytest.approx(-30)


def test_a_branch_in_another_ones_shadow_is_worth_its_part_after_it() -> None:
    row = _row(sensitivity(_forked()), LeverKind.CLASS, "softmax")

    assert (row.time_ns, row.derivative_ns, row.num_nodes) == (70, 10, 2)
    assert row.linear_to == 0
    assert row.free_ns == -10


def test_a_branch_as_long_as_another_switches_at_once() -> None:
    timeline = _forked()
    even_ns = timeline.graph.measured_ns.copy()
    even_ns[2] = 90

    row = _row(sensitivity(simulate(timeline.graph, even_ns)), LeverKind.CLASS, "gemm")

    # of equally late predecessors the first edge counts: the matrix products' stream
    assert (row.derivative_ns, row.linear_to, row.free_ns) == (90, 1, 0)


def test_a_step_that_would_end_before_the_one_before_is_straight_until_then() -> None:
    build = GraphBuilder()
    host: list[int] = []
    for number, (stream, name, takes_ns) in enumerate(((8, KERNELS[1], 95), (7, KERNELS[0], 100))):
        step = f"ProfilerStep#{number}"
        host = [build.add(NodeKind.STEP_BEGIN, after=host, step=step)]
        lane = f"stream {stream}"
        build.add(NodeKind.KERNEL, lane=lane, name=name, takes_ns=takes_ns, after=host, step=step)
        host = [build.add(NodeKind.STEP_END, after=host, step=step)]

    found = sensitivity(simulate(build.graph()), step="ProfilerStep#1")

    row = _row(found, LeverKind.CLASS, "gemm")
    assert (found.step_ns, row.derivative_ns) == (5, 100)
    assert row.linear_to == pytest.approx(0.95)
    assert (row.faster_ns, row.free_ns) == (-5, -5)


def test_a_run_of_steps_is_answered_by_their_mean() -> None:
    build = GraphBuilder()
    host: list[int] = []
    for number, takes_ns in enumerate((100, 40, 10)):
        step = f"ProfilerStep#{number}"
        host = [build.add(NodeKind.STEP_BEGIN, after=host, step=step)]
        kernel = build.add(
            NodeKind.KERNEL,
            lane="stream 7",
            name=KERNELS[0],
            takes_ns=takes_ns,
            after=host,
            step=step,
        )
        host = [build.add(NodeKind.STEP_END, after=[kernel], step=step)]
    timeline = simulate(build.graph())

    found = sensitivity(timeline)
    halved = effect(timeline, "gemm=0.5")

    row = _row(found, LeverKind.CLASS, "gemm")
    assert found.span.step_name == halved.step_name == "mean of 3 steps"
    assert found.step_ns == halved.step_ns == step_time_ns(timeline) == 50
    assert (row.time_ns, row.num_nodes, row.derivative_ns) == (50, 1, 50)
    assert (row.faster_ns, row.free_ns, halved.effect_ns) == (-10, -50, -25)


def test_a_measured_timeline_is_judged_by_its_replay() -> None:
    replayed = _forked()
    measured = replace(replayed, start_ns=replayed.start_ns + 5, is_measured=True)

    assert sensitivity(measured).rows == sensitivity(replayed).rows


def test_levers_of_a_kind_are_the_steepest() -> None:
    found = sensitivity(_forked(), top=1)

    assert [row.label for row in found.of_kind(LeverKind.CLASS)] == ["gemm"]


def _straggling() -> Timeline:
    """Three ranks meet; rank 2's equal kernels are twice as slow, rank 0 does other work."""
    build = GraphBuilder()
    begin = {rank: build.add(NodeKind.STEP_BEGIN, rank=rank, step=STEP) for rank in range(3)}
    work = {0: ("other", 150), 1: (KERNELS[0], 100), 2: (KERNELS[0], 200)}
    kernel = {
        rank: build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane="stream 7",
            name=name,
            takes_ns=takes_ns,
            after=[begin[rank]],
            step=STEP,
        )
        for rank, (name, takes_ns) in work.items()
    }
    build.collective({rank: [node] for rank, node in kernel.items()}, transfer_ns=10, step=STEP)
    return simulate(build.graph())


def test_stragglers_are_held_against_ranks_with_the_same_work() -> None:
    (row,) = sensitivity(_straggling()).of_kind(LeverKind.STRAGGLERS)

    # rank 2 as fast as rank 1; rank 0 has no equal and is then the last
    assert row.free_ns == -50
    assert row.derivative_ns is None


def test_equal_ranks_have_no_stragglers() -> None:
    assert sensitivity(_forked()).of_kind(LeverKind.STRAGGLERS) == ()


def test_what_helps_is_ordered_by_gain_and_says_what_is_part_of_what() -> None:
    helps = what_helps(sensitivity(_straggling()))

    gains = [one.gain_ns for one in helps.rows]
    assert gains == sorted(gains, reverse=True)
    assert helps.rows[0].text == "all ranks as fast as the fastest: step -23.8%"
    assert helps.rows[0].change == ""
    by_text = {one.text.partition(":")[0]: one for one in helps.rows}
    assert by_text["gemm 20% faster"].gain_ns == pytest.approx(40)
    assert by_text["gemm 20% faster"].change == "gemm=0.8"
    assert by_text["gemm 20% faster"].inside == ("all compute",)
    assert by_text["rank 2 compute 20% faster"].inside == ("gemm", "all compute")
    # the kernel, and its family, are the class's nodes exactly: said once
    assert f"{KERNELS[0]} 20% faster" not in by_text
    assert by_text["allreduce 20% faster"].gain_ns == pytest.approx(2)


def test_what_helps_can_be_made() -> None:
    timeline = _straggling()

    for one in what_helps(sensitivity(timeline)).rows:
        if one.change:
            assert effect(timeline, one.change).effect_ns == pytest.approx(-one.gain_ns)


def test_no_levers_help_a_step_that_nothing_moves() -> None:
    build = GraphBuilder()
    start = build.add(NodeKind.RANK_START, takes_ns=7)
    late = build.add(NodeKind.RANK_START, rank=1, takes_ns=90)
    build.add(NodeKind.STEP_BEGIN, after=[start], step=STEP)
    build.add(NodeKind.STEP_BEGIN, rank=1, after=[late], step=STEP)

    helps = what_helps(sensitivity(simulate(build.graph())))

    assert helps.step_ns == 83
    assert helps.rows == ()
    assert helps.to_polars().height == 0


def test_a_step_without_length_is_refused() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step=STEP)

    with pytest.raises(GraphError, match=r"step 'ProfilerStep#0' has no length"):
        sensitivity(simulate(build.graph()))


def test_rows_can_be_written_as_json_and_as_a_table() -> None:
    found = sensitivity(_straggling())

    frame = found.to_polars()
    written = found.as_json()

    assert frame.height == len(found.rows)
    assert frame.filter(frame["select"] == "gemm")["faster_share"].item() == pytest.approx(
        -40 / 210
    )
    assert written["step_ns"] == 210
    assert "ranks:2 compute" in str(found.tables()[0].rows)
