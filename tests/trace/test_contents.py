"""What `inspect` says of a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from foretrace.trace import contents_of, inspect
from tests.trace.kineto_json import file_text, trace_from
from tests.trace.test_steps import EVENTS, x


def lacks(contents: object) -> str:
    return " | ".join(contents.lacks)  # type: ignore[attr-defined]


def test_everything_is_counted() -> None:
    trace = trace_from(
        [file_text(EVENTS, members={"distributedInfo": {"rank": 0, "world_size": 2}})]
    )

    contents = contents_of(trace)

    assert contents.num_events == len(EVENTS) == contents.num_kept
    assert contents.events_by_category == {
        "operator": 3,
        "annotation": 2,
        "runtime": 3,
        "kernel": 3,
        "sync": 1,
        "device_annotation": 2,
    }
    assert contents.communication == {"allreduce": 1}
    assert [step.duration_ns for step in contents.steps] == [100_000, 100_000]
    assert (contents.num_threads, contents.num_streams) == (1, 1)
    assert contents.has_sync_events
    assert contents.has_memory
    assert contents.has_collective_metadata
    assert not contents.has_stacks


def test_launches_of_cuda_graphs_are_counted_with_what_they_carry() -> None:
    events = [
        x("cuda_runtime", "cudaGraphLaunch", 0, 1, correlation=1),
        x("kernel", "gemm", 2, 1, correlation=1),
        x("kernel", "gelu", 4, 1, correlation=1),
        x("cuda_runtime", "cudaGraphLaunch", 5, 1, correlation=2),
        x("cuda_runtime", "cudaLaunchKernel", 7, 1, correlation=3),
        x("kernel", "gelu", 8, 1, correlation=3),
    ]

    contents = contents_of(trace_from([file_text(events)]))

    assert (contents.num_graph_launches, contents.num_graph_operations) == (2, 2)
    (note,) = contents.notes
    assert note.startswith("2 launches of CUDA graphs carry 2 device operations")
    assert "1 carry none that was recorded" in note


def test_what_is_missing_is_said_once_each_with_advice() -> None:
    events = [
        x("cpu_op", "aten::mm", 0, 5),
        x("cuda_runtime", "cudaStreamWaitEvent", 2, 1, correlation=1),
        x("cuda_runtime", "cudaLaunchKernel", 3, 1, correlation=2),
        x("kernel", "ncclDevKernel_AllReduce_Sum(x)", 4, 9, correlation=2),
    ]
    text = file_text(events, members={"distributedInfo": {"rank": 3, "world_size": 8}})

    contents = contents_of(trace_from([text]))

    for words in (
        "step marks",
        "sync events",
        "collective metadata: 1 communications",
        "a backward pass",
        "ranks: 1 of 8",
        "shapes",
        "nanoseconds",
    ):
        assert lacks(contents).count(words) == 1
    assert any("enable_cuda_sync_events" in advice for advice in contents.advice)
    assert any("record_shapes=True" in advice for advice in contents.advice)
    assert len(set(contents.advice)) == len(contents.advice)


def test_a_truncated_file_lacks_its_end() -> None:
    trace = trace_from([file_text(EVENTS)[:-40]])

    assert "the end: the file stops in the middle" in contents_of(trace).lacks


def test_launches_without_device_work_and_the_reverse_are_told_apart() -> None:
    host = [x("cuda_runtime", "cudaLaunchKernel", 3, 1, correlation=2)]
    device = [x("kernel", "k", 3, 1, correlation=2)]

    assert "nothing that they launched" in lacks(contents_of(trace_from([file_text(host)])))
    assert "launches: what the host did" in lacks(contents_of(trace_from([file_text(device)])))


def test_launches_that_are_lost_are_counted() -> None:
    events = [x("cpu_op", "aten::mm", 0, 5)]
    events += [x("cuda_runtime", "cudaLaunchKernel", 3, 1, correlation=1)]
    events += [x("kernel", "k", 10 * at, 1, correlation=at) for at in range(1, 5)]

    contents = contents_of(trace_from([file_text(events)]))

    assert "launches of 3 of 4 device operations" in lacks(contents)


@pytest.mark.parametrize(
    ("name", "has_backward"),
    [
        ("CudnnConvolutionBackward", True),
        ("AddmmBackward0", True),
        ("torch::autograd::AccumulateGrad", True),
        ("aten::convolution_backward_overrideable", False),
        ("Falcon::Backward", False),
    ],
)
def test_nodes_of_autograd_tell_a_backward_pass_where_its_engine_is_not_recorded(
    name: str, has_backward: bool
) -> None:
    events = [x("cpu_op", "aten::mm", 0, 5), x("cpu_op", name, 10, 5)]

    assert contents_of(trace_from([file_text(events)])).has_backward == has_backward


def test_an_empty_trace_says_that_nothing_can_be_replayed() -> None:
    contents = contents_of(trace_from([b'{"traceEvents": []}']))

    assert contents.lacks[0] == "no events that can be replayed"


def test_files_of_different_runs_are_inspected_together(data_dir: Path) -> None:
    folder = data_dir / "traces/v100-resnet50-dataloader"

    found = inspect(folder)

    assert [contents.rank for contents in found] == [0, 0]
    assert [len(contents.steps) for contents in found] == [6, 6]
    assert msgspec.json.decode(msgspec.json.encode(found))[0]["num_events"] == 75718


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        (
            "megatron-tp8/kineto_rank3.json.gz",
            "ranks: 1 of 8 | a backward pass | sync events",
            "shapes",
        ),
        ("cuda-sync-events/alexnet", "step marks", "sync events"),
        ("a100-resnet-ddp2-rank0", "ranks: 1 of 2 | shapes", "collective metadata | nanoseconds"),
        (
            "h100-inference/gaunernst_bert-small-uncased__1016001.json.gz",
            "a backward pass",
            "shapes",
        ),
    ],
)
def test_public_traces_lack_what_is_known_of_them(
    data_dir: Path, name: str, has: str, has_not: str
) -> None:
    (contents,) = inspect(data_dir / "traces" / name)

    for words in has.split(" | "):
        assert words in lacks(contents)
    for words in has_not.split(" | "):
        assert words not in lacks(contents)
