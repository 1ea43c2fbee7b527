"""Sensitivity on a public trace of eight ranks, and held against jobs whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from foretrace.analyze import (
    FASTER,
    LeverKind,
    critical_path,
    effect,
    sensitivity,
    slack_ns,
    what_helps,
)
from foretrace.graph import Timeline, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.acceptance.recovery import Recovered, recording_of_job
from tests.truth import Change, Job, KernelFamily, SlowLink, SlowRank, acceptance_config, make_job

pytestmark = pytest.mark.slow

MAX_ERROR = 0.002  # of a step, for every hidden change


@pytest.fixture(scope="module")
def megatron(data_dir: Path) -> Timeline:
    paths = sorted((data_dir / "traces" / "megatron-tp8").glob("kineto_rank*.json.gz"))
    return simulate(build_recording(load_traces(paths)).graph)


def assert_derivatives_hold(timeline: Timeline) -> None:
    """Every lever's derivative predicts the step down to its switch, by simulating again."""
    found = sensitivity(timeline, top=5)
    moving = [row for row in found.rows if row.derivative_ns]
    assert len(moving) > 5
    for row in moving:
        assert row.derivative_ns is not None
        assert row.linear_to is not None
        for factor in (row.linear_to, (1 + row.linear_to) / 2):
            again = effect(timeline, f"{row.selection}={factor!r}")
            expected = row.derivative_ns * (factor - 1)
            assert again.effect_ns == pytest.approx(expected, rel=1e-6, abs=1e-2), row.label
        faster = effect(timeline, f"{row.selection}={FASTER}")
        assert row.faster_ns == pytest.approx(faster.effect_ns, rel=1e-9, abs=1e-2)


def test_derivatives_hold_down_to_the_switch_on_a_public_trace(megatron: Timeline) -> None:
    assert_derivatives_hold(megatron)


def test_a_public_traces_path_is_its_step(megatron: Timeline) -> None:
    path = critical_path(megatron)

    assert path.duration_ns.sum() == path.step_ns
    assert (slack_ns(megatron)[path.node] == 0).all()
    # its hosts launch slower than its devices run: nothing on a device is worth making faster
    assert path.by_class()[0].label == "host"
    assert what_helps(sensitivity(megatron)).rows[0].row.kind == LeverKind.HOST


@cache
def job() -> Job:
    return make_job(replace(acceptance_config(8), num_steps=2))


@pytest.fixture(scope="module")
def recovered() -> Recovered:
    return Recovered(job(), recording_of_job(job()))


def test_derivatives_hold_down_to_the_switch_on_a_generated_job(recovered: Recovered) -> None:
    assert_derivatives_hold(recovered.replayed)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (KernelFamily("gemm", 0.7), "gemm=0.7"),
        (KernelFamily("gemm", 1.3), "gemm=1.3"),
        (KernelFamily("attention", 0.5), "attention=0.5"),
        (SlowRank(7, 1.1), "ranks:7 kernels:{kernels}=1.1"),
        (SlowLink("dp", 2.0), "groups:{dp}=2"),
        (SlowLink("tp", 0.5), "groups:{tp}=0.5"),
    ],
)
def test_a_hidden_change_is_predicted(recovered: Recovered, changed: Change, text: str) -> None:
    truth = job().after(changed)
    names = recovered.graph.step_names

    text = text.format(**names_of(recovered))
    predicted_ns = np.array(
        [
            [effect(recovered.replayed, text, step=step, rank=rank).changed_ns for step in names]
            for rank in range(job().num_ranks)
        ]
    )

    assert np.abs(truth.step_ns / job().step_ns - 1).max() > 5 * MAX_ERROR
    assert np.abs(predicted_ns / truth.step_ns - 1).max() <= MAX_ERROR


def names_of(recovered: Recovered) -> dict[str, str]:
    """The process groups of each link, and the kernels of the last rank, as a change names them."""
    graph = recovered.graph
    groups = {
        link: {
            graph.collectives[of].group
            for of in graph.collective[recovered.has_link(link)].tolist()
        }
        for link in ("dp", "tp")
    }
    kernels = {graph.names[name] for name in graph.name[recovered.is_kernel_of(7)].tolist()}
    return {
        name: '"' + "|".join(sorted(found)) + '"'
        for name, found in {**groups, "kernels": kernels}.items()
    }
