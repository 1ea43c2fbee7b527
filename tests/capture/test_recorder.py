"""Recordings of a single process, complete, cut short, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest

from foretrace.base import MissingExtraError, TraceError
from foretrace.capture import Recorder, files, record
from foretrace.capture import job as job_module
from foretrace.trace import step_times_beside
from tests.capture.kineto_files import contents, spans, step_marks

torch = pytest.importorskip("torch")
Names: TypeAlias = list[str]


def run(recorder: Recorder, num_steps: int) -> None:
    """A loop of that many steps."""
    for _ in range(num_steps):
        torch.ones(4, 4) @ torch.ones(4, 4)
        recorder.step()


def names_in(folder: Path) -> Names:
    return sorted(path.name for path in folder.iterdir())


def test_one_process_without_groups_is_rank_0_of_1(tmp_path: Path) -> None:
    with record(tmp_path / "new" / "folder", steps=1, warmup=0, unprofiled=2) as recorder:
        run(recorder, recorder.schedule.num_needed)

    folder = tmp_path / "new" / "folder"
    assert names_in(folder) == ["rank0.et.json.gz", "rank0.kineto.json.gz", "rank0.steps.json"]
    times = step_times_beside(folder / "rank0.kineto.json.gz")
    assert times is not None
    assert (times.rank, times.world_size, times.backend) == (0, 1, None)
    assert times.process_groups == ()
    assert len(times.profiled_step_ns) == times.requested_steps
    assert times.median_unprofiled_ns is not None
    assert times.unprofiled_device_step_ns == () or torch.cuda.is_available()


@pytest.mark.parametrize(("warmup", "unprofiled", "steps"), [(0, 0, 1), (1, 0, 2), (0, 1, 3)])
def test_any_schedule_profiles_exactly_the_steps_asked_for(
    tmp_path: Path, warmup: int, unprofiled: int, steps: int
) -> None:
    with record(
        tmp_path, steps=steps, warmup=warmup, unprofiled=unprofiled, execution_trace=None
    ) as recorder:
        run(recorder, warmup + unprofiled + 1 + steps)

    first = warmup + unprofiled + 1
    marks = step_marks(contents(tmp_path / "rank0.kineto.json.gz"))
    assert [mark["name"] for mark in marks] == [f"ProfilerStep#{first + i}" for i in range(steps)]
    times = step_times_beside(tmp_path / "rank0.kineto.json.gz")
    assert times is not None
    assert len(times.unprofiled_step_ns) == unprofiled
    assert len(times.profiled_step_ns) == steps


def test_a_loop_that_goes_on_is_timed_again_and_left_alone(tmp_path: Path) -> None:
    with record(tmp_path, steps=1, warmup=0, unprofiled=2) as recorder:
        run(recorder, recorder.schedule.num_needed + 1 + 2)
        written = step_times_beside(tmp_path / "rank0.kineto.json.gz")
        run(recorder, 50)

    times = step_times_beside(tmp_path / "rank0.kineto.json.gz")
    assert times == written
    assert times is not None
    assert len(times.unprofiled_after_step_ns) == 2


def test_steps_after_the_trace_count_even_if_fewer_than_before(tmp_path: Path) -> None:
    with record(tmp_path, steps=1, warmup=0, unprofiled=3) as recorder:
        run(recorder, recorder.schedule.num_needed + 1 + 1)

    times = step_times_beside(tmp_path / "rank0.kineto.json.gz")
    assert times is not None
    assert len(times.unprofiled_after_step_ns) == 1


def test_together_links_the_execution_trace_by_id(tmp_path: Path) -> None:
    with record(tmp_path, steps=1, warmup=0, unprofiled=0, execution_trace="together") as recorder:
        run(recorder, recorder.schedule.num_needed)

    def ids(pairs: list[tuple[str, int]]) -> set[tuple[str, int]]:
        return {pair for pair in pairs if pair[0].startswith("aten::")}

    events = spans(contents(tmp_path / "rank0.kineto.json.gz"))
    profiled = [
        (event["name"], event["args"]["Record function id"])
        for event in events
        if event.get("cat") == "cpu_op"
    ]
    nodes = contents(tmp_path / "rank0.et.json.gz")["nodes"]
    traced = [
        (node["name"], attribute["value"])
        for node in nodes
        for attribute in node["attrs"]
        if attribute["name"] == "rf_id"
    ]
    assert ids(traced) == ids(profiled)
    assert any(name == "aten::mm" for name, _ in ids(traced))


def test_a_trace_calls_itself_by_its_own_name(tmp_path: Path) -> None:
    with record(tmp_path, steps=1, warmup=0, unprofiled=0) as recorder:
        run(recorder, recorder.schedule.num_needed)

    trace = contents(tmp_path / "rank0.kineto.json.gz")
    assert trace["traceName"] == "rank0.kineto.json.gz"


def test_stacks_are_recorded_only_on_request(tmp_path: Path) -> None:
    for stacks in (False, True):
        with record(
            tmp_path / str(stacks), steps=1, warmup=0, unprofiled=0, stacks=stacks
        ) as recorder:
            run(recorder, recorder.schedule.num_needed)

    def has_python(folder: Path) -> bool:
        events = spans(contents(folder / "rank0.kineto.json.gz"))
        return any(event.get("cat") == "python_function" for event in events)

    assert not has_python(tmp_path / "False")
    assert has_python(tmp_path / "True")


def test_a_loop_that_ends_early_leaves_whole_steps_and_warns(tmp_path: Path) -> None:
    def end_early() -> None:
        with record(tmp_path, steps=3, warmup=1, unprofiled=1) as recorder:
            run(recorder, 5)

    with pytest.warns(UserWarning, match=r"ended after 5 of 7 steps .* so 2 were profiled"):
        end_early()

    trace = contents(tmp_path / "rank0.kineto.json.gz")
    assert [mark["name"] for mark in step_marks(trace)] == ["ProfilerStep#3", "ProfilerStep#4"]
    assert "unfinished step 5" in [event["name"] for event in spans(trace)]
    times = step_times_beside(tmp_path / "rank0.kineto.json.gz")
    assert times is not None
    assert len(times.profiled_step_ns) == 2
    assert len(times.profiled_step_ns) < times.requested_steps
    assert names_in(tmp_path) == ["rank0.kineto.json.gz", "rank0.steps.json"]


def test_a_loop_that_ends_before_the_execution_trace_keeps_the_rest(tmp_path: Path) -> None:
    def end_early() -> None:
        with record(tmp_path, steps=1, warmup=0, unprofiled=1) as recorder:
            run(recorder, 3)

    with pytest.warns(UserWarning, match=r"1 for the execution trace"):
        end_early()

    assert names_in(tmp_path) == ["rank0.kineto.json.gz", "rank0.steps.json"]
    # The place for an observer is free again.
    with record(tmp_path, steps=1, warmup=0, unprofiled=0) as recorder:
        run(recorder, recorder.schedule.num_needed)
    assert "rank0.et.json.gz" in names_in(tmp_path)


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_a_loop_too_short_to_record_anything_is_a_warning(tmp_path: Path, num_steps: int) -> None:
    recorder = record(tmp_path, steps=2, warmup=1, unprofiled=1)

    with (
        pytest.warns(UserWarning, match=rf"nothing was recorded.*after {num_steps} of 6"),
        recorder,
    ):
        run(recorder, num_steps)

    assert names_in(tmp_path) == []


def test_a_full_disk_does_not_end_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_completed", full)
    recorder = record(tmp_path, steps=1, warmup=0, unprofiled=0)

    with pytest.warns(UserWarning, match="No space left on device; the loop goes on"), recorder:
        run(recorder, recorder.schedule.num_needed + 3)

    assert names_in(tmp_path) == []
    with record(tmp_path / "next", steps=1, warmup=0, unprofiled=0) as another:
        assert another.folder.name == "next"  # the profiler is free again
        monkeypatch.undo()
        run(another, another.schedule.num_needed)
    assert "rank0.kineto.json.gz" in names_in(tmp_path / "next")


def test_of_two_recorders_at_once_the_first_records(tmp_path: Path) -> None:
    first = record(tmp_path / "first", steps=2, warmup=0, unprofiled=0, execution_trace=None)
    second = record(tmp_path / "second", steps=1, warmup=0, unprofiled=0, execution_trace=None)

    def both() -> None:
        with second:
            for _ in range(first.schedule.num_needed):
                run(first, 1)
                run(second, 1)

    with first:
        run(first, 1)
        with pytest.warns(UserWarning, match="another profiler is on"):
            both()

    assert len(step_marks(contents(tmp_path / "first" / "rank0.kineto.json.gz"))) == 2
    assert names_in(tmp_path / "second") == []


def test_a_compiled_step_is_recorded(tmp_path: Path) -> None:
    step = torch.compile(lambda x: (x @ x).relu(), backend="eager")

    with record(tmp_path, steps=1, warmup=1, unprofiled=0) as recorder:
        for _ in range(recorder.schedule.num_needed):
            step(torch.ones(4, 4))
            recorder.step()

    names = {event["name"] for event in spans(contents(tmp_path / "rank0.kineto.json.gz"))}
    assert "aten::relu" in names


def test_an_error_in_the_loop_passes_and_whole_steps_are_kept(tmp_path: Path) -> None:
    def fail() -> None:
        with record(tmp_path, steps=3, warmup=0, unprofiled=0) as recorder:
            run(recorder, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert names_in(tmp_path) == ["rank0.kineto.json.gz", "rank0.steps.json"]
    assert len(step_marks(contents(tmp_path / "rank0.kineto.json.gz"))) == 1


def test_files_of_an_earlier_recording_are_replaced(tmp_path: Path) -> None:
    for steps in (1, 2):
        with record(tmp_path, steps=steps, warmup=0, unprofiled=0) as recorder:
            run(recorder, recorder.schedule.num_needed)

    assert len(step_marks(contents(tmp_path / "rank0.kineto.json.gz"))) == 2


def test_another_profiler_around_the_loop_is_refused(tmp_path: Path) -> None:
    recorder = record(tmp_path, steps=1)

    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        pytest.warns(UserWarning, match="another profiler is on"),
        recorder,
    ):
        run(recorder, 2)

    assert names_in(tmp_path) == []


def test_another_profiler_inside_the_loop_is_refused_when_it_matters(tmp_path: Path) -> None:
    recorder = record(tmp_path, steps=1, warmup=1, unprofiled=1)

    def overlap() -> None:
        with recorder:
            run(recorder, 1)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                run(recorder, 1)

    with pytest.warns(UserWarning, match="another profiler is on"):
        overlap()

    assert names_in(tmp_path) == []


def test_another_execution_trace_observer_is_refused(tmp_path: Path) -> None:
    other = torch.profiler.ExecutionTraceObserver()
    other.register_callback(str(tmp_path / "other.json"))
    recorder = record(tmp_path, steps=1, warmup=0, unprofiled=0, execution_trace="together")

    try:
        with pytest.warns(UserWarning, match="another ExecutionTraceObserver"), recorder:
            run(recorder, recorder.schedule.num_needed)
    finally:
        other.unregister_callback()


def test_a_folder_that_cannot_be_written_is_refused_before_the_loop(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    recorder = record(tmp_path / "file" / "traces", steps=1)

    with pytest.raises(TraceError, match="no file can be written"), recorder:
        pytest.fail("the loop ran")


def test_a_folder_with_ranks_of_a_larger_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank7.kineto.json.gz").write_bytes(b"")
    recorder = record(tmp_path, steps=1)

    with (
        pytest.raises(TraceError, match=r"'rank7\.kineto\.json\.gz' of another recording"),
        recorder,
    ):
        pytest.fail("the loop ran")


def test_a_step_outside_of_the_block_is_a_warning(tmp_path: Path) -> None:
    recorder = record(tmp_path, steps=1, warmup=0, unprofiled=0)

    with pytest.warns(UserWarning, match="outside of its block"):
        recorder.step()
    with recorder:
        run(recorder, recorder.schedule.num_needed)
    with pytest.warns(UserWarning, match="outside of its block"):
        recorder.step()


def test_a_recorder_serves_once(tmp_path: Path) -> None:
    recorder = record(tmp_path, steps=1, warmup=0, unprofiled=0)
    with recorder:
        run(recorder, recorder.schedule.num_needed)

    with pytest.raises(RuntimeError, match="used already"), recorder:
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"warmup": -1}, "warmup must not be negative, got -1"),
        ({"unprofiled": -2}, "unprofiled must not be negative, got -2"),
        ({"ranks": [0, 3]}, r"ranks 0\.\.0, got \[3\]"),
        ({"ranks": []}, "got none"),
        ({"execution_trace": "before"}, "'after', 'together' or None, got 'before'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        record(tmp_path, **arguments)  # type: ignore[arg-type]


def test_without_pytorch_the_error_gives_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "find_spec", lambda _: None)

    with pytest.raises(MissingExtraError, match=r'pip install "foretrace\[torch\]"'):
        record(tmp_path)


def test_torchrun_without_a_process_group_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")

    with pytest.raises(RuntimeError, match="init_process_group"):
        record(tmp_path)
