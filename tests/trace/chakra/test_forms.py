"""Chakra in JSON: three forms, told apart by their text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.base import TraceError
from foretrace.trace import (
    GRAPHS,
    PROFILES,
    AnyFormat,
    ChakraTrace,
    NodeType,
    discover,
    format_of,
    read_graph,
)
from tests.oracles import chakra as oracle

FEEDER = {
    "workload_graph": [
        {"Id": 4, "Name": "n", "NodeType": 4, "data_deps": [], "runtime": 3, "is_cpu_op": True},
        {"Id": 5, "Name": "c", "NodeType": 7, "data_deps": [4], "ctrlDeps": [4], "runtime": 2,
         "is_cpu_op": False, "comm_type": 0, "comm_size": 64},
    ]
}  # fmt: skip
JSONIZED = """{
  "version": "0.0.4"
}
{
  "id": "7", "name": "k", "type": "COMP_NODE", "dataDeps": ["3"], "durationMicros": "12",
  "inputs": {"values": "[]", "shapes": "[[2]]", "types": "[]"},
  "attr": [{"name": "is_cpu_op", "boolVal": false}, {"name": "stream", "int64Val": "20"}]
}
"""
LINKED = {
    "schema": "1.0.1",
    "pid": 9,
    "nodes": [
        {"id": 1, "name": "process", "parent": 1, "rf_id": 0, "tid": 0, "inputs": []},
        {"id": 2, "name": "aten::outer", "parent": 1, "rf_id": 1, "tid": 1, "ts": 100, "dur": 10},
        {"id": 3, "name": "aten::inner", "parent": 2, "rf_id": 2, "tid": 1, "ts": 102, "dur": 4},
        {"id": 4, "name": "ncclKernel_AllReduce_RING_LL_Sum_float()", "parent": 3, "cat": "kernel",
         "ts": 110, "dur": 6, "args": {"stream": 24},
         "inputs": [[7, 8, 0, 100, 4, "cuda:0"]], "input_shapes": [[100]],
         "input_types": ["Tensor(float)"]},
    ],
}  # fmt: skip


def written(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    return path


def row_of(trace: ChakraTrace, number: int) -> int:
    ids: list[int] = trace.nodes.node_id.tolist()
    return ids.index(number)


def test_the_feeders_form_gives_the_types_of_protobuf(tmp_path: Path) -> None:
    trace = read_graph(written(tmp_path, "chakra.2.json", FEEDER))

    nodes = trace.nodes
    assert trace.rank == 2
    assert nodes.kind.tolist() == [NodeType.COMP, NodeType.COMM_COLL]
    assert nodes.duration_micros.tolist() == [3, 2]
    assert (nodes.data.tolist(), nodes.control.tolist()) == ([4], [4])
    assert nodes.numbers("comm_size").tolist() == [0, 64]
    assert nodes.numbers("is_cpu_op").tolist() == [1, 0]


def test_the_jsonizers_objects_stand_one_after_the_other(tmp_path: Path) -> None:
    trace = read_graph(written(tmp_path, "a.json", JSONIZED))

    nodes = trace.nodes
    assert trace.version == "0.0.4"
    assert (nodes.node_id.tolist(), nodes.data.tolist()) == ([7], [3])
    assert nodes.duration_micros.tolist() == [12]
    assert nodes.numbers("stream").tolist() == [20]
    assert nodes.texts[int(nodes.values[0, 1])] == "[[2]]"


def test_a_linked_trace_counts_time_once_and_keeps_nanoseconds(tmp_path: Path) -> None:
    trace = read_graph(written(tmp_path, "linked.json", LINKED))

    nodes = trace.nodes
    outer, inner, kernel = (row_of(trace, number) for number in (2, 3, 4))
    assert nodes.numbers("duration_ns")[[outer, inner, kernel]].tolist() == [6_000, 4_000, 6_000]
    assert nodes.numbers("start_ns")[kernel] == 110_000
    assert nodes.kind[kernel] == NodeType.COMM_COLL
    assert nodes.numbers("comm_size")[kernel] == 400
    assert nodes.data[nodes.first_data[kernel] :].tolist() == [3]


def test_forms_are_told_by_their_text(tmp_path: Path) -> None:
    # As a number, the bracket that JSON begins with is 123: a length that protobuf may begin with.
    metadata = oracle.GlobalMetadata(version="1" * 121)
    protobuf = tmp_path / "p.et"
    protobuf.write_bytes(oracle.framed([metadata, oracle.Node(id=1)]))

    found = [
        format_of(path)
        for path in (
            protobuf,
            written(tmp_path, "f.json", FEEDER),
            written(tmp_path, "j.json", JSONIZED),
            written(tmp_path, "l.json", LINKED),
            written(tmp_path, "k.json", {"schemaVersion": 1, "traceEvents": []}),
        )
    ]

    assert protobuf.read_bytes()[:1] == b"{"
    protobuf_format, feeder, execution, jsonized = GRAPHS
    assert found == [protobuf_format, feeder, jsonized, execution, PROFILES[0]]


def test_what_is_no_chakra_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="it is of no known format, expected one of: Chakra file"):
        read_graph(written(tmp_path, "a.json", {"other": 1}))
    with pytest.raises(TraceError, match=r"cannot read .* as Chakra feeder's JSON"):
        read_graph(written(tmp_path, "b.json", {"workload_graph": [{"Name": "no id"}]}))


def test_chakra_beside_kineto_is_left_alone(tmp_path: Path) -> None:
    chakra = tmp_path / "job.0.et"
    chakra.write_bytes(oracle.framed([oracle.GlobalMetadata(version="1"), oracle.Node(id=1)]))
    written(tmp_path, "job.groups.json", {"1": [0, 1]})
    formats: tuple[AnyFormat, ...] = (*PROFILES, *GRAPHS)
    alone = discover(tmp_path, formats)

    kineto = written(tmp_path, "kineto.json", {"schemaVersion": 1, "traceEvents": []})

    assert alone.paths == (chakra,)
    assert discover(tmp_path, formats).paths == (kineto,)
    assert discover([chakra], formats).paths == (chakra,)
    with pytest.raises(TraceError, match="is a Kineto trace, the other a Chakra file"):
        discover([chakra, kineto], formats)


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "num_nodes", "num_communications"),
    [
        ("chakra.0.et.gz", 3664, 21),
        ("feeder_tests_trace.tar.gz", 3664, 21),
        ("1.0.2-chakra.0.0.4.tgz", 263, 0),
        ("dlrm_linked_rank0.json.gz", 1936, 8),
        ("dlrm_linked_rank1.json.gz", 2001, 8),
    ],
)
def test_public_files_of_every_form_are_read(
    data_dir: Path, name: str, num_nodes: int, num_communications: int
) -> None:
    trace = read_graph(data_dir / "traces/chakra" / name)

    assert len(trace.nodes) == num_nodes
    assert (trace.nodes.kind == NodeType.COMM_COLL).sum() == num_communications
