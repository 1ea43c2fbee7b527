"""A timeline that is written as Kineto traces is the same when it is read again."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from foretrace.exchange import write_kineto
from foretrace.graph import DEVICE_KINDS, EdgeKind, NodeKind, Timeline, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.graphs import Edge, GraphBuilder

# What a profiler has an event for; the rest of a graph lies between events.
SHOWN = (
    NodeKind.CALL, NodeKind.LAUNCH, NodeKind.SYNC, NodeKind.STEP_BEGIN, NodeKind.STEP_END,
    NodeKind.ARRIVE, NodeKind.FINISH, *DEVICE_KINDS,
)  # fmt: skip


def shown(timeline: Timeline) -> Counter[tuple[object, ...]]:
    """Everything that has an event, with its times since the first device operation."""
    graph = timeline.graph
    zero_ns = int(timeline.start_ns[graph.is_device].min())
    return Counter(
        (
            int(graph.kind[node]),
            graph.lanes[graph.lane[node]].label,
            graph.names[graph.name[node]],
            int(timeline.start_ns[node]) - zero_ns,
            int(timeline.end_ns[node]) - zero_ns,
        )
        for node in graph.nodes_of(*SHOWN).tolist()
    )


@pytest.mark.parametrize(
    "name",
    ["megatron-tp8", "a100-resnet-ddp2-rank0", "a100-dlrm-rank3-of-8", "v100-single"],
)
def test_public_recordings_have_the_same_timeline_again(
    data_dir: Path, tmp_path: Path, name: str
) -> None:
    recording = build_recording(load_traces(data_dir / "traces" / name))

    paths = write_kineto(tmp_path / "job.json.gz", recording.measured)

    back = build_recording(load_traces(paths))
    assert shown(back.measured) == shown(recording.measured)
    assert back.graph.step_names == recording.graph.step_names
    assert len(back.graph.collectives) == len(recording.graph.collectives)


def small_timeline() -> Timeline:
    """A launch of a kernel, and a call that waits for it."""
    build = GraphBuilder()
    start = build.add(NodeKind.RANK_START)
    launch = build.add(NodeKind.LAUNCH, name="cudaLaunchKernel", takes_ns=1_001, after=[start])
    kernel = build.add(
        NodeKind.KERNEL, lane="stream 7", takes_ns=5_250,
        after=[Edge(launch, EdgeKind.LAUNCH)], operator="aten::mm",
        shapes='{"dims":[[2,3],[3,4]]}',
    )  # fmt: skip
    build.add(
        NodeKind.SYNC, name="cudaDeviceSynchronize", after=[launch, Edge(kernel, EdgeKind.WAKE)]
    )
    return simulate(build.graph())


def test_events_have_what_profiler_tools_read(tmp_path: Path) -> None:
    (path,) = write_kineto(tmp_path / "job.json", small_timeline())

    content = json.loads(path.read_text())

    assert path.name == "job.rank0.json"
    assert content["distributedInfo"]["rank"] == 0
    by_name = {event["name"]: event for event in content["traceEvents"]}
    launch, kernel = by_name["cudaLaunchKernel"], by_name["kernel"]
    assert (launch["cat"], kernel["cat"]) == ("cuda_runtime", "kernel")
    assert launch["args"]["correlation"] == kernel["args"]["correlation"]
    assert (kernel["args"]["stream"], kernel["tid"]) == (7, 7)
    assert kernel["ts"] == 1.001
    assert kernel["dur"] == 5.25


def test_a_call_that_waits_spans_its_waiting(tmp_path: Path) -> None:
    (path,) = write_kineto(tmp_path / "job.json", small_timeline())

    events = json.loads(path.read_text())["traceEvents"]

    sync = next(event for event in events if event["name"] == "cudaDeviceSynchronize")
    assert (sync["ts"], sync["dur"]) == (1.001, 5.25)


def test_gzip_is_written_where_the_name_says_so(tmp_path: Path) -> None:
    (plain,) = write_kineto(tmp_path / "job.json", small_timeline())
    (packed,) = write_kineto(tmp_path / "job.json.gz", small_timeline())

    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
