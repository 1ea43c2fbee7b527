"""Writes Kineto JSON in any style, and strategies for small files of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from foretrace.trace import Trace
from foretrace.trace.read import trace_of
from foretrace.trace.source import OpenFile

Event = dict[str, Any]


@dataclass(frozen=True)
class Raw:
    """A value written exactly so: a number's spelling, or something that is not JSON."""

    text: str


@dataclass(frozen=True)
class Style:
    """How a file is written."""

    colon: str = ": "
    comma: str = ", "
    line: str = "\n  "
    is_ascii: bool = True


def text_of(value: object, style: Style) -> str:
    """A value as JSON."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        members = (
            f"{text_of(str(key), style)}{style.colon}{text_of(member, style)}"
            for key, member in value.items()
        )
        return "{" + style.line + style.comma.join(members) + "}"
    if isinstance(value, list):
        return "[" + style.comma.join(text_of(member, style) for member in value) + "]"
    return json.dumps(value, ensure_ascii=style.is_ascii)


def file_text(
    events: Sequence[object],
    *,
    members: Event | None = None,
    last_members: Event | None = None,
    is_bare: bool = False,
    style: Style | None = None,
) -> bytes:
    """The text of a Kineto file."""
    style = Style() if style is None else style
    listed = list(events)
    whole: object = listed
    if not is_bare:
        whole = {**(members or {}), "traceEvents": listed, **(last_members or {})}
    return text_of(whole, style).encode("utf-8", "surrogatepass" if style.is_ascii else "replace")


def trace_from(pieces: Iterable[bytes], path: Path = Path("rank0.json")) -> Trace:
    """The trace in a text that arrives in these pieces."""
    listed = list(pieces)
    size = sum(len(piece) for piece in listed)
    return trace_of(OpenFile(path, size, size, iter(listed)))


def assert_same(one: Trace, other: Trace) -> None:
    """Every column, string and lane is equal."""
    assert one.strings == other.strings
    for table in (None, "lanes", "collectives", "syncs", "memory", "flows"):
        first, second = (
            trace if table is None else getattr(trace, table) for trace in (one, other)
        )
        for field in fields(first):
            value = getattr(first, field.name)
            if isinstance(value, np.ndarray):
                assert np.array_equal(value, getattr(second, field.name)), field.name


microseconds = st.one_of(
    st.integers(-50, 200),
    st.integers(1_700_000_000_000_000, 1_700_000_000_000_100),
    st.integers(-50_000, 200_000).map(lambda ns: Raw(f"{ns / 1000:.3f}")),
    st.decimals(-100, 100, allow_nan=False, places=6).map(lambda value: Raw(f"{value:f}")),
)
odd_numbers = st.sampled_from(
    [Raw(text) for text in ("NaN", "Infinity", "-Infinity", "null", "true", "1e2", "2.5E-1", "-0")]
    + ["12", "7.5", "x", "", [1], {"a": 1}, 10**30, Raw("1" + "0" * 25), Raw("-1.5e3")]
)
times = st.one_of(microseconds, microseconds, microseconds, odd_numbers)
ids = st.one_of(
    st.integers(-5, 60),
    st.sampled_from([2**32 - 1, 2**31, 2**63, 2**64 - 1, 10**18 - 1]),
    odd_numbers,
)
names = st.one_of(
    st.sampled_from(["aten::mm", "cudaLaunchKernel", "ProfilerStep#3", "[memory]", "", "wait"]),
    st.text(
        st.characters(codec="utf-8", exclude_categories=()) | st.sampled_from('"\\/\n\t\x01{}[],'),
        max_size=8,
    ),
    st.none(),
)
lane_ids = st.one_of(
    st.integers(-3, 8),
    st.sampled_from(["stream 7", "7", "-4", "Spans", "stream x", "PyTorch Profiler", 140123456789]),
    st.none(),
)
nested = st.recursive(
    st.one_of(st.integers(-9, 9), st.booleans(), st.none(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
categories = st.sampled_from(
    ["cpu_op", "user_annotation", "cuda_runtime", "Runtime", "kernel", "Kernel", "gpu_memcpy",
     "gpu_memset", "cuda_sync", "python_function", "gpu_user_annotation", "Trace", "fwdbwd",
     "ac2g", "overhead", "surprise", None]
)  # fmt: skip
shapes = st.lists(st.lists(st.integers(0, 64), max_size=2), max_size=2)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "External id": ids,
        "correlation": ids,
        "Record function id": ids,
        "Sequence number": ids,
        "stream": ids,
        "device": ids,
        "bytes": ids,
        "Bytes": ids,
        "Total Allocated": ids,
        "Total Reserved": ids,
        "Device Type": st.integers(0, 6),
        "Device Id": st.integers(-1, 7),
        "wait_on_stream": ids,
        "wait_on_cuda_event_record_corr_id": ids,
        "wait_on_cuda_event_id": ids,
        "cuda_sync_kind": st.sampled_from(["Stream Sync", "Stream Wait Event", None]),
        "Collective name": st.sampled_from(["allreduce", "_allgather_base", None]),
        "dtype": st.sampled_from(["Half", "Float"]),
        "Process Group Name": st.sampled_from(["0", "51", 7, None]),
        "Process Group ID": st.integers(0, 3),
        "Process Group Description": names,
        "Process Group Ranks": st.sampled_from(["[0, 1]", [0, 1]]),
        "Group size": ids,
        "Seq": ids,
        "In msg nelems": ids,
        "Out msg nelems": ids,
        "Src Rank": ids,
        "Dst Rank": ids,
        "In split size": st.sampled_from(["[]", "[1, 2]"]),
        "Out split size": st.sampled_from(["[]", "[1, 2]"]),
        "Input Dims": st.one_of(shapes, st.none()),
        "Input type": st.lists(names, max_size=2),
        "Input Strides": shapes,
        "Concrete Inputs": st.lists(names, max_size=2),
        "grid": st.one_of(st.lists(st.integers(1, 9), max_size=3), st.just("grid(100,)")),
        "block": st.lists(st.integers(1, 9), max_size=3),
        "something else": nested,
        "ts": ids,
        "Call stack": names,
    },
)


@st.composite
def events(draw: st.DrawFn, phases: str = "XXXXXXXXsfiMBECtb") -> Event:
    """One record, its keys in any order."""
    event: Event = {
        "ph": draw(st.sampled_from(phases)),
        "cat": draw(categories),
        "name": draw(names),
        "pid": draw(lane_ids),
        "tid": draw(lane_ids),
        "ts": draw(times),
        "dur": draw(times),
        "id": draw(st.one_of(st.integers(0, 3), st.just("0x1f"), st.none())),
        "args": draw(st.one_of(arguments, arguments, arguments, st.none(), st.just([1]))),
        "other": draw(nested),
    }
    left_out = draw(st.sets(st.sampled_from(sorted(event)), max_size=2) | st.just(set()))
    order = draw(st.permutations(sorted(set(event) - left_out)))
    return {key: event[key] for key in order}


styles = st.builds(
    Style,
    colon=st.sampled_from([":", ": ", " :\n\t"]),
    comma=st.sampled_from([",", ", ", "\r\n,\n"]),
    line=st.sampled_from(["", "\n    "]),
    is_ascii=st.booleans(),
)
records = st.one_of(events(), events(), events(), events(), st.sampled_from([7, None, "x"]))


@st.composite
def files(draw: st.DrawFn, max_events: int = 8) -> bytes:
    """A small file."""
    first: Event = {}
    last: Event = {}
    info = {"backend": "nccl", "rank": draw(st.integers(0, 7)), "world_size": 8}
    base = draw(st.sampled_from([{}, {"baseTimeNanoseconds": 1_711_964_646_000_000_000}]))
    members = {"schemaVersion": 1, "distributedInfo": info, **base, "more": draw(nested)}
    for name, value in members.items():
        (first if draw(st.booleans()) else last)[name] = value
    return file_text(
        draw(st.lists(records, max_size=max_events)),
        members=first,
        last_members=last,
        is_bare=draw(st.integers(0, 4)) == 0,
        style=draw(styles),
    )
