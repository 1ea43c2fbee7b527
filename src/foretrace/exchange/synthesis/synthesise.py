"""`synthesise`: from graphs, Chakra files of a job that never ran, and how alike they are.

The program is a walk through the observed sequences: after the last `order` tokens comes one of
the nodes that followed the same tokens somewhere, with what that node waited for. Where a context
was never followed by anything, a shorter one decides.
"""

from __future__ import annotations

from collections import defaultdict
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
from foretrace.exchange.synthesis.observed import (
    Closeness,
    LaneRole,
    Message,
    Observed,
    Token,
    closeness,
    observed,
)
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

NO_WAIT = -1

_Followers = dict[tuple[int, ...], list[int]]

DEFAULT_ORDER = 3  # tokens that decide on the next
_MOST_ORDER = 100
_MOST_RANKS = 1 << 17  # each is a file; the largest published job ran on about 100,000 devices
_BYTES_PER_NODE = 2_000  # made, written and read again
_FIRST_ID = 1  # 0 means no node to some readers
_HOST_STREAMS = 1000  # where streams begin that stand for threads which communicate


@dataclass(frozen=True)
class SampledProgram:
    """What every rank of the made job runs."""

    token: Int64s  # int64[nodes], position in `Observed.tokens`
    lane_before: Int64s  # int64[nodes], the node before on the same lane; NO_WAIT
    waits: tuple[tuple[int, ...], ...]  # of each node, nodes of other lanes
    drawn_rank: Int64s  # int64[nodes], observed rank that each was drawn from
    standing: Int64s  # int64[nodes], how many of that rank's nodes of the token took less


def program(
    seen: Observed, num_nodes: int, *, order: int, rng: np.random.Generator
) -> SampledProgram:
    """Draw a program of so many nodes."""
    followers = [_followers(seen, length) for length in range(order + 1)]
    draws = rng.random(num_nodes).tolist()
    context: tuple[int, ...] = ()
    tokens: list[int] = []
    occurrences: list[int] = []
    before: list[int] = []
    waits: list[tuple[int, ...]] = []
    on_lane: dict[LaneRole, list[int]] = defaultdict(list)
    for node, draw in enumerate(draws):
        after = _after(followers, context)
        occurrence = after[int(draw * len(after))]
        token = seen.token[occurrence]
        lane = seen.tokens[token].lane
        wanted = seen.waits[occurrence]
        waits.append(
            tuple(
                on_lane[other][-ago]
                for other, ago in zip(wanted.lanes, wanted.ago, strict=True)
                if len(on_lane[other]) >= ago
            )
        )
        before.append(on_lane[lane][-1] if on_lane[lane] else NO_WAIT)
        on_lane[lane].append(node)
        tokens.append(token)
        occurrences.append(occurrence)
        context = (*context, token)[-order:] if order else ()
    drawn = np.array(occurrences, np.int64)
    return SampledProgram(
        token=np.array(tokens, np.int64),
        lane_before=np.array(before, np.int64),
        waits=tuple(waits),
        drawn_rank=np.searchsorted(seen.begins, drawn, side="right") - 1,
        standing=_standings(seen, drawn),
    )


def _followers(seen: Observed, length: int) -> _Followers:
    """Nodes that follow each sequence of so many tokens; the first of ranks follow nothing."""
    found: _Followers = defaultdict(list)
    for rank in range(seen.num_ranks):
        begin, end = seen.begins[rank], seen.begins[rank + 1]
        for node in range(begin + length, end):
            found[tuple(seen.token[node - length : node])].append(node)
        if length == 0 and begin < end:
            found[()].append(begin)
    return dict(found)


def _after(followers: list[_Followers], context: tuple[int, ...]) -> list[int]:
    for length in range(min(len(context), len(followers) - 1), 0, -1):
        found = followers[length].get(context[-length:])
        if found:
            return found
    return followers[0][()]


def durations(seen: Observed, made: SampledProgram, rng: np.random.Generator) -> Int64s:
    """One rank's durations in ns, int64[nodes].

    Every node was drawn from an observed one, which took long or short among its rank's nodes of
    that token. Each rank takes the duration that stands there among some observed rank's nodes, so
    that what takes long does so on all ranks at once, as it did where one host made it wait.
    """
    num_tokens = len(seen.tokens)
    key, by_key = _keys(seen)
    first = np.searchsorted(key[by_key], np.arange(seen.num_ranks * num_tokens + 1))
    num_seen = np.diff(first)
    wanted = rng.integers(seen.num_ranks, size=len(made.token)) * num_tokens + made.token
    # A rank that never did it gives way to the one that the node was drawn from.
    own = made.drawn_rank * num_tokens + made.token
    wanted = np.where(num_seen[wanted] > 0, wanted, own)
    drawn = first[wanted] + made.standing * num_seen[wanted] // num_seen[own]
    chosen: Int64s = np.array(seen.duration_ns, np.int64)[by_key[drawn]]
    return chosen


def _standings(seen: Observed, occurrences: Int64s) -> Int64s:
    """How many nodes of the same rank and token took less than each of these, int64[nodes]."""
    key, by_key = _keys(seen)
    standing = np.empty(len(key), np.int64)
    standing[by_key] = np.arange(len(key)) - np.searchsorted(key[by_key], key[by_key])
    chosen: Int64s = standing[occurrences]
    return chosen


def _keys(seen: Observed) -> tuple[Int64s, Int64s]:
    """Each node's rank and token as one number; all nodes by that, then by duration."""
    of_rank = np.repeat(np.arange(seen.num_ranks), np.diff(seen.begins))
    key = of_rank * len(seen.tokens) + np.array(seen.token, np.int64)
    return key, np.lexsort((np.array(seen.duration_ns, np.int64), key))


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
