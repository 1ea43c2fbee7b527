"""From a folder of recordings and timed steps to errors; the recording is a real one, of gloo."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from foretrace.analyze import Selection
from foretrace.validate import BASE, Configuration, LiveReport, live_report
from foretrace.validate.live.host import write_host
from foretrace.validate.live.measure import BASE_NAME, LivePaths, LiveRun, Runs
from foretrace.whatif import Batch, Parallelism, Speed
from tests.validate.live.made import CPU, MIB, host, row

SLOWER = Configuration("slower", (Speed(0.5, Selection(ranks=(3,))),), BASE)
MORE = Configuration("more", (Batch(num_microbatches=2),), replace(BASE, num_microbatches=4))
UNEVEN = Configuration("uneven", (Parallelism(tp=3),), replace(BASE, tensor=3))
STEP_NS = {BASE_NAME: 220_000_000, "slower": 300_000_000, "more": 400_000_000}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> LiveReport:
    """Of a folder as a live test leaves it: the base's recording is that of the example."""
    paths = LivePaths(tmp_path_factory.mktemp("live"))
    shutil.copytree(repository / "examples/cpu-llama-tp2-dp2/traces", paths.base)
    shutil.copytree(paths.base, paths.recording("slower"))
    paths.recording("more").mkdir()
    (paths.recording("more") / "rank0.kineto.json").write_text("no profile")
    write_host(
        host(
            row("all_reduce", 2, 1024, 3e5),
            row("all_reduce", 2, 4 * MIB, 4e6),
        ),
        paths.host,
    )
    runs = [
        LiveRun(name=name, round=number, step_ns=(0, step_ns + number * 1_000_000, 9 * step_ns))
        for name, step_ns in STEP_NS.items()
        for number in range(3)
    ]
    paths.runs.write_bytes(msgspec.json.encode(Runs(device=CPU, num_devices=2, runs=tuple(runs))))
    return live_report(paths.folder, configurations=(SLOWER, MORE, UNEVEN))


def test_measured_steps_are_medians_of_runs(report: LiveReport) -> None:
    assert [each.name for each in report.rows] == ["slower", "more", "uneven"]
    slower = report.rows[0]
    assert slower.measured_ns == STEP_NS["slower"] + 1_000_000
    assert (slower.measured_low_ns, slower.measured_high_ns) == (300_000_000, 302_000_000)
    assert slower.num_runs == 3


def test_the_base_is_predicted_as_it_was_timed_without_the_profiler(report: LiveReport) -> None:
    """Median over the example's steps without the profiler, mean over its ranks."""
    assert report.base.predicted_ns == pytest.approx(221_725_000, rel=0.002)
    assert report.profiler_ns == pytest.approx(15_000_000, rel=0.05)
    assert report.event_ns > 0


def test_changes_are_predicted_from_the_recording(report: LiveReport) -> None:
    base, (slower, more, _) = report.base, report.rows
    assert base.predicted_ns is not None
    assert slower.predicted_ns is not None
    assert more.predicted_ns is not None
    assert slower.predicted_ns > 1.2 * base.predicted_ns
    assert 1.6 * base.predicted_ns < more.predicted_ns < 2.1 * base.predicted_ns
    assert more.low_ns is not None
    assert more.low_ns <= more.predicted_ns


def test_what_cannot_be_predicted_stays_in_the_list_and_says_why(report: LiveReport) -> None:
    uneven = report.rows[2]

    assert uneven.predicted_ns is None
    assert uneven.measured_ns is None
    assert uneven.why


def test_components_are_those_of_both_recordings(report: LiveReport) -> None:
    slower, more, _ = report.rows

    parts = slower.components["exposed_compute"]
    assert parts.measured_ns is not None
    assert parts.predicted_ns is not None
    assert parts.predicted_ns > parts.measured_ns
    assert more.components["exposed_compute"].measured_ns is None


def test_a_recording_that_cannot_be_read_costs_its_components_alone(report: LiveReport) -> None:
    _, more, _ = report.rows

    assert more.predicted_ns is not None
    assert "for components alone, cannot be read" in more.why
