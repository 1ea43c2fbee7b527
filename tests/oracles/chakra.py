"""Chakra's schema, declared to protobuf's own library: what it reads and writes is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

_T = descriptor_pb2.FieldDescriptorProto
_NUMBERS = {
    "double": _T.TYPE_DOUBLE, "float": _T.TYPE_FLOAT, "int32": _T.TYPE_INT32,
    "int64": _T.TYPE_INT64, "uint32": _T.TYPE_UINT32, "uint64": _T.TYPE_UINT64,
    "sint32": _T.TYPE_SINT32, "sint64": _T.TYPE_SINT64, "fixed32": _T.TYPE_FIXED32,
    "fixed64": _T.TYPE_FIXED64, "sfixed32": _T.TYPE_SFIXED32, "sfixed64": _T.TYPE_SFIXED64,
    "bool": _T.TYPE_BOOL, "string": _T.TYPE_STRING, "bytes": _T.TYPE_BYTES,
}  # fmt: skip
PACKAGE = "ChakraProtoMsg"


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")
    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    attribute.field.add(name="name", number=1, type=_T.TYPE_STRING, label=1)
    attribute.field.add(name="doc_string", number=2, type=_T.TYPE_STRING, label=1)
    for at, (name, kind) in enumerate(_NUMBERS.items()):
        attribute.field.add(
            name=f"{name}_val", number=3 + 2 * at, type=kind, label=1, oneof_index=0
        )
        attribute.field.add(
            name=f"{name}_list", number=4 + 2 * at, type=_T.TYPE_MESSAGE, label=1, oneof_index=0,
            type_name=f".{PACKAGE}.{name}_list",
        )  # fmt: skip
        listed = file.message_type.add(name=f"{name}_list")
        listed.field.add(name="values", number=1, type=kind, label=3)
    values = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), 1):
        values.field.add(name=name, number=number, type=_T.TYPE_STRING, label=1)
    node = file.message_type.add(name="Node")
    plain = {"id": 1, "type": 3, "start_time_micros": 6, "duration_micros": 7}
    for name, number in plain.items():
        # The type is an enumeration, which is written as a number.
        kind = _T.TYPE_UINT32 if name == "type" else _T.TYPE_UINT64
        node.field.add(name=name, number=number, type=kind, label=1)
    node.field.add(name="name", number=2, type=_T.TYPE_STRING, label=1)
    for number, name in ((4, "ctrl_deps"), (5, "data_deps")):
        node.field.add(name=name, number=number, type=_T.TYPE_UINT64, label=3)
    for number, name in ((8, "inputs"), (9, "outputs")):
        node.field.add(
            name=name, number=number, type=_T.TYPE_MESSAGE, label=1, type_name=f".{PACKAGE}.IOInfo"
        )
    metadata = file.message_type.add(name="GlobalMetadata")
    metadata.field.add(name="version", number=1, type=_T.TYPE_STRING, label=1)
    for message, number in ((node, 10), (metadata, 2)):
        message.field.add(
            name="attr", number=number, type=_T.TYPE_MESSAGE, label=3,
            type_name=f".{PACKAGE}.AttributeProto",
        )  # fmt: skip
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


Node = _class("Node")
GlobalMetadata = _class("GlobalMetadata")
AttributeProto = _class("AttributeProto")


def varint(value: int) -> bytes:
    """A number in 7 bits a byte."""
    low, rest = value % 128, value // 128
    return bytes([low + 128]) + varint(rest) if rest else bytes([low])


def framed(messages: list[Any]) -> bytes:
    """Messages one after the other, each behind its length."""
    texts = [message.SerializeToString() for message in messages]
    return b"".join(varint(len(text)) + text for text in texts)


def messages_in(text: bytes) -> Iterator[bytes]:
    """The messages of a file."""
    at = 0
    while at < len(text):
        length = shift = 0
        while True:
            byte = text[at]
            at += 1
            length |= (byte % 128) << shift
            shift += 7
            if byte < 128:
                break
        yield text[at : at + length]
        at += length


def parsed(text: bytes) -> tuple[Any, list[Any]]:
    """The metadata and the nodes of a file."""
    first, *rest = messages_in(text)
    return GlobalMetadata.FromString(first), [Node.FromString(one) for one in rest]
