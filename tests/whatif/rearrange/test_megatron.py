"""Layers of a recorded Megatron job, repeated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foretrace
from foretrace.analyze import windows
from foretrace.graph import Part, verify
from foretrace.simulate import simulate
from foretrace.whatif import Layers
from foretrace.whatif.arrange.arrange import arranged
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.rearrange.rearranged import rearranged
from foretrace.whatif.recorded.read import program_of


def test_twice_the_layers_add_the_layers_once_more(data_dir: Path) -> None:
    program = program_of(foretrace.load(data_dir / "traces" / "megatron-tp8").recording)
    before = base_scenario(program)
    graph = program.graph
    replayed = simulate(graph)
    of_layers = graph.part == Part.LAYER
    spans_ns = [
        int(replayed.end_ns[own].max() - replayed.start_ns[own].min())
        for rank in graph.ranks
        for own in (of_layers & (graph.rank == rank),)
    ]

    job = rearranged(program, before, Layers(80).applied(before))
    assert job is not None
    found = arranged(program, job)

    verify(found.graph)
    added_ns = windows(simulate(found.graph)).duration_ns[0] - windows(replayed).duration_ns[0]
    # Host threads run apart from each other, so ranks take a little more or less for the layers.
    assert added_ns / np.mean(spans_ns) == pytest.approx(1, abs=0.01)
