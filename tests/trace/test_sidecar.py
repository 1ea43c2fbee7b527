"""Reading step times beside a trace, strictly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.base import TraceError
from foretrace.trace import (
    ProcessGroup,
    StepTimes,
    step_times_beside,
    step_times_path,
    write_step_times,
)

TIMES = StepTimes(
    rank=1,
    world_size=2,
    host_name="host",
    torch_version="2.13.0",
    backend="gloo",
    device_name="cpu x86_64",
    process_groups=(ProcessGroup("0", "default_pg", (0, 1)),),
    requested_steps=2,
    execution_trace="after",
    first_profiled_step=4,
    profiled_at_ns=1_795_253_845_179_763_774,
    profiled_step_ns=(120, 140),
    first_unprofiled_step=1,
    unprofiled_step_ns=(100, 90, 110),
    unprofiled_device_step_ns=(),
    unprofiled_after_step_ns=(101,),
    num_named_collectives=10,
)


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    """A trace with step times beside it."""
    path = tmp_path / "rank1.kineto.json.gz"
    write_step_times(TIMES, step_times_path(path))
    return path


def test_what_was_written_is_read(trace_path: Path) -> None:
    assert step_times_beside(trace_path) == TIMES


def test_a_trace_without_step_times_has_none(tmp_path: Path) -> None:
    assert step_times_beside(tmp_path / "rank1.kineto.json.gz") is None


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("rank3.kineto.json.gz", "rank3"),
        ("rank3.kineto.json", "rank3"),
        ("host.1102.pt.trace.json.gz", "host.1102"),
        ("trace", "trace"),
    ],
)
def test_step_times_lie_beside_their_trace(tmp_path: Path, name: str, stem: str) -> None:
    assert step_times_path(tmp_path / name) == tmp_path / f"{stem}.steps.json"


def test_the_median_counts_steps_before_and_after() -> None:
    assert TIMES.median_unprofiled_ns == 100  # of 90, 100, 101, 110: 100.5, rounded down


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": "foretrace-steps-9"}, "format"),
        ({"rank": -1}, "rank"),
        ({"world_size": 0}, "world_size"),
        ({"profiled_step_ns": [1, "2"]}, r"profiled_step_ns\[1?\.*\]"),
        ({"unexpected": 1}, "unexpected"),
    ],
)
def test_anything_else_is_refused_by_name(
    trace_path: Path, change: dict[str, object], complaint: str
) -> None:
    path = step_times_path(trace_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(TraceError, match=complaint) as raised:
        step_times_beside(trace_path)

    assert str(path) in str(raised.value)


def test_a_missing_field_is_refused_by_name(trace_path: Path) -> None:
    path = step_times_path(trace_path)
    document = json.loads(path.read_text())
    del document["torch_version"]
    path.write_text(json.dumps(document))

    with pytest.raises(TraceError, match="torch_version"):
        step_times_beside(trace_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "foretrace-steps-1"', "\x00"])
def test_a_damaged_file_is_refused(trace_path: Path, text: str) -> None:
    step_times_path(trace_path).write_text(text)

    with pytest.raises(TraceError, match="cannot read the step times of 'rank1"):
        step_times_beside(trace_path)
