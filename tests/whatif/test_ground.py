from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.base import ScenarioError
from foretrace.simulate import simulate
from foretrace.whatif import ground_of
from tests.whatif.made import recording_of_layers


def test_a_recording_without_times_has_nothing_to_scale() -> None:
    recording = recording_of_layers(2)
    graph = replace(
        recording.graph,
        measured_ns=np.zeros_like(recording.graph.measured_ns),
        lag_ns=np.zeros_like(recording.graph.lag_ns),
    )
    empty = replace(recording, graph=graph, measured=simulate(graph))

    with pytest.raises(ScenarioError, match="steps take no time"):
        ground_of(empty)


def test_the_ground_keeps_what_was_measured_beside_the_replay() -> None:
    recording = recording_of_layers(2)

    ground = ground_of(recording)

    assert ground.replayed_step_ns == pytest.approx(ground.measured_step_ns, rel=0.001)
    assert ground.before.plan.tensor == 2
    assert ground.before.sizes.layers == 2
