"""The compiled reader against the oracle, on generated files."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from foretrace.base import TraceError
from tests.oracles import kineto as oracle
from tests.trace.kineto_json import (
    Event,
    Raw,
    assert_same,
    events,
    file_text,
    files,
    trace_from,
)

NO_TRACE = ("not an object", "no phase")
MANY = settings(max_examples=150, deadline=None)


@MANY
@given(text=files())
def test_every_generated_file_is_read_as_the_oracle_reads_it(text: bytes) -> None:
    expected = oracle.read(text)
    is_trace = expected.num_events > sum(expected.dropped.get(reason, 0) for reason in NO_TRACE)
    if expected.num_events and not is_trace:
        with pytest.raises(TraceError, match="none of its"):
            trace_from([text])
        return

    trace = trace_from([text])

    assert oracle.flat(trace) == expected


@MANY
@given(rows=st.lists(events(), max_size=12))
def test_every_record_is_accounted_for(rows: list[Event]) -> None:
    rows.append({"ph": "M"})

    trace = trace_from([file_text(rows)])

    assert trace.num_accounted == trace.meta.num_events


@pytest.mark.large
@settings(max_examples=4, deadline=None)  # each cut at every byte
@given(text=files(max_events=3), seed=st.integers(0, 2**32))
def test_pieces_may_end_anywhere(text: bytes, seed: int) -> None:
    try:
        whole = trace_from([text])
    except TraceError:
        reject()
    draw = random.Random(seed)
    cuts = sorted(draw.sample(range(len(text) + 1), min(len(text), 5)))

    for cut in range(len(text) + 1):
        assert_same(trace_from([text[:cut], text[cut:]]), whole)
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert_same(trace_from(pieces), whole)
    assert_same(trace_from([text[at : at + 1] for at in range(len(text))]), whole)


@pytest.mark.large
@settings(max_examples=4, deadline=None)  # each cut at every byte
@given(drawn=st.lists(events("X"), min_size=1, max_size=3))
def test_a_file_cut_anywhere_keeps_the_records_before_the_cut(drawn: list[Event]) -> None:
    rows = [{"ph": "X", **row} for row in drawn]
    text = file_text(rows)
    ends = [len(file_text(rows[:count])) - 2 for count in range(len(rows) + 1)]

    for cut in range(1, len(text)):
        if cut < text.index(b"[") + 1:
            with pytest.raises(TraceError, match="before any event"):
                trace_from([text[:cut]])
            continue
        trace = trace_from([text[:cut]])
        count = sum(end <= cut for end in ends[1:])
        assert trace.meta.is_truncated
        assert trace.meta.num_events == count
        assert oracle.flat(trace).events == oracle.read(file_text(rows[:count])).events


@MANY
@given(rows=st.lists(events("XXXisf"), max_size=8), seed=st.integers(0, 2**32))
def test_the_order_in_the_file_does_not_matter(rows: list[Event], seed: int) -> None:
    rows.append({"ph": "M"})
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)

    assert_same(trace_from([file_text(shuffled)]), trace_from([file_text(rows)]))


@MANY
@given(
    whole=st.integers(-(10**15), 10**15),
    decimals=st.text("0123456789", max_size=25),
    exponent=st.one_of(st.none(), st.integers(-30, 6)),
    is_quoted=st.booleans(),
)
def test_times_are_exact(whole: int, decimals: str, exponent: int | None, is_quoted: bool) -> None:
    spelled = f"{whole}{'.' if decimals else ''}{decimals}"
    spelled += "" if exponent is None else f"e{exponent:+d}"
    written = Raw(f'"{spelled}"' if is_quoted else spelled)
    expected = oracle.nanoseconds(spelled)

    trace = trace_from([file_text([{"ph": "X", "cat": "cpu_op", "ts": written, "dur": 1}])])

    assert trace.start_ns.tolist() == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ("1712195495522624.816", 1712195495522624816),
        ("1669783687464181", 1669783687464181000),
        ("0.0005", 1),
        ("-0.0005", 0),
        ("-0.0015", -1),
        ("-0.00051", -1),
        ("5.6784999999999999999999999", 5678),
        ("5.6785", 5679),
        ("1.5e3", 1500000),
        ("25e-4", 3),
        ("50000000000.00000000e-14", 1),
        ("-50000000000.00000000e-14", 0),
        ("60000000000.00000000e-14", 1),
        ("50000000000.00000000e-15", 0),
        ("3.", 3000),
        (".5", 500),
    ],
)
def test_a_time_is_rounded_to_the_nearest_ns_halves_up(spelled: str, expected: int) -> None:
    event = {"ph": "X", "cat": "cpu_op", "ts": Raw(spelled), "dur": 1}

    trace = trace_from([file_text([event])])

    assert trace.start_ns.tolist() == [expected]


@pytest.mark.parametrize("spelled", ["1.2.3", "0x10", "--1", "1e", "5000000000000000", "-", "1 2"])
def test_what_is_no_time_is_counted(spelled: str) -> None:
    text = b'[{"ph":"X","cat":"cpu_op","dur":1,"ts":"' + spelled.encode() + b'"}]'

    trace = trace_from([text])

    assert trace.meta.dropped == {"no usable timestamp": 1}


def test_a_negative_duration_becomes_0_and_is_noted() -> None:
    event = {"ph": "X", "cat": "kernel", "ts": 5, "dur": -3}

    trace = trace_from([file_text([event])])

    assert trace.duration_ns.tolist() == [0]
    assert trace.meta.notes == ("1 negative durations are taken as 0",)


@pytest.mark.large
def test_a_hundred_thousand_lanes_and_names_are_kept_apart() -> None:
    count = 100_000
    lines = (
        b'{"ph":"X","cat":"cpu_op","name":"n%d","pid":1,"tid":%d,"ts":%d,"dur":1},'
        % (number, number, number)
        for number in range(count)
    )
    text = b"[" + b"".join(lines)[:-1] + b"]"

    trace = trace_from([text])

    assert len(trace.lanes) == len(trace.strings) == count
    assert trace.lanes.number[trace.lane].tolist() == list(range(count))
    assert trace.strings[trace.name[77_777]] == "n77777"


@pytest.mark.large
def test_one_member_larger_than_every_buffer_is_read() -> None:
    notes = ["x" * 100] * 40_000
    text = file_text([], members={"INFO": notes, "distributedInfo": {"rank": 5}})
    pieces = [text[at : at + 65_536] for at in range(0, len(text), 65_536)]

    trace = trace_from(pieces)

    assert trace.meta.rank == 5
    assert trace.meta.json_bytes == len(text)


@pytest.mark.large
def test_one_record_larger_than_every_buffer_is_read() -> None:
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "ts": 1,
        "dur": 1,
        "args": {"Concrete Inputs": ["y" * 3_000_000]},
    }
    text = file_text([event, {**event, "ts": 2}])
    pieces = [text[at : at + 65_536] for at in range(0, len(text), 65_536)]

    trace = trace_from(pieces)

    assert trace.num_events == 2
    assert oracle.flat(trace) == oracle.read(text)


def test_what_the_letter_of_json_forbids_but_has_one_meaning_is_read() -> None:
    text = b"""{"schemaVersion": 1,, "traceEvents": [
      {"ph": "X", "cat": "cpu_op", "name": "a\tb\\q", "ts": 1, "dur": 2,
       "args": {"correlation": , }, },
      ,
      {"ph": "X", "cat": "cpu_op", "name": "c", "ts": 3, "dur": nan(ind)},
      {"ph": "X", "cat": "cpu_op", "name": "d", "ts": 4, "dur": 1,}, ],}"""

    trace = trace_from([text])

    assert [trace.strings[name] for name in trace.name] == ["a\tbq", "d"]
    assert trace.meta.dropped == {"no usable duration": 1}


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    text = b'[{"ph": "X", "cat": "cpu_op", "name": "a\xff\xc3", "ts": 1, "dur": 2}]'

    trace = trace_from([text])

    assert trace.strings == ("a\ufffd\ufffd",)
