"""Graphs become Chakra files and graphs again; files of others keep all that they said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings

from foretrace.base import CircleError, GraphError
from foretrace.exchange import write_chakra
from foretrace.graph import (
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    chakra_recording,
    verify,
)
from foretrace.simulate import simulate
from foretrace.trace import inspect, read_chakra
from tests.exchange.chakra_round_trip import again, described
from tests.graph.recorded import recording_of
from tests.graphs import Edge, GraphBuilder
from tests.oracles import chakra as oracle
from tests.strategies import small_jobs
from tests.truth import Job

COMP, SEND, RECV, COLL = 4, 5, 6, 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


def nodes_of(path: Path) -> dict[int, Any]:
    return {node.id: node for node in oracle.parsed(path.read_bytes())[1]}


def attributes_of(node: Any) -> dict[str, tuple[str, object]]:
    return {
        one.name: (one.WhichOneof("value"), getattr(one, one.WhichOneof("value")))
        for one in node.attr
    }


@pytest.mark.compiled
@settings(max_examples=25)  # a job is a few thousand nodes
@given(job=small_jobs())
def test_any_graph_comes_back_the_same_in_all_that_it_says(folder: Path, job: Job) -> None:
    assume(all(any(True for _ in job.operations(rank)) for rank in range(job.num_ranks)))
    recording = recording_of(job)

    back = again(folder, recording.graph, recording.measured)

    assert described(back.measured) == described(recording.measured)
    assert described(simulate(back.graph)) == described(simulate(recording.graph))
    assert back.graph.lanes == recording.graph.lanes
    assert back.graph.constants == recording.graph.constants
    assert back.graph.step_names == recording.graph.step_names


def two_ranks(*, name: str = "allreduce", group: str = "world") -> ExecutionGraph:
    """Each rank launches a kernel of 400 ns and then communicates."""
    build = GraphBuilder()
    after: dict[int, list[int | Edge]] = {}
    for rank in (0, 1):
        start = build.add(NodeKind.RANK_START, rank=rank)
        launch = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=1_700, after=[start])
        more = build.add(NodeKind.LAUNCH, rank=rank, takes_ns=1_000, after=[launch])
        kernel = build.add(
            NodeKind.KERNEL, rank=rank, lane="stream 7", takes_ns=400,
            after=[Edge(launch, EdgeKind.LAUNCH, 5)],
        )  # fmt: skip
        after[rank] = [Edge(kernel, EdgeKind.INTER_STREAM, 3), Edge(more, EdgeKind.LAUNCH, 5)]
    finishes = build.collective(after, transfer_ns=9_000, name=name, group=group)
    for rank, finish in finishes.items():
        last = Edge(finish, EdgeKind.WAKE)
        launch = next(
            edge.node for edge in after[rank] if isinstance(edge, Edge) and edge.lag_ns == 5
        )
        build.add(NodeKind.SYNC, rank=rank, after=[launch, last])
    return build.graph((EdgeKind.LAUNCH, 5), (EdgeKind.INTER_STREAM, 3))


def test_attributes_have_the_types_that_consumers_read(tmp_path: Path) -> None:
    graph = two_ranks()

    written = write_chakra(tmp_path / "job", graph)

    nodes = nodes_of(written.paths[1])
    (collective,) = [node for node in nodes.values() if node.type == COLL]
    of_collective = attributes_of(collective)
    assert of_collective["is_cpu_op"] == ("bool_val", False)
    assert of_collective["comm_type"] == ("int64_val", 0)
    assert of_collective["comm_size"][0] == "int64_val"
    assert of_collective["pg_name"] == ("string_val", "1")
    assert of_collective["stream"] == ("int64_val", 20)
    assert json.loads(written.groups_path.read_text()) == {"1": [0, 1]}
    launch = next(node for node in nodes.values() if node.name == "launch")
    assert attributes_of(launch)["is_cpu_op"] == ("bool_val", True)


def test_nanoseconds_stand_beside_the_rounded_microseconds(tmp_path: Path) -> None:
    nodes = nodes_of(write_chakra(tmp_path / "job", two_ranks()).paths[0])

    kernel = next(node for node in nodes.values() if node.name == "kernel")
    launch = next(node for node in nodes.values() if node.name == "launch")

    assert (kernel.duration_micros, launch.duration_micros) == (0, 2)
    assert attributes_of(kernel)["duration_ns"] == ("int64_val", 400)
    assert attributes_of(launch)["duration_ns"] == ("int64_val", 1_700)


def test_all_that_holds_a_node_up_is_a_data_dependency(tmp_path: Path) -> None:
    nodes = nodes_of(write_chakra(tmp_path / "job", two_ranks()).paths[0])
    by_name = {node.name: node for node in nodes.values()}

    collective, kernel = by_name["allreduce"], by_name["kernel"]

    waits = {nodes[number].name for number in collective.data_deps}
    assert waits == {"kernel", "launch"}
    assert [nodes[number].name for number in kernel.data_deps] == ["launch"]
    assert list(kernel.ctrl_deps) == list(kernel.data_deps)
    assert collective.id in by_name["sync"].data_deps
    assert all(number in nodes for node in nodes.values() for number in node.data_deps)


def test_a_transfer_of_two_is_a_send_and_a_receive_with_one_tag(tmp_path: Path) -> None:
    graph = two_ranks(name="sendrecv", group="pp")

    written = write_chakra(tmp_path / "job", graph)

    sides = [
        next(node for node in nodes_of(path).values() if node.type in (SEND, RECV))
        for path in written.paths
    ]
    assert [side.type for side in sides] == [SEND, RECV]
    for side in sides:
        found = attributes_of(side)
        assert found["comm_src"] == ("int32_val", 0)
        assert found["comm_dst"] == ("int32_val", 1)
        assert found["comm_tag"] == ("int32_val", 0)


def test_an_edge_between_ranks_outside_communication_is_refused(tmp_path: Path) -> None:
    build = GraphBuilder()
    first = build.add(NodeKind.RANK_START, rank=0)
    other = build.add(NodeKind.RANK_START, rank=1)
    build.add(NodeKind.CALL, rank=1, after=[other, Edge(first, EdgeKind.THREAD)])

    with pytest.raises(GraphError, match=r"cannot write as Chakra: node 2 waits for node 0 of"):
        write_chakra(tmp_path / "job", build.graph())


def file_of(folder: Path, *nodes: Any, rank: int = 0) -> Path:
    path = folder / f"other.{rank}.et"
    path.write_bytes(oracle.framed([oracle.GlobalMetadata(version="0.0.4"), *nodes]))
    return path


def node_of(number: int, *, kind: int = COMP, cpu: bool = False, **told: Any) -> Any:
    attributes = told.pop("attributes", {})
    node = oracle.Node(id=number, name=told.pop("name", f"n{number}"), type=kind, **told)
    node.attr.add(name="is_cpu_op", bool_val=cpu)
    for name, value in attributes.items():
        field = "string_val" if isinstance(value, str) else "int64_val"
        node.attr.add(name=name, **{field: value})
    return node


def test_work_of_one_resource_runs_in_turn_and_dependencies_hold(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        node_of(1, duration_micros=10),
        node_of(2, duration_micros=5),
        node_of(3, kind=COLL, duration_micros=7, data_deps=[1], attributes={"comm_type": 0}),
        node_of(4, cpu=True, duration_micros=1, data_deps=[2, 3]),
    )

    recording = chakra_recording([read_chakra(path)])

    graph, timeline = recording.graph, simulate(recording.graph)
    verify(graph)
    ends = {
        graph.names[name]: end
        for name, kind, end in zip(
            graph.name.tolist(), graph.kind.tolist(), timeline.end_ns.tolist(), strict=True
        )
        if kind != NodeKind.ARRIVE
    }
    assert [ends[name] for name in ("n1", "n2", "n3", "n4")] == [10_000, 15_000, 17_000, 18_000]
    assert not recording.measured.is_measured


def test_a_type_that_the_schema_does_not_name_is_no_computation(tmp_path: Path) -> None:
    storage = 8  # mlcommons/chakra, pull request 216
    path = file_of(
        tmp_path,
        node_of(1, duration_micros=10),
        node_of(2, kind=storage, duration_micros=30),
        node_of(3, kind=storage, duration_micros=5),
        node_of(4, duration_micros=5, data_deps=[1]),
        node_of(5, kind=11, duration_micros=2),
        node_of(6, kind=10, duration_micros=3),
    )

    recording = chakra_recording([read_chakra(path)])

    graph = recording.graph
    kernels = {graph.names[one] for one in graph.name[graph.kind == NodeKind.KERNEL].tolist()}
    assert kernels == {"n1", "n4"}
    # storage in its turn, beside what computes: 35 us, not 50
    assert int(simulate(graph).end_ns.max()) == 35_000
    told = " ".join(finding.text for finding in recording.findings)
    assert "2 nodes are of type 8 (storage)" in told
    assert "1 nodes are of type 11 (type 11)" in told
    (contents,) = inspect(path)
    assert contents.events_by_category == {
        "comp": 2, "storage": 2, "checkpoint": 1, "type 11": 1,
    }  # fmt: skip
    assert contents.notes[0].startswith("2 nodes are of type 8 (storage), which Chakra 1.0.0")


def test_a_folder_of_chakra_files_can_be_inspected(tmp_path: Path) -> None:
    for rank in (0, 1):
        file_of(tmp_path, node_of(1, duration_micros=3), rank=rank)

    found = inspect(tmp_path)

    assert [(one.rank, one.num_events) for one in found] == [(0, 1), (1, 1)]
    assert found[0].lacks == ()


def test_ranks_wait_for_each_other_in_a_collective(tmp_path: Path) -> None:
    paths = [
        file_of(
            tmp_path,
            node_of(1, duration_micros=10 * (rank + 1)),
            node_of(
                2, kind=COLL, duration_micros=5, data_deps=[1],
                attributes={"comm_type": 2, "comm_size": 64, "pg_name": "7"},
            ),
            rank=rank,
        )
        for rank in (0, 1)
    ]  # fmt: skip

    graph = chakra_recording([read_chakra(path) for path in paths]).graph

    finishes = graph.kind == NodeKind.FINISH
    assert simulate(graph).end_ns[finishes].tolist() == [25_000, 25_000]
    (collective,) = graph.collectives
    # A rank's share stands in the file, the whole in the graph.
    assert (collective.name, collective.group, collective.num_bytes) == ("allgather", "7", 128)


def test_a_send_meets_its_receive(tmp_path: Path) -> None:
    told = {"comm_src": 0, "comm_dst": 1, "comm_tag": 4, "comm_size": 8}
    paths = [
        file_of(
            tmp_path,
            node_of(1, duration_micros=10 * (1 - rank)),
            node_of(
                2, kind=SEND + rank, duration_micros=5, data_deps=[1], attributes=told
            ),
            rank=rank,
        )
        for rank in (0, 1)
    ]  # fmt: skip

    graph = chakra_recording([read_chakra(path) for path in paths]).graph

    assert [one.ranks for one in graph.collectives] == [(0, 1)]
    assert simulate(graph).end_ns[graph.kind == NodeKind.FINISH].tolist() == [15_000, 15_000]


def test_what_a_file_lacks_is_said(tmp_path: Path) -> None:
    path = file_of(tmp_path, node_of(1, data_deps=[99]), node_of(2, duration_micros=1))

    findings = {one.topic: one.text for one in chakra_recording([read_chakra(path)]).findings}

    assert "1 of 1 dependencies name nodes that are not in the file" in findings["dependencies"]
    assert findings["durations"].startswith("1 of 2 nodes state no duration")
    assert "do not say when" in findings["times"]


def test_a_circle_of_data_dependencies_names_its_nodes(tmp_path: Path) -> None:
    path = file_of(tmp_path, node_of(5, data_deps=[6]), node_of(6, data_deps=[5]), node_of(7))

    with pytest.raises(CircleError, match=r"2 nodes wait for each other.*\[5, 6\]"):
        chakra_recording([read_chakra(path)])


def test_callers_that_end_last_hold_nothing_up(tmp_path: Path) -> None:
    path = file_of(tmp_path, node_of(1, data_deps=[2]), node_of(2, ctrl_deps=[1]))

    recording = chakra_recording([read_chakra(path)])

    assert any("control dependencies" in one.text for one in recording.findings)
    write_chakra(tmp_path / "back", recording.graph, origin=recording.chakra)
    assert (tmp_path / "back.0.et").read_bytes() == path.read_bytes()


def test_two_files_of_one_rank_and_two_nodes_of_one_id_are_refused(tmp_path: Path) -> None:
    first = read_chakra(file_of(tmp_path, node_of(1)))
    twice = read_chakra(file_of(tmp_path, node_of(1), node_of(1), rank=1))

    with pytest.raises(GraphError, match="two Chakra files are of rank 0"):
        chakra_recording([first, first])
    with pytest.raises(GraphError, match="two of its nodes have the id 1"):
        chakra_recording([twice])


def test_files_of_others_are_written_again_with_what_changed(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        node_of(1, duration_micros=10, attributes={"mine": "x"}),
        node_of(2, duration_micros=5, data_deps=[1], ctrl_deps=[1, 77]),
        node_of(3, duration_micros=2),
    )
    recording = chakra_recording([read_chakra(path)])
    graph = recording.graph
    work_ns = graph.measured_ns.copy()
    work_ns[[graph.names[name] for name in graph.name.tolist()].index("n3")] = 1_600
    edited = replace(graph, measured_ns=work_ns)

    write_chakra(tmp_path / "same", graph, origin=recording.chakra)
    write_chakra(tmp_path / "edited", edited, origin=recording.chakra)

    assert (tmp_path / "same.0.et").read_bytes() == path.read_bytes()
    nodes = nodes_of(tmp_path / "edited.0.et")
    assert nodes[3].duration_micros == 2
    assert attributes_of(nodes[3])["duration_ns"] == ("int64_val", 1_600)
    assert nodes[1] == nodes_of(path)[1]
    assert nodes[2] == nodes_of(path)[2]


def test_dependencies_that_others_add_to_our_files_hold(tmp_path: Path) -> None:
    written = write_chakra(tmp_path / "job", two_ranks())
    metadata, nodes = oracle.parsed(written.paths[0].read_bytes())
    kernel = next(node for node in nodes if node.name == "kernel")
    launches = [node for node in nodes if node.name == "launch"]
    kernel.data_deps.append(launches[1].id)
    written.paths[0].write_bytes(oracle.framed([metadata, *nodes]))

    graph = chakra_recording([read_chakra(path) for path in written.paths]).graph

    assert (graph.edge_kind == EdgeKind.STATED).sum() == 1
    assert graph.num_edges == two_ranks().num_edges + 1
