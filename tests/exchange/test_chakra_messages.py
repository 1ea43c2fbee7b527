"""Messages are read and written as protobuf's own library does."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.exchange.chakra.messages import copied_metadata, write_nodes
from foretrace.trace import (
    ChakraTrace,
    ValueField,
    chakra_batches,
    listed_numbers,
    read_chakra,
)
from tests.oracles import chakra as oracle

TEXT = st.text(max_size=9)
U64 = st.integers(0, 2**64 - 1)
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": U64,
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "fixed64": U64,
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "string": TEXT,
    "bytes": st.binary(max_size=9),
}


@st.composite
def attributes(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(sorted(FIELDS)))
    one = oracle.AttributeProto(name=draw(TEXT), doc_string=draw(TEXT))
    if draw(st.booleans()):
        setattr(one, f"{kind}_val", draw(FIELDS[kind]))
    else:
        values = draw(st.lists(FIELDS[kind], max_size=3))
        getattr(one, f"{kind}_list").SetInParent()
        getattr(one, f"{kind}_list").values.extend(values)
    return one


@st.composite
def nodes(draw: st.DrawFn) -> Any:
    node = oracle.Node(
        id=draw(U64),
        name=draw(TEXT),
        type=draw(st.integers(0, 7)),
        ctrl_deps=draw(st.lists(U64, max_size=3)),
        data_deps=draw(st.lists(U64, max_size=3)),
        start_time_micros=draw(U64),
        duration_micros=draw(U64),
        attr=draw(st.lists(attributes(), max_size=4)),
    )
    for side in ("inputs", "outputs"):
        if draw(st.booleans()):
            getattr(node, side).SetInParent()
            getattr(node, side).values = draw(TEXT)
            getattr(node, side).types = draw(TEXT)
    return node


def file_of(folder: Path, *messages: Any) -> Path:
    path = folder / "job.3.et"
    path.write_bytes(oracle.framed([oracle.GlobalMetadata(version="1.0.0"), *messages]))
    return path


def written(trace: ChakraTrace) -> bytes:
    out = io.BytesIO()
    out.write(copied_metadata(trace.metadata))
    write_nodes(out, trace.nodes)
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chakra")


@pytest.mark.compiled
@settings(max_examples=40)  # seconds without compilation
@given(listed=st.lists(nodes(), max_size=5))
def test_a_file_that_is_read_and_written_is_the_same_byte_by_byte(
    folder: Path, listed: list[Any]
) -> None:
    path = file_of(folder, *listed)

    trace = read_chakra(path)

    assert written(trace) == path.read_bytes()


@pytest.mark.compiled
@settings(max_examples=40)  # seconds without compilation
@given(listed=st.lists(nodes(), min_size=1, max_size=5))
def test_columns_hold_what_the_library_reads(folder: Path, listed: list[Any]) -> None:
    read = read_chakra(file_of(folder, *listed)).nodes

    assert [number % 2**64 for number in read.node_id.tolist()] == [one.id for one in listed]
    assert read.kind.tolist() == [one.type for one in listed]
    for row, one in enumerate(listed):
        assert read.texts[int(read.name[row])] == one.name
        first, last = read.first_data[row : row + 2]
        assert [number % 2**64 for number in read.data[first:last].tolist()] == list(one.data_deps)
        assert (read.values[row, 0] >= 0) == one.HasField("inputs")
        assert np.diff(read.attributes.first)[row] == len(one.attr)


def test_attributes_are_found_by_name_whatever_their_type(folder: Path) -> None:
    node = oracle.Node(id=1)
    node.attr.add(name="comm_size", int64_val=-5)
    node.attr.add(name="ratio", double_val=2.5)
    node.attr.add(name="stream", string_val="7")
    node.attr.add(name="pg_name", string_val="tp")
    node.attr.add(name="dims").int64_list.values.extend([3, -1])

    read = read_chakra(file_of(folder, oracle.Node(id=0), node)).nodes

    assert read.numbers("comm_size", default=9).tolist() == [9, -5]
    assert read.numbers("ratio").tolist() == [0, 2]
    assert read.numbers("stream", -1).tolist() == [-1, 7]
    assert read.texts[int(read.text_numbers("pg_name")[1])] == "tp"
    assert listed_numbers(read.texts.bytes_of(int(read.list_numbers("dims")[1]))) == [3, -1]
    assert read.has("dims").tolist() == [False, True]
    assert read.attributes.field.tolist()[-1] == ValueField.INT64_LIST


def test_a_list_whose_length_reaches_beyond_it_ends_with_it() -> None:
    assert listed_numbers(bytes([0x0A, 0x7F, 1, 2])) == [1, 2]
    assert listed_numbers(bytes([0x0A, 12, *[0xFF] * 11, 0x7F])) == [-1]


def test_batches_hold_all_nodes_once(folder: Path) -> None:
    path = file_of(folder, *(oracle.Node(id=number, name=f"n{number % 3}") for number in range(10)))

    found = list(chakra_batches(path, 4))

    assert [len(batch) for batch in found] == [4, 4, 2]
    assert [number for batch in found for number in batch.node_id.tolist()] == list(range(10))


@pytest.mark.large
def test_messages_longer_than_the_buffer_are_read(folder: Path) -> None:
    path = file_of(folder, oracle.Node(id=1, name="x" * 3_000_000), oracle.Node(id=2, name="y"))

    read = read_chakra(path).nodes

    assert len(read.texts.bytes_of(int(read.name[0]))) == 3_000_000
    assert read.node_id.tolist() == [1, 2]


def test_a_cut_off_file_keeps_what_stands_before_and_says_so(folder: Path) -> None:
    path = file_of(folder, oracle.Node(id=1, name="kept"), oracle.Node(id=2, name="lost"))
    path.write_bytes(path.read_bytes()[:-3])

    trace = read_chakra(path)

    assert trace.nodes.node_id.tolist() == [1]
    assert trace.is_truncated
    assert "ends inside a message" in trace.notes[0]


def test_fields_of_a_later_schema_are_counted(folder: Path) -> None:
    later = oracle.Node(id=1).SerializeToString() + b"\x80\x02\x05"
    path = folder / "later.et"
    head = oracle.framed([oracle.GlobalMetadata(version="9.0.0")])
    path.write_bytes(head + oracle.varint(len(later)) + later)

    trace = read_chakra(path)

    assert trace.nodes.num_unknown == 1
    assert "1 fields of a later schema" in trace.notes[0]


@pytest.mark.parametrize("pack", [lambda text: text, gzip.compress], ids=["plain", "gzip"])
def test_plain_and_gzip_are_read(folder: Path, pack: Callable[[bytes], bytes]) -> None:
    path = file_of(folder, oracle.Node(id=1, name="a"))
    path.write_bytes(pack(path.read_bytes()))

    trace = read_chakra(path)

    assert (trace.rank, trace.version, len(trace.nodes)) == (3, "1.0.0", 1)
