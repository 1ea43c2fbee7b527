"""A recording of four processes on two cores: its work alone, simulated, gives its times back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.simulate import Cores, alone_ns, simulate, simulate_shared

EXAMPLE = Path(__file__).parents[3] / "examples" / "cpu-llama-tp2-dp2" / "traces"


@pytest.mark.parametrize("cores", [Cores.of(2), Cores.of(2, transfers=0.5), Cores.of(4)])
def test_four_processes_on_two_cores_take_what_was_recorded(cores: Cores) -> None:
    job = ft.load(EXAMPLE)
    measured = job.recording.measured

    timeline = simulate_shared(job.graph, alone_ns(measured, cores), cores)

    # durations alone are whole nanoseconds: a thread's 5,000 nodes add up the rounding
    assert abs(timeline.end_ns.max() - measured.end_ns.max()) < 1_000
    assert np.abs(timeline.end_ns - measured.end_ns).mean() < 1_000
    took_ns, recorded_ns = (one.end_ns - one.start_ns for one in (timeline, measured))
    assert np.abs(took_ns - recorded_ns).sum() < 1e-5 * recorded_ns.sum()


def test_the_same_work_on_four_cores_is_done_sooner() -> None:
    job = ft.load(EXAMPLE)
    alone = alone_ns(job.recording.measured, Cores.of(2))

    on_two = simulate_shared(job.graph, alone, Cores.of(2)).end_ns.max()
    on_four = simulate_shared(job.graph, alone, Cores.of(4)).end_ns.max()

    assert on_four < 0.95 * on_two


def test_a_replay_in_which_nobody_shares_is_the_static_one_to_the_nanosecond() -> None:
    graph = ft.load(EXAMPLE).graph

    shared = simulate_shared(graph, None)

    assert shared.end_ns.tolist() == simulate(graph).end_ns.tolist()
