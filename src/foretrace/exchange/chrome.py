"""The Chrome trace event format: JSON that Perfetto, chrome://tracing and scripts read.

Text is built column by column in chunks, so that memory stays bounded and a million slices take
seconds. Times are in microseconds with three decimals, so nanoseconds are exact; Perfetto 52
to 55 keep them all.

Source: "Trace Event Format", Google, 2016 (phases X, M, C, s and f).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import msgspec
import numpy as np
import polars as pl

from foretrace.base import NS_PER_US, Int64s
from foretrace.exchange.tracks import MISSING, Content, Flows, Layout, SliceRows, Values

# Slices per chunk: about 40 MB of text in memory at 200 bytes a slice.
CHUNK = 200_000


def write_chrome(out: IO[bytes], layout: Layout, contents: tuple[Content, ...]) -> None:
    """Write everything as one JSON object."""
    out.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
    out.write(_metadata(layout).encode())
    heads = pl.Series(
        [f'"pid":{place.process + 1},"tid":{index + 1}' for index, place in
         enumerate(layout.places)],
        dtype=pl.String,
    )  # fmt: skip
    texts = pl.Series([_json_text(text) for text in layout.texts], dtype=pl.String)
    num_flows = 0
    for content in contents:
        for rows in content.rows:
            for first in range(0, len(rows), CHUNK):
                part = slice(first, first + CHUNK)
                out.write(_slice_text(rows, part, (heads, texts)).encode())
        for values in content.values:
            out.write(_counter_text(values).encode())
        for flows in content.flows:
            for text in _flow_texts(flows, content, (heads, num_flows)):
                out.write(text.encode())
            num_flows += len(flows.source)
    out.write(b"\n]}\n")


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _metadata(layout: Layout) -> str:
    """Events that name and order processes and their tracks."""
    events: list[object] = []
    for index, process in enumerate(layout.processes):
        pid = index + 1
        events += [
            _named("process_name", (pid, 0), {"name": process.name}),
            _named("process_sort_index", (pid, 0), {"sort_index": process.number}),
        ]
    for index, place in enumerate(layout.places):
        where = (place.process + 1, index + 1)
        events += [
            _named("thread_name", where, {"name": place.name}),
            _named("thread_sort_index", where, {"sort_index": place.order}),
        ]
    return ",\n".join(_json_text(event) for event in events)


def _named(name: str, where: tuple[int, int], args: dict[str, object]) -> dict[str, object]:
    pid, tid = where
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _slice_text(rows: SliceRows, part: slice, shared: tuple[pl.Series, pl.Series]) -> str:
    """The slices as JSON text, each with a comma before it."""
    heads, texts = shared
    frame = pl.DataFrame(
        {
            "head": heads.gather(rows.place[part]),
            "name": texts.gather(rows.name[part]),
            "start": rows.start_ns[part],
            "duration": rows.end_ns[part] - rows.start_ns[part],
            "args": _argument_text(rows, part, texts),
        }
    )
    lines = frame.select(
        pl.concat_str(
            pl.lit('{"ph":"X",'), "head", pl.lit(',"name":'), "name",
            pl.lit(',"ts":'), _microseconds("start"),
            pl.lit(',"dur":'), _microseconds("duration"), "args", pl.lit("}"),
        )
    ).to_series()  # fmt: skip
    return ",\n" + ",\n".join(lines.to_list())


def _argument_text(rows: SliceRows, part: slice, texts: pl.Series) -> pl.Series:
    """`,"args":{...}` of each row, or nothing."""
    nothing = pl.repeat("", len(rows.place[part]), dtype=pl.String, eager=True)
    if not rows.arguments:
        return nothing
    columns = {}
    for argument in rows.arguments:
        value = argument.value[part]
        is_there = value != MISSING
        text = (
            texts.gather(np.where(is_there, value, 0))
            if argument.is_text
            else pl.Series(value).cast(pl.String)
        )
        whole = pl.select(
            pl.when(pl.lit(pl.Series(is_there)))
            .then(pl.concat_str(pl.lit(f"{_json_text(argument.key)}:"), text, pl.lit(",")))
            .otherwise(pl.lit(""))
        ).to_series()
        columns[argument.key] = whole
    joined = pl.DataFrame(columns).select(
        pl.concat_str(pl.all()).str.strip_suffix(",").alias("args")
    )
    return joined.select(
        pl.when(pl.col("args") != "")
        .then(pl.concat_str(pl.lit(',"args":{'), "args", pl.lit("}")))
        .otherwise(pl.lit(""))
    ).to_series()


def _counter_text(values: Values) -> str:
    if not len(values.at_ns):
        return ""
    head = f'{{"ph":"C","pid":{values.process + 1},"tid":0,"name":{_json_text(values.name)},"ts":'
    # Perfetto names the counter by the event and this key: "busy %".
    key = f',"args":{{{_json_text(values.unit or "value")}:'
    lines = (
        pl.DataFrame({"at": values.at_ns, "value": values.value})
        .select(
            pl.concat_str(
                pl.lit(head), _microseconds("at"), pl.lit(key), "value",
                pl.lit("}}"),
            )
        )
        .to_series()
    )  # fmt: skip
    return ",\n" + ",\n".join(lines.to_list())


def _microseconds(column: str) -> pl.Expr:
    """Nanoseconds as text in microseconds with three decimals, exactly."""
    value_ns = pl.col(column)
    return pl.concat_str(
        value_ns // NS_PER_US, pl.lit("."), (value_ns % NS_PER_US).cast(pl.String).str.zfill(3)
    )


def _flow_texts(flows: Flows, content: Content, shared: tuple[pl.Series, int]) -> Iterator[str]:
    """A start and a finish of each flow, at the beginning of the slices that it joins."""
    heads, first_id = shared
    place = np.concatenate([rows.place for rows in content.rows])
    start_ns = np.concatenate([rows.start_ns for rows in content.rows])
    category = _json_text(flows.category)
    for first in range(0, len(flows.source), CHUNK):
        part = slice(first, first + CHUNK)
        flow_id = first_id + first + np.arange(len(flows.source[part]))
        for phase, row in (('"s"', flows.source[part]), ('"f","bp":"e"', flows.target[part])):
            yield _flow_text((phase, category), heads, (place[row], flow_id, start_ns[row]))


def _flow_text(
    what: tuple[str, str], heads: pl.Series, columns: tuple[Int64s, Int64s, Int64s]
) -> str:
    phase, category = what
    place, flow_id, at_ns = columns
    frame = pl.DataFrame({"head": heads.gather(place), "id": flow_id, "at": at_ns})
    lines = frame.select(
        pl.concat_str(
            pl.lit(f'{{"ph":{phase},'), "head",
            pl.lit(f',"cat":{category},"name":{category},"id":'), "id",
            pl.lit(',"ts":'), _microseconds("at"), pl.lit("}"),
        )
    ).to_series()  # fmt: skip
    return ",\n" + ",\n".join(lines.to_list())
