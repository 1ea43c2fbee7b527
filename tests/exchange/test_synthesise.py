from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import GraphError
from foretrace.exchange import Synthesised, synthesise
from foretrace.exchange.synthesis.observed import distance, observed
from foretrace.exchange.synthesis.synthesise import group_of, program
from foretrace.graph import (
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    build_recording,
    chakra_recording,
    verify,
)
from foretrace.simulate import simulate
from foretrace.trace import NodeType, load_traces, read_chakra
from tests.graphs import Edge, GraphBuilder


def source(num_rounds: int = 6) -> ExecutionGraph:
    """Two ranks that launch a kernel, then another, then meet; again and again."""
    build = GraphBuilder()
    last = {rank: build.add(NodeKind.STEP_BEGIN, rank=rank) for rank in (0, 1)}
    for number in range(num_rounds):
        kernels: dict[int, int] = {}
        for rank in (0, 1):
            for name, takes_ns in (("gemm", 1_000 + number), ("relu", 200 + rank)):
                last[rank] = build.add(
                    NodeKind.LAUNCH, rank=rank, name="launch", takes_ns=10, after=[last[rank]]
                )
                after = [Edge(last[rank], EdgeKind.LAUNCH)]
                if rank in kernels:
                    after.append(Edge(kernels[rank], EdgeKind.STREAM))
                kernels[rank] = build.add(
                    NodeKind.KERNEL, rank=rank, lane="stream 7", name=name, takes_ns=takes_ns,
                    after=after,
                )  # fmt: skip
        meeting = {}
        for rank in (0, 1):
            last[rank] = build.add(
                NodeKind.LAUNCH, rank=rank, name="launch", takes_ns=10, after=[last[rank]]
            )
            meeting[rank] = [
                Edge(last[rank], EdgeKind.LAUNCH), Edge(kernels[rank], EdgeKind.INTER_STREAM),
            ]  # fmt: skip
        build.collective(meeting, transfer_ns=50)
    return build.graph()


def made_of(
    graph: ExecutionGraph, folder: Path, *, num_nodes: int = 60, num_ranks: int = 2, seed: int = 0
) -> Synthesised:
    return synthesise([graph], folder / "job", num_nodes=num_nodes, num_ranks=num_ranks, seed=seed)


def again(made: Synthesised) -> ExecutionGraph:
    return chakra_recording([read_chakra(path) for path in made.paths]).graph


def test_the_observed_nodes_wait_for_their_launches() -> None:
    seen = observed([source()])

    kernels = [node for node, token in enumerate(seen.token) if seen.tokens[token].name == "gemm"]
    assert len(kernels) == 12
    assert {seen.waits[node].ago for node in kernels} == {(1,)}
    assert seen.num_ranks == 2


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_a_made_job_of_any_size_is_valid_and_replays(tmp_path: Path, num_ranks: int) -> None:
    made = made_of(source(), tmp_path, num_nodes=77, num_ranks=num_ranks)

    traces = [read_chakra(path) for path in made.paths]
    graph = chakra_recording(traces).graph
    assert [len(trace.nodes) for trace in traces] == [77] * num_ranks
    verify(graph)
    assert graph.ranks == tuple(range(num_ranks))
    assert {one.ranks for one in graph.collectives} <= {tuple(range(num_ranks))}
    assert simulate(graph).end_ns.max() > 0


def test_a_program_that_repeats_is_learned_exactly(tmp_path: Path) -> None:
    made = made_of(source(), tmp_path, num_nodes=50)

    nodes = read_chakra(made.paths[0]).nodes
    names = [nodes.texts[int(name)] for name in nodes.name]
    kernels = [name for name in names if name in ("gemm", "relu")]
    assert kernels == (["gemm", "relu"] * 25)[: len(kernels)]
    assert np.count_nonzero(nodes.kind == NodeType.COMM_COLL) >= 8


def test_every_duration_was_measured_of_the_same_kind_of_node(tmp_path: Path) -> None:
    graph = again(made_of(source(), tmp_path))

    of_name = {
        name: set(graph.measured_ns[graph.name == at].tolist())
        for at, name in enumerate(graph.names)
    }
    assert of_name["gemm"] <= {1_000 + number for number in range(6)}
    assert of_name["relu"] == {200, 201}


def test_the_same_seed_makes_the_same_files_and_another_makes_others(tmp_path: Path) -> None:
    one, same, other = (
        made_of(source(), tmp_path / folder, seed=seed).paths[0].read_bytes()
        for folder, seed in (("a", 4), ("b", 4), ("c", 5))
    )

    assert one == same
    assert one != other


def test_distances_stand_beside_those_of_the_source_s_halves(tmp_path: Path) -> None:
    made = made_of(source(40), tmp_path, num_nodes=400)

    assert made.closeness is not None
    found = {one.measure: one for one in made.closeness.distances}
    assert set(found) == {"operators", "durations", "sizes", "waits", "critical path"}
    assert found["operators"].made < 0.05
    assert found["waits"].made < 0.05
    # The kernel got slower from round to round, which a shuffled source cannot show.
    assert found["durations"].halves > 0.1
    assert found["durations"].made < 0.1
    assert made.to_polars().height == 5


def test_a_source_without_work_is_refused() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN)

    with pytest.raises(GraphError, match="nothing to learn from"):
        observed([build.graph()])


def test_a_context_that_leads_nowhere_is_shortened() -> None:
    seen = observed([source(1)])  # one round: after the last node there is nothing

    made = program(seen, 40, order=3, rng=np.random.default_rng(0))

    assert len(made.token) == 40


@given(
    size=st.sampled_from([1, 2, 4]),
    stride=st.sampled_from([1, 2, 4]),
    num_ranks=st.integers(1, 24),
)
def test_groups_are_partitions_of_the_ranks(size: int, stride: int, num_ranks: int) -> None:
    seen = observed([source(1)])
    message = next(token.message for token in seen.tokens if token.message is not None)
    message = type(message)(message.kind, 8, "", size, stride, is_whole=False)

    groups = {group_of(message, rank, num_ranks) for rank in range(num_ranks)}

    assert sorted(rank for group in groups for rank in group) == list(range(num_ranks))
    if num_ranks % (size * stride) == 0:
        assert {len(group) for group in groups} == {size}


@given(st.lists(st.integers(0, 9), min_size=1), st.lists(st.integers(0, 9), min_size=1))
def test_distance_is_the_largest_difference_of_shares(one: list[int], other: list[int]) -> None:
    def share(values: list[int], limit: int) -> float:
        return sum(value <= limit for value in values) / len(values)

    expected = max(abs(share(one, limit) - share(other, limit)) for limit in range(10))

    assert distance(one, other) == pytest.approx(expected)


def test_a_public_recording_comes_out_alike(data_dir: Path, tmp_path: Path) -> None:
    recording = build_recording(load_traces(data_dir / "traces" / "megatron-tp8", ranks=(0, 1)))

    made = made_of(recording.graph, tmp_path, num_nodes=4_000, num_ranks=2, seed=1)

    assert made.closeness is not None
    # A draw of this size varies by about 1.36 / sqrt(8,000) at 95%, and its order by more.
    assert max(one.made for one in made.closeness.distances) < 0.15
