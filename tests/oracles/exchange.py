"""The loops of the exchange floor by their definitions, on plain lists."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]
COUNTER = 4


def sublanes(lanes: Sequence[int], spans: Sequence[Span]) -> list[int]:
    """First sublane of its lane on which each span overlaps none before it."""
    found: list[int] = []
    for row, (start, _) in enumerate(spans):
        taken = {
            found[other]
            for other in range(row)
            if lanes[other] == lanes[row] and spans[other][1] > start
        }
        found.append(min(set(range(len(taken) + 1)) - taken))
    return found


def varint(value: int) -> bytes:
    """A number in 7 bits a byte, negative ones as their 64-bit complement."""
    value %= 2**64
    low, rest = value % 128, value // 128
    return bytes([low + 128]) + varint(rest) if rest else bytes([low])


def number(field: int, value: int) -> bytes:
    """A field with a number in it."""
    return varint(field * 8) + varint(value)


def message(field: int, content: bytes) -> bytes:
    """A field with a message in it, its length always in three bytes."""
    length = len(content)
    digits = bytes([length % 128 + 128, length // 128 % 128 + 128, length // 128**2])
    return varint(field * 8 + 2) + digits + content


def fixed(field: int, value: int) -> bytes:
    """A field with eight bytes in it."""
    return varint(field * 8 + 1) + (value % 2**64).to_bytes(8, "little")


def packets(
    events: Sequence[tuple[int, ...]],
    arguments: Sequence[Sequence[tuple[int, int, int]]],
    flows: Sequence[Sequence[tuple[int, int]]],
) -> bytes:
    """One TracePacket per event, with its arguments and flows."""
    return b"".join(
        _packet(event, own, ends) for event, own, ends in zip(events, arguments, flows, strict=True)
    )


def _packet(
    event: tuple[int, ...],
    arguments: Sequence[tuple[int, int, int]],
    flows: Sequence[tuple[int, int]],
) -> bytes:
    at, kind, track, name, value = event
    body = number(9, kind) + number(11, track)
    body += number(10, name) if name else b""
    body += fixed(44, value) if kind == COUNTER else b""
    for key, is_text, content in arguments:
        body += message(4, number(1, key) + number(17 if is_text else 4, content))
    for flow, ends in flows:
        body += fixed(48 if ends else 47, flow)
    return message(1, number(8, at) + number(10, 1) + number(13, 2) + message(11, body))
