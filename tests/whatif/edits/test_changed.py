"""What holds for all changes: no change, inverse changes, their order, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.analyze import Selection, WorkKind
from foretrace.base import ScenarioError
from foretrace.cost import Source
from foretrace.graph import ExecutionGraph, NodeKind, Part, Phase, verify
from foretrace.simulate import simulate
from foretrace.whatif import (
    CudaGraphs,
    DataLoading,
    Delay,
    Fuse,
    Lasts,
    MoveSync,
    Network,
    RemoveSync,
    Speed,
    WorkEdit,
)
from foretrace.whatif.arrange.arranged import unchanged
from foretrace.whatif.edits.changed import changed
from tests.truth import JobConfig
from tests.whatif.edits.jobs import measured_costs, recovered

ALL = Selection()

SELECTIONS = st.sampled_from(
    [
        ALL,
        Selection(named="gemm"),
        Selection(kernels="*elementwise*"),
        Selection(operators="aten::mm"),
        Selection(parts=(Part.LAYER,), phases=(Phase.BACKWARD,)),
        Selection(layers=(0,), ranks=(1,)),
        Selection(works=(WorkKind.COMMUNICATION,)),
        Selection(ranks=(0,), works=(WorkKind.COMPUTE, WorkKind.HOST)),
    ]
)
# Of these some follow each other.
IN_RUNS = st.sampled_from(
    [ALL, Selection(operators="aten::mm"), Selection(parts=(Part.LAYER,), phases=(Phase.BACKWARD,))]
)
FACTORS = st.floats(0.1, 10)
TIMES = st.builds(Speed, FACTORS, SELECTIONS)
NETWORKS = st.builds(Network, st.integers(0, 1_000_000), FACTORS)
CHANGES = st.one_of(
    TIMES,
    NETWORKS,
    st.builds(
        Delay,
        st.integers(-10_000, 1_000_000),
        SELECTIONS,
        once_per_block=st.booleans(),
        on_device=st.booleans(),
    ),
    st.builds(Fuse, IN_RUNS, FACTORS),
    st.builds(CudaGraphs, IN_RUNS),
    st.just(RemoveSync()),
    st.just(MoveSync()),
    st.builds(DataLoading, st.none(), FACTORS),
)


@cache
def job() -> ExecutionGraph:
    """Two ranks that reduce gradients, load data and read their loss."""
    config = JobConfig(dp=2, num_layers=2, num_steps=2, num_microbatches=1, noise=False)
    return recovered(config).graph


def lengths(*changes: WorkEdit) -> tuple[list[int], list[int], list[int]]:
    """Ends, lower and upper ends of all nodes after changes."""
    graph = job()
    arranged, costs = changed(unchanged(graph), measured_costs(graph), changes)
    ends = simulate(arranged.graph, costs.duration_ns).end_ns
    return ends.tolist(), costs.low_ns.tolist(), costs.high_ns.tolist()


@pytest.mark.parametrize(
    "change",
    [
        Speed(1.0, ALL),
        Delay(0, ALL, once_per_block=False),
        Network(),
        DataLoading(),
        Speed(1.0, Selection(named="gemm")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_changes_nothing_gives_the_very_same_job(change: WorkEdit) -> None:
    arranged, costs = unchanged(job()), measured_costs(job())

    after = changed(arranged, costs, [change])

    assert after[0] is arranged
    assert after[1] is costs


@settings(max_examples=25)
@given(selection=SELECTIONS, factor=FACTORS, extra_ns=st.integers(0, 1_000_000))
def test_a_change_and_its_inverse_give_the_job_back_to_the_nanosecond(
    selection: Selection, factor: float, extra_ns: int
) -> None:
    there: list[WorkEdit] = [
        Speed(1 / factor, selection),
        Network(factor=factor),
        Delay(extra_ns, selection, once_per_block=False),
    ]
    back: list[WorkEdit] = [
        Delay(-extra_ns, selection, once_per_block=False),
        Network(factor=1 / factor),
        Speed(factor, selection),
    ]

    assert lengths(*there, *back) == lengths()


@settings(max_examples=25)
@given(changes=st.lists(CHANGES, min_size=2, max_size=5), data=st.data())
def test_the_order_in_which_changes_are_given_makes_no_difference(
    changes: list[WorkEdit], data: st.DataObject
) -> None:
    assert lengths(*changes) == lengths(*data.draw(st.permutations(changes)))


@settings(max_examples=25)
@given(changes=st.lists(CHANGES, max_size=4))
def test_every_changed_graph_obeys_its_spec_and_its_intervals_hold_its_durations(
    changes: list[WorkEdit],
) -> None:
    graph = job()
    costs = measured_costs(graph)
    wide = replace(costs, low_ns=costs.low_ns // 2, high_ns=costs.high_ns * 2)

    arranged, after = changed(unchanged(graph), wide, changes)

    verify(arranged.graph)
    assert len(after) == arranged.graph.num_nodes == len(arranged.source) == len(arranged.scale)
    assert (after.low_ns <= after.duration_ns).all()
    assert (after.duration_ns <= after.high_ns).all()
    same = arranged.source
    assert (arranged.graph.kind == graph.kind[same]).all()
    assert (arranged.graph.rank == graph.rank[same]).all()


def test_factors_on_one_node_multiply_and_are_rounded_once() -> None:
    graph = job()
    chosen = graph.kind == NodeKind.KERNEL
    thirds = [
        Speed(3.0, Selection(ranks=(0, 1))),
        Speed(3.0, ALL),
        Speed(1 / 9.0, ALL),
    ]

    _, costs = changed(unchanged(graph), measured_costs(graph), thirds)

    assert (costs.duration_ns[chosen] == graph.measured_ns[chosen]).all()


def test_measured_work_stays_measured_when_a_factor_is_stated_and_a_length_is_the_users() -> None:
    graph = job()
    changes: list[WorkEdit] = [
        Speed(0.5, Selection(named="gemm")),
        Lasts(5, Selection(kernels="*flash_fwd*")),
    ]

    _, costs = changed(unchanged(graph), measured_costs(graph), changes)

    stated = costs.source == Source.TABLE
    assert (costs.duration_ns[stated] == 5).all()
    assert (costs.low_ns[stated] == 5).all()
    assert 0 < stated.sum() < (costs.source == Source.MEASURED).sum()
    assert {costs.families[at] for at in costs.family[stated].tolist()} == {"stated"}


def test_a_transfer_takes_its_factor_and_then_the_delay() -> None:
    graph = job()
    transfers = graph.kind == NodeKind.FINISH

    _, costs = changed(unchanged(graph), measured_costs(graph), [Network(extra_ns=7, factor=2.0)])

    assert (costs.duration_ns[transfers] == 2 * graph.measured_ns[transfers] + 7).all()
    assert (costs.duration_ns[~transfers] == graph.measured_ns[~transfers]).all()


def test_loading_takes_what_was_stated_in_every_step_of_the_ranks_named() -> None:
    graph = job()
    is_loading = (graph.part == Part.DATA) & np.isin(
        graph.kind, (NodeKind.HOST_SEGMENT, NodeKind.CALL)
    )

    _, costs = changed(
        unchanged(graph), measured_costs(graph), [DataLoading(5_000_000, ranks=(1,))]
    )

    for rank in (0, 1):
        for step in (0, 1):
            own = is_loading & (graph.rank == rank) & (graph.step == step)
            expected_ns = 5_000_000 if rank == 1 else graph.measured_ns[own].sum()
            assert abs(costs.duration_ns[own].sum() - expected_ns) <= own.sum()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Speed(0.5, Selection(named="gem")), "no family here is 'gem': there are 'CUTLASS gemm'"),
        (Speed(0.5, Selection(kernels="*flsh*")), "no kernel here is"),
        (Speed(0.5, Selection(operators="aten::adm")), "there are 'aten::addmm'"),
        (Speed(0.5, Selection(layers=(7, 8))), "no layer here is 7,8: there are '0-1'"),
        (Speed(0.5, Selection(ranks=(2,))), "no rank here is 2: there are '0-1'"),
        (Speed(0.5, Selection(parts=(Part.TRANSFER,))), "no part here is 'transfer'"),
        (
            Speed(0.5, Selection(named="attention", parts=(Part.OPTIMIZER,))),
            "none that fits them all",
        ),
        (Network(groups=("tp",)), "no transfer is of a group 'tp': there are"),
        (RemoveSync(calls="cudaMemcpy"), "there are 'cudaDeviceSynchronize', 'cudaStream"),
        (DataLoading(5, ranks=(9,)), "ranks 9 load no data: ranks 0, 1 do"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_what_names_nothing_is_refused_with_what_there_is(change: WorkEdit, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        changed(unchanged(job()), measured_costs(job()), [change])

    assert words in str(caught.value)
