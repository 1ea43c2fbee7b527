"""`synthesise`: from graphs, Chakra files of a job that never ran, and how alike they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from foretrace.answer import Answer, Told
from foretrace.base import (
    NS_PER_US,
    CollectiveKind,
    GraphError,
    Int64s,
    check_fits,
    write_whole,
    written_beside,
    written_together,
)
from foretrace.exchange.chakra.messages import metadata_message, write_nodes
from foretrace.exchange.synthesis.closeness import Closeness, closeness
from foretrace.exchange.synthesis.observed import Message, Observed, Token, observed
from foretrace.exchange.synthesis.sample import NO_WAIT, SampledProgram, durations, program
from foretrace.graph import ExecutionGraph, chakra_recording
from foretrace.trace import (
    CHAKRA_VERSION,
    COMM_TYPES,
    Attribute,
    Collected,
    CommType,
    NodeType,
    ValueField,
    read_chakra,
)

DEFAULT_ORDER = 3  # tokens that decide on the next
_MOST_ORDER = 100
_MOST_RANKS = 1 << 17  # each is a file; the largest published job ran on about 100,000 devices
_BYTES_PER_NODE = 2_000  # made, written and read again
_FIRST_ID = 1  # 0 means no node to some readers
_HOST_STREAMS = 1000  # where streams begin that stand for threads which communicate


@dataclass(frozen=True, repr=False)
class Synthesised(Answer):
    """What was made."""

    paths: tuple[Path, ...]  # by rank
    groups_path: Path
    num_nodes: int  # per rank
    num_tokens: int  # different kinds of node in the source
    closeness: Closeness | None  # None if it was not asked for

    @property
    def headline(self) -> str:
        """What was written, and how near it comes."""
        more = f" to {self.paths[-1].name}" if len(self.paths) > 1 else ""
        near = "" if self.closeness is None else f"; {self.closeness.headline}"
        return (
            f"wrote {self.paths[0]}{more}: {self.num_nodes:,} nodes per rank of "
            f"{self.num_tokens:,} kinds{near}"
        )

    def parts(self) -> tuple[Told, ...]:
        """Every measure of closeness; none if it was not asked for."""
        return () if self.closeness is None else self.closeness.parts()


def synthesise(
    graphs: Sequence[ExecutionGraph],
    prefix: Path,
    *,
    num_nodes: int,
    num_ranks: int,
    seed: int = 0,
    order: int = DEFAULT_ORDER,
    is_compared: bool = True,
) -> Synthesised:
    """Learn from graphs, and write a job like them of any length and number of ranks.

    Args:
        graphs: what to learn from, of one or many jobs.
        prefix: folder and first part of the files' names.
        num_nodes: nodes per rank.
        num_ranks: ranks; all run one program, each with durations of its own.
        seed: the same seed makes the same files.
        order: how many nodes back decide on the next one: more is nearer to the source, and
            repeats longer pieces of it.
        is_compared: whether to say how near the made job comes to its source.

    Raises:
        GraphError: if there is nothing in the graphs to learn from.
        ValueError: if a number is out of range.
    """
    if num_nodes < 1 or num_ranks < 1 or order < 0:
        raise ValueError(
            f"num_nodes and num_ranks must be at least 1 and order at least 0, got {num_nodes}, "
            f"{num_ranks} and {order}"
        )
    if num_ranks > _MOST_RANKS or order > _MOST_ORDER:
        raise GraphError(
            f"cannot make {num_ranks:,} ranks by {order:,} nodes back: at most {_MOST_RANKS:,} and "
            f"{_MOST_ORDER} are expected"
        )
    check_fits(
        num_nodes * _BYTES_PER_NODE,
        f"a job of {num_nodes:,} nodes per rank",
        advice="ask for fewer nodes",
    )
    seen = observed(graphs)
    made = program(seen, num_nodes, order=order, rng=np.random.default_rng((seed, 0)))
    groups = Groups()
    paths = []
    with written_together():
        for rank in range(num_ranks):
            path = prefix.with_name(f"{prefix.name}.{rank}.et")
            write_rank(
                path,
                seen,
                made,
                duration_ns=durations(seen, made, np.random.default_rng((seed, 1, rank))),
                rank=rank,
                num_ranks=num_ranks,
                groups=groups,
            )
            paths.append(path)
        groups_path = prefix.with_name(f"{prefix.name}.groups.json")
        groups.write(groups_path)
    return Synthesised(
        tuple(paths),
        groups_path,
        num_nodes,
        len(seen.tokens),
        closeness(seen, _read_again(paths)) if is_compared else None,
    )


def _read_again(paths: Sequence[Path]) -> Observed:
    """What the written files show to whoever reads them."""
    return observed([chakra_recording([read_chakra(path) for path in paths]).graph])


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
        write_whole(path, msgspec.json.format(msgspec.json.encode(listed), indent=0))


def write_rank(
    path: Path,
    seen: Observed,
    made: SampledProgram,
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
    micros = np.round(duration_ns / NS_PER_US).astype(np.int64).tolist()
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
    if message.kind is CollectiveKind.ALL_GATHER:  # Chakra counts a rank's own share
        size //= max(message.group_size, 1)
    kind = COMM_TYPES.get(message.kind, CommType.ALL_REDUCE)
    return {
        "comm_type": (ValueField.INT64, int(kind)),
        "comm_size": (ValueField.INT64, size),
        "pg_name": (ValueField.STRING, str(groups.number(ranks))),
        "dtype": (ValueField.STRING, message.dtype),
    }
