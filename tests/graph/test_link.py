"""Execution traces joined with Kineto traces: by id, by another id, by order of names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from foretrace.graph import Link, LinkMethod, link
from foretrace.graph.alignment import aligned_names
from foretrace.trace import load_traces, read_execution_trace

# An iteration of a program: names in order.
NAMES = [f"aten::{name}" for name in ("mm", "add", "relu", "t", "view", "mul", "sum", "copy_")]


def joined(
    folder: Path, names: Sequence[str], kineto: Sequence[Mapping[str, object]], tensors: str = "[]"
) -> Link:
    """The join of a trace of these operators with these events."""
    nodes = [{"id": 1, "name": "process", "parent": 1, "rf_id": 0, "tid": 0}]
    nodes += [
        {"id": 10 + at, "name": name, "parent": 1, "rf_id": 1 + at, "tid": 1,
         "op_schema": f"{name}()", **json.loads(tensors or "[]")[at]}
        if tensors != "[]"
        else {"id": 10 + at, "name": name, "parent": 1, "rf_id": 1 + at, "tid": 1,
              "op_schema": f"{name}()"}
        for at, name in enumerate(names)
    ]  # fmt: skip
    (folder / "et.json").write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
    events = [
        {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 10 + at, "dur": 1, **event}
        for at, event in enumerate(kineto)
    ]
    (folder / "kineto.json").write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": events}, indent=1)
    )
    (trace,) = load_traces(folder / "kineto.json")
    return link(trace, read_execution_trace(folder / "et.json"))


def test_record_function_ids_join_where_both_have_them(tmp_path: Path) -> None:
    events = [
        {"name": name, "args": {"Record function id": 1 + at}} for at, name in enumerate(NAMES)
    ]

    found = joined(tmp_path, NAMES, events)

    assert (found.method, found.coverage) == (LinkMethod.RECORD_FUNCTION, 1.0)
    assert found.event.tolist() == [-1, *range(len(NAMES))]
    assert found.schemas()[2] == "aten::relu()"


def test_external_ids_join_by_their_offset(tmp_path: Path) -> None:
    events = [{"name": name, "args": {"External id": 8 + at}} for at, name in enumerate(NAMES)]

    found = joined(tmp_path, NAMES, events)

    assert (found.method, found.offset, found.num_linked) == (LinkMethod.EXTERNAL, 7, len(NAMES))


def test_ids_that_name_something_else_do_not_join(tmp_path: Path) -> None:
    events = [
        {"name": name, "args": {"External id": 500 - 3 * at}} for at, name in enumerate(NAMES * 2)
    ]

    found = joined(tmp_path, NAMES, events)

    assert (found.method, found.coverage) == (LinkMethod.NAMES, 1.0)
    assert found.is_ambiguous


def test_what_the_profiler_never_saw_is_named(tmp_path: Path) -> None:
    events = [{"name": name, "args": {"Record function id": 1 + at}}
              for at, name in enumerate(NAMES[:-1])]  # fmt: skip

    found = joined(tmp_path, NAMES, events)

    assert found.num_operators - found.num_linked == 1
    assert found.unlinked == ("aten::copy_",)


def test_a_tensor_joins_who_gave_it_with_who_takes_it(tmp_path: Path) -> None:
    tensor, other = [5, 6, 0, 1, 4, "cpu"], [7, 8, 0, 1, 4, "cpu"]
    told = [
        {"outputs": [tensor], "output_types": ["Tensor(float)"]},
        {"outputs": [other], "output_types": ["Tensor(float)"]},
        {"inputs": [[tensor, other]], "input_types": ["GenericList[Tensor(float),Tensor(float)]"]},
    ]
    events = [{"name": name, "args": {"Record function id": 1 + at}}
              for at, name in enumerate(NAMES[:3])]  # fmt: skip

    found = joined(tmp_path, NAMES[:3], events, json.dumps(told))

    giver, taker = found.data_dependencies()
    assert list(zip(giver.tolist(), taker.tolist(), strict=True)) == [(0, 2), (1, 2)]


def test_one_iteration_is_found_whole_among_many() -> None:
    iteration = np.arange(40)
    others = np.concatenate([np.full(7, 99), *[iteration] * 5])

    found, is_tied = aligned_names(iteration, others)

    assert is_tied
    assert (np.diff(found) == 1).all()


def test_a_gap_in_either_does_not_lose_what_follows() -> None:
    names = np.arange(60)
    others = np.concatenate([np.arange(25), np.full(9, 99), np.arange(30, 60)])

    found, is_tied = aligned_names(names, others)

    assert not is_tied
    assert found[:25].tolist() == list(range(25))
    assert found[25:30].tolist() == [-1] * 5
    assert found[30:].tolist() == list(range(34, 64))


def test_different_runs_are_paired_as_far_as_order_allows() -> None:
    names, others = np.array([1, 2, 3, 4, 5, 6]), np.array([2, 9, 4, 9, 1, 6])

    found, _ = aligned_names(names, others)

    assert found.tolist() == [-1, 0, -1, 2, -1, 5]


@pytest.mark.parametrize("rank", range(8))
def test_all_operators_of_a_real_job_are_linked(data_dir: Path, rank: int) -> None:
    folder = data_dir / "traces/megatron-tp8"
    (trace,) = load_traces(folder / f"kineto_rank{rank}.json.gz")

    found = link(trace, read_execution_trace(folder / f"et_rank{rank}.json.gz"))

    assert (found.method, found.offset) == (LinkMethod.EXTERNAL, 2)
    assert found.num_linked == found.num_operators == 5422
    assert len(found.data_dependencies()[0]) > 2_000
    assert len(found.execution_trace.communication.node) == 170


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("linear", 1.0),
        # These two were not recorded in one run: names in the same order go no further than this.
        ("resnet", 0.645),
    ],
)
def test_pairs_without_ids_and_step_marks_link_by_their_names(
    data_dir: Path, name: str, least: float
) -> None:
    folder = data_dir / "traces/execution-traces"
    (trace,) = load_traces(folder / f"{name}_kineto.json.gz")

    found = link(trace, read_execution_trace(folder / f"{name}_et.json.gz"))

    assert found.method == LinkMethod.NAMES
    assert found.coverage >= least
