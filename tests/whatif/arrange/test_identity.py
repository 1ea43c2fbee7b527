"""The recorded program at its place is the recorded graph, edge by edge and to the nanosecond."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import foretrace as ft
from foretrace.graph import verify
from foretrace.simulate import simulate
from foretrace.whatif import Program, arranged, program_of, same_job
from tests.strategies import job_configs
from tests.truth import JobConfig, acceptance_config
from tests.whatif.arrange.jobs import edges, program, recorded_nodes

_EXAMPLES = Path(__file__).parents[3] / "examples"
_PUBLIC = (
    "megatron-tp8",
    "a100-resnet-ddp2-rank0",
    "a100-dlrm-rank3-of-8",
    "v100-ddp2-rank1",
    "v100-single",
    "cuda-sync-events/alexnet",
    "cuda-sync-events/cuda_event_sync",
    "cuda-sync-events/cuda_event_sync_multi_stream",
    "cuda-sync-events/simple_add",
)


def _check_same(recorded: Program) -> None:
    graph = recorded.graph

    found = arranged(recorded, same_job(recorded))

    verify(found.graph)
    source = recorded_nodes(recorded, found)
    assert sorted(source.tolist()) == list(range(graph.num_nodes))
    assert edges(found.graph, source) == edges(graph, np.arange(graph.num_nodes))
    replayed, again = simulate(graph), simulate(found.graph)
    assert np.array_equal(again.end_ns, replayed.end_ns[source])
    for name in ("kind", "rank", "step", "layer", "microbatch", "part", "phase", "measured_ns"):
        column = getattr(found.graph, name)
        assert np.array_equal(column, getattr(graph, name)[source]), name
    assert found.graph.collectives == tuple(
        graph.collectives[each] for each in found.source_collective.tolist()
    )


def test_generated_job_of_8_ranks_is_itself() -> None:
    _check_same(program(acceptance_config(8)))


@pytest.mark.slow
def test_generated_job_of_64_ranks_is_itself() -> None:
    _check_same(program(replace(acceptance_config(64), num_steps=1)))


@settings(max_examples=15)
@given(job_configs())
def test_any_generated_job_with_named_groups_is_itself(config: JobConfig) -> None:
    _check_same(program(replace(config, style=replace(config.style, collective_arguments=True))))


@pytest.mark.parametrize("name", _PUBLIC)
def test_public_recordings_are_themselves(data_dir: Path, name: str) -> None:
    _check_same(program_of(ft.load(data_dir / "traces" / name).recording))


@pytest.mark.parametrize("name", ["cpu-llama-tp2-dp2/traces", "planted/slow-loader"])
def test_recordings_on_a_cpu_are_themselves(name: str) -> None:
    _check_same(program_of(ft.load(_EXAMPLES / name, cache=False).recording))
