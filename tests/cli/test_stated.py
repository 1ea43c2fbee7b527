"""What is stated on a command line is checked, and errors name what to type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_a_machine_of_other_chips_than_the_recordings_is_refused(run: Run, data_dir: Path) -> None:
    done = run("whatif", data_dir / "traces/megatron-tp8", "--tp", 4, "--machine", "superpod-h100")

    assert done.code == 1
    assert "the recording is of NVIDIA A100-SXM4-80GB, and superpod-h100 has h100" in done.err
    assert "--on-machine" in done.err


@pytest.mark.parametrize("degrees", [(), ("--pp", 2)])
def test_a_schedule_that_there_is_not_is_refused(
    run: Run, traces: Path, degrees: tuple[object, ...]
) -> None:
    done = run("whatif", traces, *degrees, "--schedule", "nonsense")

    assert done.code == 1
    assert "no schedule is called 'nonsense': known are" in done.err


def test_a_chip_is_no_machine(run: Run) -> None:
    done = run("estimate", "--model", "llama3-8b", "--machine", "h100-sxm")

    assert done.code == 1
    assert "'h100-sxm' is a chip" in done.err
    assert "dgx-h100" in done.err


def test_what_a_plan_lacks_is_named_as_it_is_typed(run: Run) -> None:
    done = run("estimate", "--model", "llama3-8b", "--machine", "dgx-h100")

    assert done.code == 1
    assert "--global-batch" in done.err


def test_a_format_is_known_from_the_name(run: Run, traces: Path, tmp_path: Path) -> None:
    done = run("convert", traces, "-o", tmp_path / "run.pftrace")
    unknown = run("convert", traces, "-o", tmp_path / "run.xyz")

    assert done.code == 0
    assert (tmp_path / "run.pftrace").stat().st_size > 0
    assert unknown.code == 1
    assert ".pftrace" in unknown.err


def test_a_devices_machine_of_a_cpu_recording_is_said_and_widens(
    run: Run, repository: Path
) -> None:
    traces = repository / "examples" / "cpu-llama-tp2-dp2" / "traces"
    model = traces.parent / "model.toml"
    line = ("whatif", traces, "--sharding", "zero3", "--json")

    own = json.loads(run(*line).out)
    stated = json.loads(run(*line, "--machine", "dgx-h100", "--model", model).out)

    says = [note for note in stated["notes"] if "the recording shows no device" in note]
    assert len(says) == 1
    assert "h100-sxm" in says[0]
    assert stated["high_ns"] > 1.9 * stated["step_ns"] > 3.8 * stated["low_ns"] / 1.05
    assert own["high_ns"] < 1.2 * own["step_ns"]
    assert not any("shows no device" in note for note in own["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--micro-batch", 1, "--global-batch", 10**12), "GB of memory, and there are"),
        (("--cores", 10**9), "65536"),
    ],
)
def test_what_would_not_fit_is_refused_before_it_is_tried(
    run: Run, traces: Path, words: tuple[object, ...], said: str
) -> None:
    done = run("whatif", traces, *words)

    assert done.code in (1, 2)
    assert said in done.err


def test_a_drawing_of_any_depth_ends_where_the_graph_does(run: Run, traces: Path) -> None:
    done = run("draw", traces, "-o", "x.svg", "--around", 5, "--depth", 10**9)

    assert done.code == 1
    assert "too much to draw" in done.err
