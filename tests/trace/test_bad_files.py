"""Files that are damaged, empty, or of another kind: a sentence, or what stands before."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import TraceError
from foretrace.trace import PROFILES, format_of, load_traces
from foretrace.trace.formats import read_profile
from foretrace.trace.read import read_trace
from tests.trace.kineto_json import file_text

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": f"op{number}", "pid": 1, "tid": 1, "ts": number, "dur": 1}
    for number in range(2000)
]
TEXT = file_text(EVENTS, members={"schemaVersion": 1})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"  \n ", "only blanks"),
        (b"hello world", "text that begins b'hello world'"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n", "git lfs pull"),
        (b"\x89PNG\r\n\x1a\n" + bytes(300), "binary data 89 50 4e 47"),
        (b"PK\x03\x04rest", "the archive is damaged"),
        (b"\x28\xb5\x2f\xfdrest", r"compressed with zstd; `pip install|only blanks"),
        (b"\xfd7zXZ\x00rest", "before any text"),
        (b'{"a": 1, "b": [2]}', r"members 'a', 'b', expected a list 'traceEvents'"),
        (b'{"a": 1', "the text ends before any event"),
        (b'{"traceEvents": 7}', "members 'traceEvents'"),
        (b"[1, 2, 3]", "none of its 3 records has a phase"),
        (b'{"schema": "1.0.2", "nodes": [{"id": 1}]}', "an execution trace"),
        (b'{"traceEvents": [{"ph": "X" : } ]', r"not JSON at byte 17"),
        (b'{"traceEvents": [}', "not JSON at byte 17"),
        (b"{7: 8}", "not JSON at byte 1"),
        (b"\x07\n\x050.0.4\x10\x12\x01a", "binary data 07 0a 05"),
        ("{}".encode("utf-16"), "text in UTF-16; run `iconv"),
        (b"\x1f\x8b", "the compressed data ends early before any text"),
        (b"\x1f\x8b\x08\x00rubbish and more rubbish", "before any text"),
        (gzip.compress(b"", mtime=0), "only blanks"),
        (gzip.compress(b"hello", mtime=0), "text that begins b'hello'"),
    ],
)
def test_other_files_are_refused_in_words(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=words) as caught:
        read_trace(path)

    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"absent\.json: no such file"):
        read_trace(tmp_path / "absent.json")


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is a directory"):
        read_trace(tmp_path)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_gzip_that_ends_early_gives_what_stands_before(tmp_path: Path, share: float) -> None:
    whole = gzip.compress(TEXT)
    path = tmp_path / "cut.json.gz"
    path.write_bytes(whole[: int(len(whole) * share)])

    trace = read_trace(path)

    assert trace.meta.is_truncated
    assert trace.num_events == trace.meta.num_events
    assert trace.start_ns.tolist() == [number * 1000 for number in range(trace.num_events)]
    assert "the compressed data ends early" in trace.meta.notes[0]


def test_damaged_gzip_gives_what_stands_before_or_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(TEXT))
    whole[len(whole) // 2] ^= 0x55
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(whole)

    try:
        trace = read_trace(path)
    except TraceError as err:
        assert re.search("is damaged|not JSON at byte", str(err))  # noqa: PT017  either is right
    else:
        assert trace.meta.is_truncated


def test_gzip_in_many_members_is_one_text(tmp_path: Path) -> None:
    path = tmp_path / "members.json.gz"
    path.write_bytes(
        b"".join(gzip.compress(TEXT[at : at + 999]) for at in range(0, len(TEXT), 999)) + bytes(512)
    )

    trace = read_trace(path)

    assert trace.num_events == len(EVENTS)
    assert not trace.meta.is_truncated


@settings(max_examples=200, deadline=None)
@given(
    content=st.binary(max_size=60),
    head=st.sampled_from([b"", b"{", b"[", b'[{"ph":"X"', b"\x1f\x8b"]),
)
def test_no_content_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, head: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(head + content)

    try:
        trace = read_trace(path)
    except TraceError as err:
        assert str(path) in str(err)  # noqa: PT017  either outcome is right
    else:
        assert trace.num_accounted == trace.meta.num_events


def test_text_after_the_end_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(TEXT + b"\n{}")

    trace = read_trace(path)

    assert trace.num_events == len(EVENTS)
    assert trace.meta.notes == ("text after the end of the JSON is ignored",)


def test_members_of_an_odd_form_count_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(
        b'{"distributedInfo": [1], "deviceProperties": {"a": 1}, "baseTimeNanoseconds": "soon",'
        b'"traceEvents": []}'
    )

    trace = read_trace(path)

    assert trace.meta.rank is None
    assert trace.meta.device_names == ()
    assert trace.meta.notes == (
        "baseTimeNanoseconds is 'soon', expected nanoseconds since 1970; ignored",
    )


@pytest.mark.parametrize(
    "member",
    [
        b'"deviceProperties": ' + b"[" * 20_000 + b"]" * 20_000,
        b'"deviceProperties": [{"name": "\xff"}]',
        b'"distributedInfo": {"rank": "' + b"9" * 5000 + b'"}',
    ],
)
def test_members_that_no_reader_survives_cost_nothing_but_themselves(
    tmp_path: Path, member: bytes
) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(b"{" + member + b', "traceEvents": []}')

    meta = read_trace(path).meta

    assert (meta.rank, meta.device_names) == (None, ())


def test_a_pipe_is_called_one_and_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    os.mkfifo(path)

    with pytest.raises(TraceError, match=r"rank0\.json: it is a pipe or a device"):
        load_traces(path)


def test_what_a_shell_hands_in_as_a_pipe_is_not_called_empty() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, TEXT[:1000])

    with pytest.raises(TraceError, match="it is a pipe or a device"):
        load_traces(f"/dev/fd/{read_end}")

    os.close(write_end)
    os.close(read_end)


def test_a_byte_order_mark_makes_no_file_chakra(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(b'\xef\xbb\xbf{\n "schemaVersion": 1,' + TEXT.partition(b"{")[2])

    assert format_of(path) in PROFILES
    assert load_traces(path)[0].num_events == len(EVENTS)


@pytest.mark.parametrize(("dur", "days"), [(10**15, "11,574"), (10**13, "115")])
def test_an_event_that_outlasts_any_recording_is_refused(
    tmp_path: Path, dur: int, days: str
) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(file_text([{**EVENTS[0], "dur": 9 * 10**12}]))
    assert read_profile(path).duration_ns.tolist() == [9 * 10**15]
    path.write_bytes(file_text([*EVENTS, {**EVENTS[0], "dur": dur}]))

    words = rf"rank0\.json': its event 'op0' lasts {dur:,} us \({days} days\).* 104 days"
    with pytest.raises(TraceError, match=words):
        read_profile(path)
