"""Execution traces of every schema version, and which Kineto file they lie beside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.base import TraceError
from foretrace.trace import ExecutionTrace, execution_traces_beside, read_execution_trace

TENSOR = [5, 6, 0, 12, 4, "cuda:0"]
FLAT = {
    "schema": "1.0.1",
    "pid": 9,
    "time": "2024-02-01 21:01:28",
    "nodes": [
        {"id": 3, "name": "aten::mm", "parent": 2, "rf_id": 1, "tid": 1, "seq_id": 4, "scope": 0,
         "op_schema": "aten::mm(Tensor self) -> Tensor", "inputs": [TENSOR, 2.5],
         "input_types": ["Tensor(float)", "Double"], "outputs": [[TENSOR]],
         "output_types": ["GenericList[Tensor(c10::Half)]"]},
        {"id": 2, "name": "thread", "parent": 1, "rf_id": 0, "tid": 1},
        {"id": 1, "name": "process", "parent": 1, "rf_id": 0, "tid": 0},
        {"id": 7, "name": "record_param_comms", "parent": 3, "rf_id": 2, "tid": 1,
         "inputs": [[TENSOR], 337, 93825, 0, "allreduce", [], [], 8],
         "input_types": ["GenericList[Tensor(float)]", "Int", "Int", "Int", "String",
                         "GenericList[]", "GenericList[]", "Int"]},
    ],
}  # fmt: skip
NESTED = {
    "schema": "1.1.1-chakra.0.0.4",
    "pid": 9,
    "nodes": [
        {"id": 1, "name": "process", "ctrl_deps": 1, "inputs": {}, "outputs": {},
         "attrs": [{"name": "rf_id", "type": "uint64", "value": 0}]},
        {"id": 4, "name": "record_param_comms", "ctrl_deps": 1,
         "inputs": {"values": [[TENSOR], 31, ["0", "default_pg"], 0, "broadcast", [], [], 0, 1, 2],
                    "types": ["GenericList[Tensor(float)]", "Int", "Tuple[String,String]", "Int",
                              "String", "GenericList[]", "GenericList[]", "Int", "Int", "Int"]},
         "outputs": {},
         "attrs": [{"name": "rf_id", "type": "uint64", "value": 7},
                   {"name": "tid", "type": "uint64", "value": 2},
                   {"name": "in_msg_nelems", "type": "uint64", "value": 99},
                   {"name": "kernel_backend", "type": "string", "value": "triton"}]},
    ],
}  # fmt: skip


def read(folder: Path, content: object) -> ExecutionTrace:
    path = folder / "et.json"
    path.write_text(json.dumps(content))
    return read_execution_trace(path)


def test_nodes_stand_by_id_under_their_callers(tmp_path: Path) -> None:
    trace = read(tmp_path, FLAT)

    assert trace.node_id.tolist() == [1, 2, 3, 7]
    assert trace.parent.tolist() == [-1, 0, 1, 2]
    assert trace.record_function.tolist() == [0, 0, 1, 2]
    assert trace.strings[trace.operator_schema[2]] == "aten::mm(Tensor self) -> Tensor"
    assert (trace.schema, trace.process, trace.sequence[2]) == ("1.0.1", 9, 4)


def test_tensors_keep_identity_storage_and_dtype(tmp_path: Path) -> None:
    trace = read(tmp_path, FLAT)

    tensors = trace.tensors
    assert tensors.node.tolist() == [2, 2, 3]
    assert tensors.is_output.tolist() == [False, True, False]
    assert tensors.storage.tolist() == [6, 6, 6]
    assert [trace.strings[kind] for kind in tensors.dtype.tolist()] == [
        "float", "c10::Half", "float",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "name", "group", "numbers"),
    [
        # sequence, elements, group size, first rank, stride
        (FLAT, "allreduce", "93825", (337, 12, 8, -1, -1)),
        (NESTED, "broadcast", "0", (31, 99, 2, 0, 1)),
    ],
)
def test_communication_is_known_in_every_version(
    tmp_path: Path, content: object, name: str, group: str, numbers: tuple[int, ...]
) -> None:
    trace = read(tmp_path, content)

    of = trace.communication
    assert trace.strings[of.collective[0]] == name
    assert trace.strings[of.group[0]] == group
    found = (of.sequence, of.in_elements, of.group_size, of.first_rank, of.rank_stride)
    assert tuple(int(column[0]) for column in found) == numbers


def test_attributes_of_later_versions_are_read(tmp_path: Path) -> None:
    trace = read(tmp_path, NESTED)

    assert trace.thread.tolist() == [0, 2]
    assert trace.strings[trace.kernel_backend[1]] == "triton"
    assert trace.strings[trace.communication.group_description[0]] == "default_pg"


def test_what_is_no_execution_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected an execution trace"):
        read(tmp_path, {"schema": "1.0.1", "nodes": 3})


def test_files_belong_together_by_rank_or_by_name(tmp_path: Path) -> None:
    for name in ("et_rank0.json", "et_rank1.json", "linear_et.json"):
        (tmp_path / name).write_text(json.dumps(FLAT))
    kineto = [tmp_path / name for name in ("kineto_rank0.json", "linear_kineto.json", "x_9.json")]
    for path in kineto:
        path.write_text('{"traceEvents": []}')

    found = execution_traces_beside(kineto)

    assert {path.name: other.name for path, other in found.items()} == {
        "kineto_rank0.json": "et_rank0.json",
        "linear_kineto.json": "linear_et.json",
    }


@pytest.mark.parametrize(
    ("name", "schema", "num_nodes", "num_communications"),
    [
        ("linear_et.json.gz", "1.0.1", 931, 0),
        ("ddp2_et_1.0.2_rank1.json.gz", "1.0.2-chakra.0.0.4", 4797, 9),
        ("resnet_1gpu_et_1.0.3.json.gz", "1.0.3-chakra.0.0.4", 14391, 27),
        ("resnet_2gpu_et_1.1.0.json.gz", "1.1.0-chakra.0.0.4", 14392, 27),
        ("pt2_et.json.tar.gz", "1.1.1-chakra.0.0.4", 20, 0),
    ],
)
def test_public_traces_of_every_version_are_read(
    data_dir: Path, name: str, schema: str, num_nodes: int, num_communications: int
) -> None:
    trace = read_execution_trace(data_dir / "traces/execution-traces" / name)

    assert (trace.schema, trace.num_nodes) == (schema, num_nodes)
    assert len(trace.communication.node) == num_communications
