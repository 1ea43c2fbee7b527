from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.analyze import FRAME_KINDS, HostFrames, host_frames
from foretrace.api import Job
from foretrace.graph import NodeKind
from foretrace.trace import load_traces

EXAMPLE = Path(__file__).parents[2] / "examples/cpu-llama-tp2-dp2/traces"


@pytest.fixture(scope="module")
def job() -> Job:
    return ft.load(EXAMPLE)


def frames_of(job: Job, max_frames: int) -> HostFrames:
    traces = dict(zip(job.ranks, load_traces(EXAMPLE), strict=True))
    return host_frames(job.recording, traces, max_frames=max_frames)


def test_frames_stand_where_the_graphs_operators_do(job: Job) -> None:
    graph, found = job.graph, frames_of(job, 10**9)
    is_operator = found.kind == FRAME_KINDS.index("framework operator")

    for rank in job.ranks:
        nodes = np.flatnonzero((graph.kind == NodeKind.OPERATOR) & (graph.rank == rank))
        wanted = {
            (graph.names[name], begin)
            for name, begin in zip(
                graph.name[nodes].tolist(), job.measured.start_ns[nodes].tolist(), strict=True
            )
        }
        own = np.flatnonzero(is_operator & (found.rank == rank))
        names = [found.names[name] for name in found.name[own].tolist()]
        have = set(zip(names, found.start_ns[own].tolist(), strict=True))
        assert len(wanted & have) > 0.9 * len(wanted)  # collectives of gloo begin where they wait


def test_of_too_many_frames_the_longest_are_kept(job: Job) -> None:
    every, some = frames_of(job, 10**9), frames_of(job, 100)

    assert len(some) == 100
    assert some.num_left_out == len(every) - 100
    lengths = np.sort(every.end_ns - every.start_ns)
    assert np.sort(some.end_ns - some.start_ns).tolist() == lengths[-100:].tolist()
    assert some.longest_left_out_ns == lengths[-101]
