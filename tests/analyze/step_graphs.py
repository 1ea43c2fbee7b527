"""Random small training runs: ranks that launch kernels, wait for them, and meet in collectives."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part, Phase
from tests.graphs import Block, Edge, GraphBuilder

KERNELS = ("ampere_sgemm_128x64_nn", "softmax_warp_forward", "vectorized_elementwise_kernel")
COLLECTIVES = ("allreduce", "allgather")
LAUNCH_NS, STREAM_NS, WAKE_NS, HAND_OVER_NS = 3, 1, 2, 2
CONSTANTS = (
    (EdgeKind.LAUNCH, LAUNCH_NS),
    (EdgeKind.STREAM, STREAM_NS),
    (EdgeKind.WAKE, WAKE_NS),
    (EdgeKind.INTER_STREAM, HAND_OVER_NS),
)


@dataclass
class _Rank:
    """Where a rank's thread and streams are."""

    host: int
    streams: dict[int, int] = field(default_factory=dict)


@st.composite
def step_graphs(draw: st.DrawFn, *, max_ranks: int = 3, max_steps: int = 3) -> ExecutionGraph:
    """A run of up to three ranks and steps, each step with a few launches, waits and meetings."""
    build = GraphBuilder()
    time = st.integers(0, 40)
    num_ranks = draw(st.integers(1, max_ranks))
    ranks = {
        rank: _Rank(build.add(NodeKind.RANK_START, rank=rank, takes_ns=draw(time)))
        for rank in range(num_ranks)
    }
    for number in range(draw(st.integers(1, max_steps))):
        step = f"ProfilerStep#{number}"
        for rank, at in ranks.items():
            _host(build, rank, at, NodeKind.STEP_BEGIN, step, 0)
        for _ in range(draw(st.integers(0, 3))):
            for rank, at in ranks.items():
                for _ in range(draw(st.integers(0, 3))):
                    _action(draw, build, rank, at, step)
            if num_ranks > 1 and draw(st.booleans()):
                _meet(draw, build, ranks, step)
        for rank, at in ranks.items():
            _host(build, rank, at, NodeKind.STEP_END, step, 0)
    return build.graph(*CONSTANTS)


def _host(
    build: GraphBuilder, rank: int, at: _Rank, kind: NodeKind, step: str, takes_ns: int
) -> None:
    at.host = build.add(kind, rank=rank, takes_ns=takes_ns, after=[Edge(at.host)], step=step)


def _action(draw: st.DrawFn, build: GraphBuilder, rank: int, at: _Rank, step: str) -> None:
    """Thinking, a launch, or a wait for a stream."""
    time = st.integers(0, 40)
    what = draw(st.sampled_from(("think", "launch", "launch", "wait")))
    if what == "think":
        _host(build, rank, at, NodeKind.HOST_SEGMENT, step, draw(time))
    elif what == "wait" and at.streams:
        stream = draw(st.sampled_from(sorted(at.streams)))
        after = [Edge(at.host), Edge(at.streams[stream], EdgeKind.WAKE, WAKE_NS)]
        at.host = build.add(NodeKind.SYNC, rank=rank, takes_ns=1, after=after, step=step)
    else:
        _host(build, rank, at, NodeKind.LAUNCH, step, draw(st.integers(0, 5)))
        stream = draw(st.sampled_from((7, 8)))
        after = [Edge(at.host, EdgeKind.LAUNCH, LAUNCH_NS), *_on_stream(at, stream)]
        if draw(st.booleans()) and len(at.streams) > 1:
            other = at.streams[15 - stream]
            after.append(Edge(other, EdgeKind.INTER_STREAM, HAND_OVER_NS))
        at.streams[stream] = build.add(
            NodeKind.KERNEL,
            rank=rank,
            lane=f"stream {stream}",
            name=draw(st.sampled_from(KERNELS)),
            takes_ns=draw(time),
            after=after,
            step=step,
            block=draw(_BLOCKS),
        )


_BLOCKS = st.builds(
    Block,
    part=st.sampled_from((Part.UNKNOWN, Part.LAYER, Part.OPTIMIZER)),
    phase=st.sampled_from((Phase.UNKNOWN, Phase.FORWARD, Phase.BACKWARD)),
    layer=st.sampled_from((-1, 0, 1)),
)


def _on_stream(at: _Rank, stream: int) -> list[Edge]:
    """The edge from the stream's last operation, if there is one."""
    last = at.streams.get(stream)
    return [] if last is None else [Edge(last, EdgeKind.STREAM, STREAM_NS)]


def _meet(draw: st.DrawFn, build: GraphBuilder, ranks: dict[int, _Rank], step: str) -> None:
    """A collective of all ranks."""
    launches = {}
    for rank, at in ranks.items():
        _host(build, rank, at, NodeKind.LAUNCH, step, 2)
        launches[rank] = [Edge(at.host, EdgeKind.LAUNCH, LAUNCH_NS), *_on_stream(at, 7)]
    finishes = build.collective(
        launches,
        transfer_ns=draw(st.integers(0, 40)),
        lane="stream 7",
        name=draw(st.sampled_from(COLLECTIVES)),
        step=step,
    )
    for rank, at in ranks.items():
        at.streams[7] = finishes[rank]
