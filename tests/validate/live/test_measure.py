"""Runs take turns, are kept one by one, and none is dropped in silence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from foretrace.base import ModelError
from foretrace.capture import Device, TrainedSteps, TrainingSettings
from foretrace.capture.training.settings import Times
from foretrace.validate import BASE, CONFIGURATIONS, Configuration, measure_live
from foretrace.validate.live import measure
from foretrace.validate.live.measure import BASE_NAME, LivePaths, read_live_runs, runnable
from tests.validate.live.made import CPU, host

GPU = Device("cuda", "GPU of a test", ("fp32",))
FEW = (
    Configuration("alone", (), replace(BASE, data=1)),
    Configuration("four", (), replace(BASE, data=4)),
)
BY_SETTINGS = {replace(each.settings): each.name for each in FEW} | {BASE: BASE_NAME}


@dataclass
class FakeTraining:
    """Trains nothing; remembers what it was asked for, and fails where it is told to."""

    asked: list[tuple[TrainingSettings, int, Path | None]] = field(default_factory=list)
    fails_at: int | None = None

    def __call__(
        self,
        settings: TrainingSettings,
        *,
        steps: int,
        recording: Path | None = None,
        profiled: int = 3,
        unprofiled: int = 0,
    ) -> TrainedSteps:
        """Steps of 1, 2, 3, ... ms."""
        assert profiled > 0
        assert (unprofiled > 0) == (recording is not None and recording.name == BASE_NAME)
        self.asked.append((settings, steps, recording))
        if len(self.asked) - 1 == self.fails_at:
            raise ModelError("rank 0 of 1 failed")
        ends = [1_000_000 * step * (step + 1) // 2 for step in range(steps + 1)]
        return TrainedSteps((Times(rank=0, end_ns=tuple(ends), loss=None),))


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """In the place of real processes; the machine is described without measuring it."""
    fake = FakeTraining()
    monkeypatch.setattr(measure, "trained", fake)
    monkeypatch.setattr(measure, "described_host", lambda *_, **__: host())
    monkeypatch.setattr(measure, "num_devices", lambda device: 2 if device.is_gpu else 16)
    return fake


def test_the_base_is_recorded_first_and_every_round_runs_everything_once(
    training: FakeTraining, tmp_path: Path
) -> None:
    measure_live(tmp_path, device=CPU, rounds=6, steps=4, configurations=FEW)

    assert training.asked[0] == (BASE, 4, LivePaths(tmp_path).base)
    names = [BY_SETTINGS[settings] for settings, _, _ in training.asked[1:]]
    rounds = [names[at : at + 3] for at in range(0, len(names), 3)]
    assert all(sorted(each) == ["alone", BASE_NAME, "four"] for each in rounds)
    assert len(set(map(tuple, rounds))) > 1  # the order is another one each time
    runs = read_live_runs(tmp_path).runs
    assert [run.name for run in runs] == names
    assert [run.round for run in runs] == [number for number in range(6) for _ in range(3)]
    assert runs[0].step_ns == (1_000_000, 2_000_000, 3_000_000, 4_000_000)


def test_each_configuration_is_recorded_in_its_first_run_only(
    training: FakeTraining, tmp_path: Path
) -> None:
    measure_live(tmp_path, device=CPU, rounds=2, steps=3, configurations=FEW)

    folders = [recording for _, _, recording in training.asked[1:] if recording is not None]
    assert sorted(each.name for each in folders) == ["alone", "four"]
    assert all(each.parent == tmp_path / "recordings" for each in folders)


def test_what_ran_before_a_failure_is_kept(training: FakeTraining, tmp_path: Path) -> None:
    training.fails_at = 3

    with pytest.raises(ModelError, match="rank 0"):
        measure_live(tmp_path, device=CPU, rounds=2, steps=3, configurations=FEW)

    assert len(read_live_runs(tmp_path).runs) == 2


def test_no_round_begins_after_the_time_is_over(training: FakeTraining, tmp_path: Path) -> None:
    measure_live(tmp_path, device=CPU, rounds=50, steps=3, seconds=1e-9, configurations=FEW)

    assert {run.round for run in read_live_runs(tmp_path).runs} == {0}
    assert len(training.asked) == 1 + 3


def test_an_interrupted_test_goes_on_with_what_is_missing(
    training: FakeTraining, tmp_path: Path
) -> None:
    training.fails_at = 5
    with pytest.raises(ModelError, match="rank 0"):
        measure_live(tmp_path, device=CPU, rounds=3, steps=3, configurations=FEW)
    training.fails_at = None
    asked = len(training.asked)

    measure_live(tmp_path, device=CPU, rounds=3, steps=3, configurations=FEW)

    assert len(training.asked) == asked + 5  # the base is not recorded again
    found = sorted((run.round, run.name) for run in read_live_runs(tmp_path).runs)
    assert found == [(at, name) for at in range(3) for name in ("alone", BASE_NAME, "four")]


def test_runs_on_two_devices_do_not_go_together(training: FakeTraining, tmp_path: Path) -> None:
    measure_live(tmp_path, device=CPU, rounds=1, steps=3, configurations=FEW)
    asked = len(training.asked)

    with pytest.raises(ModelError, match="GPU of a test"):
        measure_live(tmp_path, device=GPU, rounds=1, steps=3, configurations=FEW)

    assert len(training.asked) == asked


def test_configurations_that_lack_gpus_are_left_out(training: FakeTraining, tmp_path: Path) -> None:
    measure_live(tmp_path, device=GPU, rounds=1, steps=3, configurations=FEW)

    assert {run.name for run in read_live_runs(tmp_path).runs} == {"alone", BASE_NAME}
    assert all(settings.device == "cuda" for settings, _, _ in training.asked)


def test_one_gpu_is_too_few_for_the_base(
    training: FakeTraining, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measure, "num_devices", lambda _: 1)

    with pytest.raises(ModelError, match=r"needs 2 GPUs, and there are 1: .* --device cpu"):
        measure_live(tmp_path, device=GPU, rounds=1, steps=3, configurations=FEW)

    assert training.asked == []


def test_processor_cores_are_shared_and_gpus_are_not() -> None:
    four = replace(BASE, data=4)

    assert runnable(four, 2)
    assert not runnable(replace(four, device="cuda"), 2)
    assert all(runnable(each.settings, 1) for each in CONFIGURATIONS)


def test_a_folder_without_runs_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="validate live --out"):
        read_live_runs(tmp_path)
