"""A made program becomes Chakra files, one per rank, that feeders and `load` read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from foretrace.base import Int64s, written_beside
from foretrace.exchange.chakra.collectives import COMM_TYPES
from foretrace.exchange.chakra.messages import metadata_message, write_nodes
from foretrace.exchange.synthesis.observed import Message, Observed, Token
from foretrace.exchange.synthesis.sample import NO_WAIT, Program
from foretrace.trace import (
    CHAKRA_VERSION,
    Attribute,
    Collected,
    CommType,
    NodeType,
    ValueField,
)

_FIRST_ID = 1  # 0 means no node to some readers
_NS_PER_MICRO = 1000
_HOST_STREAMS = 1000  # where streams begin that stand for threads which communicate


def group_of(message: Message, rank: int, num_ranks: int) -> tuple[int, ...]:
    """The ranks that a rank meets: groups as in the source where their number divides."""
    size, stride = message.group_size, message.group_stride
    if message.is_whole or num_ranks % (size * stride):
        return tuple(range(num_ranks))
    first = rank // (size * stride) * size * stride + rank % stride
    return tuple(range(first, first + size * stride, stride))


class Groups:
    """Numbers of groups of ranks, from 1, in order of appearance."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, ...], int] = {}

    def number(self, ranks: tuple[int, ...]) -> int:
        """The number of these ranks' group."""
        return self._number.setdefault(ranks, len(self._number) + 1)

    def write(self, path: Path) -> None:
        """Write them as ASTRA-sim reads them."""
        listed = {str(number): list(ranks) for ranks, number in self._number.items()}
        with written_beside(path) as beside:
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(listed), indent=0))


def write_rank(
    path: Path,
    seen: Observed,
    made: Program,
    *,
    duration_ns: Int64s,
    rank: int,
    num_ranks: int,
    groups: Groups,
) -> None:
    """Write one rank's file."""
    shared = [
        _attributes(token, _message_attributes(token, rank, num_ranks, groups=groups))
        for token in seen.tokens
    ]
    collected = Collected()
    micros = np.round(duration_ns / _NS_PER_MICRO).astype(np.int64).tolist()
    for node, (token, before) in enumerate(
        zip(made.token.tolist(), made.lane_before.tolist(), strict=True)
    ):
        what = seen.tokens[token]
        waits = [before, *made.waits[node]] if before != NO_WAIT else [*made.waits[node]]
        collected.add(
            _FIRST_ID + node,
            what.name,
            NodeType.COMP if what.message is None else NodeType.COMM_COLL,
            data=[_FIRST_ID + one for one in waits],
            duration_micros=micros[node],
            attributes={
                "duration_ns": (ValueField.INT64, int(duration_ns[node])),
                **shared[token],
            },
        )
    metadata = metadata_message(
        CHAKRA_VERSION,
        {"rank": (ValueField.INT32, rank), "num_ranks": (ValueField.INT32, num_ranks)},
    )
    with written_beside(path) as beside, beside.open("wb") as out:
        out.write(metadata)
        write_nodes(out, collected.nodes())


def _attributes(token: Token, message: Mapping[str, Attribute]) -> dict[str, Attribute]:
    told: dict[str, Attribute] = {
        # Readers take communication that is marked as the host's for the call that starts it.
        "is_cpu_op": (ValueField.BOOL, int(not _is_device(token))),
        **_lane(token),
        **message,
    }
    for name, text in (("signature", token.signature), ("operator", token.operator)):
        if text:
            told[name] = (ValueField.STRING, text)
    return told


def _is_device(token: Token) -> bool:
    return token.lane.is_device or token.message is not None


def _lane(token: Token) -> dict[str, Attribute]:
    number = token.lane.place + 1
    if not _is_device(token):
        return {"tid": (ValueField.INT64, number)}
    on_host = 0 if token.lane.is_device else _HOST_STREAMS
    return {"stream": (ValueField.INT64, on_host + number)}


def _message_attributes(
    token: Token, rank: int, num_ranks: int, *, groups: Groups
) -> dict[str, Attribute]:
    message = token.message
    if message is None:
        return {}
    ranks = group_of(message, rank, num_ranks)
    size = max(message.num_bytes, 0)
    if message.kind == "allgather":  # Chakra counts a rank's own share
        size //= max(message.group_size, 1)
    kind = COMM_TYPES.get(message.kind, CommType.ALL_REDUCE)
    return {
        "comm_type": (ValueField.INT64, int(kind)),
        "comm_size": (ValueField.INT64, size),
        "pg_name": (ValueField.STRING, str(groups.number(ranks))),
        "dtype": (ValueField.STRING, message.dtype),
    }
