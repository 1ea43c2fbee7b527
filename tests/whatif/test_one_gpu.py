"""Steps that were run on one GPU, beside what is predicted of them from another's recording."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import median

import pytest

import foretrace as ft
from foretrace.analyze import step_time_ns
from foretrace.trace import step_times_beside
from foretrace.whatif import Edit

TRACES = Path(__file__).parents[2] / "examples" / "h200" / "traces"
_WIDER = {"hidden": 4096, "feed_forward": 11_264, "heads": 32, "key_value_heads": 16}


@cache
def recorded(variant: str) -> ft.Job:
    return ft.load(TRACES / variant)


def measured_ns(variant: str) -> float:
    """The median step between the device's events, with the profiler off; the first warms up."""
    times = step_times_beside(TRACES / variant / "rank0.kineto.json.gz")
    assert times is not None
    return median(times.unprofiled_device_step_ns[1:])


# The bound is in percent of what was measured; every interval must hold it too.
@pytest.mark.parametrize(
    ("start", "edit", "variant", "bound"),
    [
        ("base", ft.Layers(4), "layers-4", 1),
        ("base", ft.Layers(16), "layers-16", 1),
        ("base", ft.Batch(micro_batch=1), "micro-batch-1", 6),
        ("base", ft.Batch(micro_batch=4), "micro-batch-4", 4),
        ("base", ft.Batch(sequence=8192), "sequence-8192", 1),
        ("base", ft.Batch(num_microbatches=4), "microbatches-4", 2),
        ("base", ft.PlanKeys({"memory.recompute": "full"}), "recompute", 3),
        ("base", ft.Widths(**_WIDER), "hidden-4096", 8),
        ("base", ft.CudaGraphs(), "graph", 3),
        ("small", ft.CudaGraphs(), "small-graph", 3),
        ("plain-attention", ft.Attention(flash=True), "base", 4),
    ],
)
def test_a_change_is_predicted_as_it_was_measured(
    start: str, edit: Edit, variant: str, bound: float
) -> None:
    found = ft.whatif(recorded(start).edit(edit))

    assert found.step_ns == pytest.approx(measured_ns(variant), rel=bound / 100)
    assert found.low_ns <= measured_ns(variant) <= found.high_ns


@pytest.mark.parametrize("variant", ["base", "layers-16", "sequence-8192", "compiled", "graph"])
def test_a_step_is_as_long_as_without_the_profiler_where_the_gpu_is_the_slower(
    variant: str,
) -> None:
    step_ns = step_time_ns(recorded(variant).measured)

    assert step_ns == pytest.approx(measured_ns(variant), rel=0.02)
