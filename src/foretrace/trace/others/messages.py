"""Protobuf messages of other profilers, stated as their fields, and read by protobuf's own library.

Only the fields that are read are stated; protobuf skips the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from foretrace.base import TraceError
from foretrace.trace.source import whole_bytes

Field = tuple[int, str]  # its number, and its type: "int64", "bytes", or a message; "*" of many
Messages = Mapping[str, Mapping[str, Field]]

_SCALARS = {
    "double": 1,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "bool": 8,
    "bytes": 12,
    "uint32": 13,
    "sint64": 18,
}  # FieldDescriptorProto.Type; texts are bytes: they may be no UTF-8
_MESSAGE = 11
_ONE, _MANY = 1, 3  # FieldDescriptorProto.Label
_MOST_BYTES = 2**31 - 1  # of a protobuf message


@cache
def _classes(package: str, fields: tuple[tuple[str, tuple[tuple[str, Field], ...]], ...]) -> Any:
    # loaded by what reads such files alone
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    for name, members in fields:
        message = file.message_type.add(name=name)
        for key, (number, kind) in members:
            field = message.field.add(name=key, number=number)
            field.label = _MANY if kind.startswith("*") else _ONE
            one = kind.removeprefix("*")
            field.type = _SCALARS.get(one, _MESSAGE)
            if field.type == _MESSAGE:
                field.type_name = f".{package}.{one}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClassesForFiles([file.name], pool)


def message_classes(package: str, messages: Messages) -> Any:
    """The classes of these messages, by `PACKAGE.NAME`."""
    fields = tuple((name, tuple(members.items())) for name, members in messages.items())
    return _classes(package, fields)


def read_message(path: Path, package: str, messages: Messages) -> Any:
    """A file that is one message, the first of `messages`.

    Raises:
        TraceError: if it cannot be read, is damaged or cut off, or larger than protobuf allows.
    """
    wanted = message_classes(package, messages)[f"{package}.{next(iter(messages))}"]
    text = whole_bytes(path, _MOST_BYTES, instead="record fewer steps")
    return _decoded(wanted, text, path)


def message_text(raw: bytes) -> str:
    """The text of a message's field, what is no UTF-8 in it replaced."""
    return raw.decode("utf-8", "replace")


def _decoded(wanted: Any, text: bytes, path: Path) -> Any:
    from google.protobuf.message import DecodeError  # as above

    message = wanted()
    try:
        message.ParseFromString(text)
    except DecodeError as err:
        raise TraceError(
            f"cannot read {path}: its protobuf is damaged or cut off ({err}); record or copy it "
            "again"
        ) from err
    return message
