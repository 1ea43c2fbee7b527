"""Laying flight recorder entries onto the calls of a Kineto file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from foretrace.capture.files import write_completed
from foretrace.capture.gloo import GlooCall, calls_in, named_calls
from foretrace.trace import FlightEntry, ProcessGroup
from tests.capture.kineto_files import contents, spans

ZERO_NS = 1_790_857_026_000_000_000
# One event over many lines (torch 2.13), and over few (older ones).
LONG = """  {{
    "ph": "X",
    "cat": "cpu_op",
    "name": "{name}",
    "pid": 7,
    "tid": 7,
    "ts": {start},
    "dur": {duration}
    ,
    "args": {{
      "External id": 42,"Record function id": 0
    }}
  }}"""
SHORT = """  {{
    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 7, "tid": 7,
    "ts": {start}, "dur": {duration},
    "args": {{
      "External id": 42,"Record function id": 0
    }}
  }}"""


def kineto(layout: str, events: list[tuple[str, int, int]]) -> bytes:
    """A file of operators: name, start and duration in ns."""
    bodies = [
        layout.format(
            name=name,
            start=f"{start_ns // 1000}.{start_ns % 1000:03d}",
            duration=f"{duration_ns // 1000}.{duration_ns % 1000:03d}",
        )
        for name, start_ns, duration_ns in events
    ]
    head = f'{{\n  "schemaVersion": 1,\n  "baseTimeNanoseconds": {ZERO_NS},\n  "traceEvents": [\n'
    return (head + ",\n".join(bodies) + "\n  ]\n}\n").encode()


def entry(
    at_ns: int, *, name: str = "gloo:all_reduce", number: int = 1, size: int = 10
) -> FlightEntry:
    """A collective of group `1`."""
    return FlightEntry(
        name,
        ZERO_NS + at_ns,
        ("1", "tensor"),
        number,
        input_sizes=[[size, 2]],
        output_sizes=[[size, 2]],
        input_dtypes=["Float"],
    )


def test_both_layouts_of_a_file_are_understood(tmp_path: Path) -> None:
    events = [("aten::mm", 1_000, 500), ("c10d::allreduce_", 2_000_123, 30_456)]
    for layout in (LONG, SHORT):
        raw = tmp_path / "raw.json"
        raw.write_bytes(kineto(layout, events))

        num_named = write_completed(
            raw,
            tmp_path / "out.json.gz",
            entries=(entry(2_010_000, number=7),),
            groups=(ProcessGroup("1", "tensor", (2, 3)),),
            unfinished_step=None,
        )

        before = json.loads(raw.read_text())
        after = spans(contents(tmp_path / "out.json.gz"))
        assert num_named == 1
        assert after[1]["args"] == {
            "Collective name": "allreduce",
            "In msg nelems": 20,
            "Out msg nelems": 20,
            "dtype": "Float",
            "Process Group Name": "1",
            "Process Group Description": "tensor",
            "Seq": 7,
            "Group size": 2,
            "Process Group Ranks": "[2, 3]",
            "External id": 42,
            "Record function id": 0,
        }
        assert after[0] == before["traceEvents"][0]


def test_a_file_with_nothing_to_add_keeps_its_bytes(tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    raw.write_bytes(kineto(LONG, [("c10d::allreduce_", 5, 6)]))

    num_named = write_completed(
        raw, tmp_path / "out.json.gz", entries=(), groups=(), unfinished_step=None
    )

    assert num_named == 0
    assert gzip.decompress((tmp_path / "out.json.gz").read_bytes()) == raw.read_bytes()


def test_times_are_read_to_the_nanosecond() -> None:
    lines = kineto(LONG, [("c10d::broadcast_", 4_395_703_345_683_550, 502_137)]).splitlines(True)

    (call,) = calls_in(lines)

    assert call.operator == "broadcast_"
    assert call.start_ns == ZERO_NS + 4_395_703_345_683_550
    assert call.end_ns - call.start_ns == 502_137


def test_a_call_older_than_the_flight_recorder_gets_no_name() -> None:
    calls = [
        GlooCall(10, "allreduce_", ZERO_NS + 1_000_000, ZERO_NS + 1_030_000),
        GlooCall(20, "allreduce_", ZERO_NS + 2_000_000, ZERO_NS + 2_030_000),
    ]

    named = named_calls(calls, [entry(2_010_000, number=5)])

    assert {line: found.collective_seq_id for line, (_, found) in named.items()} == {20: 5}


def test_an_entry_of_another_kind_is_not_taken() -> None:
    calls = [GlooCall(10, "broadcast_", ZERO_NS, ZERO_NS + 30_000)]

    assert named_calls(calls, [entry(10_000, name="gloo:all_reduce")]) == {}


def test_sends_are_left_alone() -> None:
    calls = [
        GlooCall(10, "send", ZERO_NS, ZERO_NS + 30_000),
        GlooCall(20, "allreduce_", ZERO_NS + 31_000, ZERO_NS + 60_000),
    ]

    named = named_calls(calls, [entry(45_000)])

    assert list(named) == [20]


@given(
    gaps=st.lists(st.integers(1_000, 500_000), min_size=1, max_size=30),
    durations=st.lists(st.integers(20_000, 4_000_000), min_size=30, max_size=30),
    shares=st.lists(st.floats(0, 1), min_size=30, max_size=30),
    num_forgotten=st.integers(0, 29),
    shuffled=st.randoms(use_true_random=False),
)
def test_each_call_gets_its_own_entry_in_any_file_order(
    gaps: list[int],
    durations: list[int],
    shares: list[float],
    num_forgotten: int,
    shuffled: object,
) -> None:
    calls: list[GlooCall] = []
    entries: list[FlightEntry] = []
    now_ns = 0
    for number, gap_ns in enumerate(gaps):
        start_ns = now_ns + gap_ns + 20_000  # farther apart than the slack
        now_ns = start_ns + durations[number]
        calls.append(GlooCall(number, "allreduce_", ZERO_NS + start_ns, ZERO_NS + now_ns))
        inside_ns = start_ns + round(durations[number] * shares[number])
        entries.append(entry(inside_ns, number=number))
    kept = entries[min(num_forgotten, len(entries)) :]
    shuffled.shuffle(calls)  # type: ignore[attr-defined]

    named = named_calls(calls, kept)

    found = {line: taken.collective_seq_id for line, (_, taken) in named.items()}
    assert found == {taken.collective_seq_id: taken.collective_seq_id for taken in kept}
