"""What can be drawn: spans and values over time, in words of no file format.

A caller hands `Slices` and `Counter`s to `write_trace`, which puts them beside the timeline they
belong to. Inside this folder a timeline itself becomes `SliceRows` on `Layout.tracks`; each writer
turns those into its own bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.graph import NO_NODE

MISSING = np.iinfo(np.int64).min  # an argument that this row does not have


@dataclass(frozen=True)
class Slices:
    """Named spans on a track of their own; they follow one another or nest, outer ones first.

    A slice that stands for a node of the timeline can show that node's rank and block.
    """

    track: str  # "critical path", "idle: cause"
    rank: int | None  # stands with this rank's lanes; None: with the job
    names: tuple[str, ...]
    name: Int64s  # int64[slices], position in `names`
    start_ns: Int64s  # int64[slices]
    end_ns: Int64s  # int64[slices]
    node: Int64s | None = None  # int64[slices]; NO_NODE of slices that are no node's
    arguments: tuple[tuple[str, tuple[str, ...]], ...] = ()  # key, text of each slice; "" none
    is_path: bool = False  # draw a flow wherever the next slice's node is on another lane

    def __post_init__(self) -> None:
        counts = {
            "start_ns": len(self.start_ns),
            "end_ns": len(self.end_ns),
            **({} if self.node is None else {"node": len(self.node)}),
            **{key: len(texts) for key, texts in self.arguments},
        }
        for what, count in counts.items():
            if count != len(self.name):
                raise ValueError(
                    f"track {self.track!r}: {what} has {count} entries for {len(self.name)} slices"
                )
        if np.any(self.end_ns < self.start_ns):
            first = int(np.flatnonzero(self.end_ns < self.start_ns)[0])
            raise ValueError(f"track {self.track!r}: slice {first} ends before it starts")


@dataclass(frozen=True)
class Counter:
    """A value over time; it holds from each moment to the next."""

    track: str  # "memory allocated"
    rank: int | None  # stands with this rank's lanes; None: with the job
    unit: str  # "bytes", "launches", "%"; "" none
    at_ns: Int64s  # int64[points], rising
    value: Float64s  # float64[points]


Track: TypeAlias = Slices | Counter


@dataclass(frozen=True)
class Process:
    """A group of tracks, shown together."""

    name: str  # "rank 3 measured"
    number: int  # from 1, the order to show them in


@dataclass(frozen=True)
class DrawnTrack:
    """One track of slices of a process."""

    process: int  # position in `Layout.processes`
    name: str  # "stream 7 compute"
    order: int  # in its process


@dataclass
class Layout:
    """Processes, tracks and shared text of a file, growing while it is laid out."""

    processes: list[Process] = field(default_factory=list)
    places: list[DrawnTrack] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    _position: dict[str, int] = field(default_factory=dict)

    def process(self, name: str) -> int:
        """A new process, shown after those before it."""
        self.processes.append(Process(name, len(self.processes) + 1))
        return len(self.processes) - 1

    def place(self, process: int, name: str, order: int) -> int:
        """A new track of slices."""
        self.places.append(DrawnTrack(process, name, order))
        return len(self.places) - 1

    def text(self, text: str) -> int:
        """Position of this text, kept once."""
        if text not in self._position:
            self._position[text] = self.add_texts([text])
        return self._position[text]

    def add_texts(self, texts: Iterable[str]) -> int:
        """Position of the first of these, which follow one another."""
        first = len(self.texts)
        self.texts.extend(texts)
        return first


@dataclass(frozen=True)
class Argument:
    """One further field of every row."""

    key: str
    value: Int64s  # int64[rows], MISSING where a row has none
    is_text: bool = False  # then values are positions in `Layout.texts`


@dataclass(frozen=True)
class SliceRows:
    """Slices of one timeline; those of one track nest, outer ones first."""

    place: Int64s  # int64[rows], position in `Layout.places`
    name: Int64s  # int64[rows], position in `Layout.texts`
    start_ns: Int64s  # int64[rows]
    end_ns: Int64s  # int64[rows]
    node: Int64s  # int64[rows], whose span or part of it this is; NO_NODE
    arguments: tuple[Argument, ...] = ()

    def __len__(self) -> int:
        """Number of slices."""
        return len(self.place)


@dataclass(frozen=True)
class Flows:
    """Arrows between rows of one timeline, by position over all of its `SliceRows` joined."""

    category: str  # "launch", "inter-stream", ...
    source: Int64s  # int64[flows], row
    target: Int64s  # int64[flows], row


@dataclass(frozen=True)
class Values:
    """A counter, placed."""

    process: int  # position in `Layout.processes`
    name: str
    unit: str
    order: int
    at_ns: Int64s  # int64[points], rising
    value: Float64s  # float64[points]


@dataclass(frozen=True)
class Content:
    """Everything that one timeline adds to the file."""

    rows: tuple[SliceRows, ...]
    flows: tuple[Flows, ...]
    values: tuple[Values, ...]

    @property
    def num_slices(self) -> int:
        """Slices over all rows."""
        return sum(len(rows) for rows in self.rows)


def no_nodes(count: int) -> Int64s:
    """Rows that stand for no node."""
    return np.full(count, NO_NODE, np.int64)


def numbered(rows: tuple[SliceRows, ...]) -> Iterator[tuple[int, SliceRows]]:
    """Each table with the position of its first row over all of them."""
    first = 0
    for table in rows:
        yield first, table
        first += len(table)
