"""Jobs of many cells: the definition in plain Python, and what must hold of any job."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import SimulationError
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.simulate import (
    FIXED,
    Cells,
    Draws,
    quantile_table,
    simulate,
    simulate_cells,
    simulate_samples,
)
from foretrace.simulate.sampling import _compiled, coupled
from tests.graphs import GraphBuilder
from tests.oracles import sampling as oracle

# Hashes wrap around, of which numpy warns where nothing is compiled.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


@st.composite
def programs(draw: st.DrawFn) -> tuple[ExecutionGraph, tuple[bool, ...]]:
    """Two ranks that compute and meet; some collectives reach beyond the cell."""
    build = GraphBuilder()
    last = {0: build.add(NodeKind.LAUNCH, rank=0, takes_ns=5)}
    last[1] = build.add(NodeKind.LAUNCH, rank=1, takes_ns=draw(st.integers(0, 50)))
    before_last = dict(last)
    crosses = []
    for _ in range(draw(st.integers(1, 5))):
        for rank in (0, 1):
            for _ in range(draw(st.integers(0, 2))):
                after = draw(st.sampled_from((last, before_last)))[rank]
                before_last[rank] = last[rank]
                last[rank] = build.add(
                    NodeKind.KERNEL, rank=rank, lane="stream 7", after=[after],
                    takes_ns=draw(st.integers(0, 100)),
                )  # fmt: skip
        who = draw(st.sampled_from(((0, 1), (0,), (1,))))
        crosses.append(draw(st.booleans()))
        done = build.collective(
            {rank: [last[rank]] for rank in who}, transfer_ns=draw(st.integers(0, 40))
        )
        for rank in who:
            before_last[rank] = last[rank]
            if draw(st.booleans()):
                last[rank] = done[rank]
    for rank in (0, 1):
        build.add(NodeKind.STEP_END, rank=rank, after=[last[rank], before_last[rank]])
    return build.graph(), tuple(crosses)


def draws_of(graph: ExecutionGraph, *, lanes: int, seed: int) -> Draws:
    """Kernels vary, and faster and slower ranks; collectives have one draw each."""
    node = np.arange(graph.num_nodes)
    is_kernel = graph.kind == NodeKind.KERNEL
    is_finish = graph.kind == NodeKind.FINISH
    generator = np.random.default_rng(seed)
    factor = np.hstack([np.ones((lanes, 1)), generator.uniform(0.5, 2.0, (lanes, 2))])
    return Draws(
        duration_ns=graph.measured_ns.astype(np.float64),
        make=np.where(is_kernel | is_finish, 0, FIXED).astype(np.int32),
        draw=np.where(is_finish, graph.num_nodes + graph.collective, node).astype(np.int64),
        table=quantile_table(lambda share: 0.25 + 1.5 * share, 1.0)[None],
        label=np.where(is_kernel, graph.rank + 1, 0).astype(np.int32),
        factor=factor,
        seed=seed,
    )


def goal_of(graph: ExecutionGraph) -> np.ndarray:
    return np.where(graph.kind == NodeKind.STEP_END, 0, -1).astype(np.int32)


def jobs(crosses: tuple[bool, ...], num_cells: int) -> Cells:
    whole = tuple(range(num_cells))
    return Cells(num_cells, tuple(whole if one else (0,) for one in crosses))


@settings(max_examples=40)
@given(programs(), st.sampled_from((1, 2, 3, 5)), st.integers(0, 1000))
def test_every_job_is_the_oracle_s(
    program: tuple[ExecutionGraph, tuple[bool, ...]], num_cells: int, seed: int
) -> None:
    graph, crosses = program
    draws, cells = draws_of(graph, lanes=8, seed=seed), jobs(crosses, num_cells)
    width = max(1, round(num_cells**0.5))
    rows = -(-num_cells // width)
    inner, outer = coupled._offsets((rows, width), num_cells, lanes=8, seed=seed)
    offset = (outer[:, None] + inner).ravel()[:num_cells].tolist()
    goal = np.flatnonzero(goal_of(graph) == 0).tolist()

    found = simulate_cells(graph, draws, cells, goal=goal_of(graph))[0]

    expected = oracle.cell_ends(graph, draws, cells, offset=offset, goal=goal)
    assert found.tolist() == pytest.approx(expected, rel=1e-9)


@settings(max_examples=40)
@given(programs(), st.integers(0, 1000))
def test_a_job_of_one_cell_is_the_plain_engine_s(
    program: tuple[ExecutionGraph, tuple[bool, ...]], seed: int
) -> None:
    graph, crosses = program
    draws = draws_of(graph, lanes=16, seed=seed)

    found = simulate_cells(graph, draws, jobs(crosses, 1), goal=goal_of(graph))[0]

    assert found == pytest.approx(simulate_samples(graph, draws, goal_of(graph))[:, 0], rel=1e-12)


@settings(max_examples=20)
@given(programs())
def test_cells_that_do_not_vary_take_what_one_takes(
    program: tuple[ExecutionGraph, tuple[bool, ...]],
) -> None:
    graph, crosses = program
    fixed = Draws(
        duration_ns=graph.measured_ns.astype(np.float64),
        make=np.full(graph.num_nodes, FIXED, np.int32),
        draw=np.arange(graph.num_nodes),
        table=np.ones((1, _compiled.NUM_POINTS), np.float32),
        label=np.zeros(graph.num_nodes, np.int32),
        factor=np.ones((8, 1)),
        seed=0,
    )

    found = simulate_cells(graph, fixed, jobs(crosses, 4), goal=goal_of(graph))

    assert (found == simulate(graph).end_ns[goal_of(graph) == 0].max()).all()


def barrier(takes_ns: int) -> ExecutionGraph:
    """A kernel, then a collective of all cells."""
    build = GraphBuilder()
    kernel = build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=takes_ns)
    done = build.collective({0: [kernel]}, transfer_ns=0)
    build.add(NodeKind.STEP_END, after=[done[0]])
    return build.graph()


def test_a_barrier_takes_the_largest_of_all_cells() -> None:
    graph = barrier(1000)
    draws = draws_of(graph, lanes=2048, seed=3)
    draws = Draws(**{**vars(draws), "factor": np.ones((2048, 3))})

    found = simulate_cells(graph, draws, jobs((True,), 16), goal=goal_of(graph))[0]

    # The largest of n uniform numbers is n / (n + 1) in the mean.
    assert found.mean() == pytest.approx(250 + 1500 * 16 / 17, rel=2e-3)


def test_a_variant_meets_the_cells_of_the_job_it_varies() -> None:
    graph = barrier(1000)
    draws = draws_of(graph, lanes=64, seed=3)
    factor = np.ones((128, 3))
    factor[64:, 1] = 3.0  # slower than any other cell can be

    found = simulate_cells(
        graph, Draws(**{**vars(draws), "factor": factor}), jobs((True,), 16),
        goal=goal_of(graph), num_variants=2,
    )[0]  # fmt: skip
    alone = simulate_samples(
        graph, Draws(**{**vars(draws), "factor": factor[64:]}), goal_of(graph)
    )[:, 0]

    assert (found[64:] >= found[:64]).all()
    assert (found[64:] >= alone * (1 - 1e-12)).all()
    waits = found[64:] > alone * (1 + 1e-12)
    assert (found[64:][waits] == found[:64][waits]).all()


def test_repeats_draw_again_and_keep_what_lasts() -> None:
    graph = barrier(1000)
    draws = draws_of(graph, lanes=512, seed=3)

    found = simulate_cells(graph, draws, jobs((True,), 1), goal=goal_of(graph), num_repeats=2)

    assert (found[0] != found[1]).mean() > 0.9
    # Ranks are 0.5 to 2 times as fast, kernels 0.25 to 1.75: what lasts is a good part.
    assert 0.2 < np.asarray(np.corrcoef(found))[0, 1] < 0.9


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=12), st.data())
def test_largest_of_shifts_is_the_oracle_s(values: list[int], data: st.DataObject) -> None:
    size = len(values)
    shift = st.lists(st.integers(0, size - 1), max_size=4)
    inner, outer, single = (np.array(data.draw(shift), np.int64) for _ in range(3))
    doubled = np.array([*values, *values], np.float64)
    between, largest = np.empty(2 * size), np.empty(size)

    _compiled._largest_of_shifts(doubled, inner, outer, single, between, largest)

    shifts = [int(a + b) for a in inner for b in outer] + single.tolist()
    assert largest.tolist() == oracle.largest_of_shifts(list(map(float, values)), shifts)


def test_lanes_that_make_no_job_are_refused() -> None:
    graph = barrier(10)

    with pytest.raises(SimulationError, match="8 lanes in 1 shares cannot make jobs of 9 cells"):
        simulate_cells(graph, draws_of(graph, lanes=8, seed=0), jobs((True,), 9),
                       goal=goal_of(graph))  # fmt: skip
    slow = draws_of(graph, lanes=8, seed=0)
    with pytest.raises(SimulationError, match="column 0 of factor must be 1"):
        simulate_cells(graph, Draws(**{**vars(slow), "factor": slow.factor * 2}), jobs((True,), 2),
                       goal=goal_of(graph))  # fmt: skip
