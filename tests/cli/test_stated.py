"""What is stated on a command line is checked, and errors name what to type."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("name", "meant"), [("h100", "dgx-h100"), ("H200", "dgx-h200"), ("mi300", "mi300x-platform")]
)
def test_what_chips_are_called_for_short_is_no_machine_either(
    name: str, meant: str, run: Run
) -> None:
    done = run("estimate", "--model", "llama3-8b", "--machine", name, "--global-batch", "8")

    assert done.code == 1
    assert f"{name!r} is a chip" in done.err
    assert f"name a host or machine of it: {meant}" in done.err


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


def test_a_devices_machine_of_a_recording_of_cpus_is_refused(run: Run, repository: Path) -> None:
    traces = repository / "examples" / "cpu-llama-tp2-dp2" / "traces"
    line = ("whatif", traces, "--sharding", "zero3")

    own = run(*line)
    stated = run(*line, "--machine", "dgx-h100")

    assert own.code == 0
    assert (stated.code, stated.out) == (1, "")
    assert "the recording shows no device" in stated.err
    assert "h100-sxm of dgx-h100" in stated.err
    assert "--machine" in stated.err
    assert "machine" not in run("whatif", traces, "--set", "precision.products=fp8").err


def test_collectives_of_cpus_are_no_device_operations_without_launches(
    run: Run, data_dir: Path
) -> None:
    folder = data_dir / "traces" / "odd-files"

    done = run("breakdown", folder / "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz")

    assert done.code == 0
    assert "10 of 10 collectives have members that were not recorded" in done.err
    assert "no recorded launch" not in done.err


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
