"""By which first text Chakra's forms are told."""

from __future__ import annotations

import re

_MOST_VARINT_BYTES = 5  # of the length of a message
# A protobuf file may begin with the same bracket, as the length of its metadata.
_JSON = re.compile(rb'\s*\{\s*"')


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a Chakra protobuf file.

    It begins with the length of its metadata message, whose first field is a version string
    (field 1) or a list of attributes (field 2).
    """
    if _JSON.match(head):
        return False
    length = shift = at = 0
    for byte in head[:_MOST_VARINT_BYTES]:
        length |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 1 << 7:
            break
    tag, inner_length = head[at : at + 2] if len(head) > at + 1 else (0, 0)
    if tag not in (0x0A, 0x12) or not 0 < inner_length < length:
        return False
    inner = head[at + 2 : at + 2 + inner_length]
    return b"schema" in inner or all(chr(byte) in "0123456789." for byte in inner)


def recognises_feeder(head: bytes) -> bool:
    """Whether a file that begins so is of the feeder's own form."""
    return bool(_JSON.match(head)) and b'"workload_graph"' in head


def recognises_jsonized(head: bytes) -> bool:
    """Whether a file that begins so is what the jsonizer prints."""
    return bool(_JSON.match(head)) and b'"type": "' in head and b'_NODE"' in head
