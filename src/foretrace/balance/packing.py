"""Packers: documents in order of arrival become microbatches of about equal work.

Each takes what arrives for one step at a time and gives the steps that are complete. What a
packer holds back is its state, so that it can stop and go on: no document is lost or given twice.

Sources:
    Wang et al., "WLB-LLM", arXiv:2503.17924 (outlier queues, algorithm 1; greedy over batches).
    Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17(2), 1969
    (longest first).
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from foretrace.balance.work import DocumentWork
from foretrace.base import Int64s, WorkloadError

_MOST_PIECES = 2**14  # of a document: 67 million tokens in windows of 4,096


class Piece(NamedTuple):
    """A document, or as much of it as lies in one microbatch."""

    document: int  # in order of arrival
    begin: int  # its first token
    length: int
    arrived: int  # the step that it arrived for


Microbatch: TypeAlias = tuple[Piece, ...]
PackedStep: TypeAlias = tuple[Microbatch, ...]


@dataclass(frozen=True)
class Room:
    """What a step has room for."""

    window: int  # tokens of a microbatch of fixed length
    num_microbatches: int  # of one step, over all copies of the model
    longest: int  # tokens of the longest microbatch, where lengths may vary
    longest_document: int | None = None  # tokens that documents are cut at; None: the window

    def __post_init__(self) -> None:
        """Refuse room for nothing.

        Raises:
            WorkloadError: if a size is below 1, or microbatches are shorter than the window.
        """
        if self.window < 1 or self.num_microbatches < 1 or self.longest < self.window:
            raise WorkloadError(
                f"no step has {self.num_microbatches} microbatches of {self.window} tokens, or "
                f"{self.longest} at most: expected 1 or more, and no less at most than the window"
            )

    @property
    def step_tokens(self) -> int:
        """Tokens of a step."""
        return self.window * self.num_microbatches


def arrivals(lengths: Iterable[int], room: Room) -> Iterator[list[Piece]]:
    """Documents by the step that they arrive for, each step's tokens filled on the average.

    Documents longer than `room.longest_document` are cut there, as training on windows does.
    Documents that fill no last step are left out.
    """
    arriving = Arriving(room)
    for document, length in enumerate(lengths):
        yield from arriving.added(document, length)


@dataclass
class Arriving:
    """Documents on their way to a step."""

    room: Room
    step: int = 0
    num_tokens: int = 0  # so far, of all steps
    held: list[Piece] = field(default_factory=list)

    def added(self, document: int, length: int) -> Iterator[list[Piece]]:
        """What arrives for a step, once its tokens are there."""
        most = self.room.longest_document or self.room.window
        if length > _MOST_PIECES * most:
            raise WorkloadError(
                f"document {document:,} has {length:,} tokens, and training on {most:,} at a time "
                f"cuts it into more than {_MOST_PIECES:,} pieces: correct its length, or leave it "
                "out"
            )
        for begin in range(0, length, most):
            self.held.append(Piece(document, begin, min(most, length - begin), self.step))
            self.num_tokens += self.held[-1].length
            if self.num_tokens >= (self.step + 1) * self.room.step_tokens:
                arrived, self.held = self.held, []
                self.step += 1
                yield arrived


def step_numbers(last: int, arrival: int, count: int) -> range:
    """Numbers of steps that are complete with one arrival, so that none comes before its tokens.

    Where documents were too few for a step, there is none of that number.

    Args:
        last: number of the step before.
        arrival: which arrival it is, from 0.
        count: of steps.
    """
    first = max(last + 1, arrival - count + 1)
    return range(first, first + count)


class Packer(ABC):
    """Packs pieces into steps; one object packs one stream."""

    room: Room

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in tables."""

    @property
    @abstractmethod
    def keeps_documents_whole(self) -> bool:
        """Whether no document is cut at the end of a microbatch."""

    @abstractmethod
    def packed(self, arrived: Sequence[Piece]) -> list[PackedStep]:
        """The steps that are complete now that these pieces have arrived."""

    @property
    @abstractmethod
    def waiting(self) -> tuple[deque[Piece], ...]:
        """What is held back, queue by queue: all its state."""

    def emptied(self) -> list[PackedStep]:
        """Steps of all that is held back, at the end of the data; no piece is cut for them."""
        left = list(chain.from_iterable(self.waiting))
        for queue in self.waiting:
            queue.clear()
        return _last_steps(left, self.room, whole=self.keeps_documents_whole)

    def held(self) -> list[list[Piece]]:
        """What is held back, to go on from."""
        return [list(queue) for queue in self.waiting]

    def restore(self, held: Sequence[Sequence[Piece]]) -> None:
        """Go on from what was held back."""
        for queue, pieces in zip(self.waiting, held, strict=True):
            queue.clear()
            queue.extend(pieces)


@dataclass
class _QueuePacker(Packer, ABC):
    """A packer whose state is one queue."""

    room: Room
    _held: deque[Piece] = field(default_factory=deque, init=False)

    @property
    def waiting(self) -> tuple[deque[Piece], ...]:
        """One queue."""
        return (self._held,)


@dataclass
class AsItComes(_QueuePacker):
    """Microbatches of the window's length, documents one after the other, cut where one ends."""

    name = "as it comes"

    keeps_documents_whole = False

    def packed(self, arrived: Sequence[Piece]) -> list[PackedStep]:
        """Steps of full microbatches."""
        self._held.extend(arrived)
        count = sum(piece.length for piece in self._held) // self.room.step_tokens
        return [
            tuple(
                tuple(_taken(self._held, self.room.window))
                for _ in range(self.room.num_microbatches)
            )
            for _ in range(count)
        ]


@dataclass
class AsItComesWhole(_QueuePacker):
    """Documents one after the other, none cut: a microbatch ends with what fills it."""

    name = "as it comes, whole"

    keeps_documents_whole = True

    def packed(self, arrived: Sequence[Piece]) -> list[PackedStep]:
        """One step; none while documents are too few for every microbatch to have one."""
        self._held.extend(arrived)
        step: list[Microbatch] = []
        total = 0
        for number in range(self.room.num_microbatches):
            microbatch: list[Piece] = []
            length = 0
            while self._held and total < (number + 1) * self.room.window:
                if length + self._held[0].length > self.room.longest:
                    break
                microbatch.append(self._held.popleft())
                length += microbatch[-1].length
                total += microbatch[-1].length
            step.append(tuple(microbatch))
        if all(step):
            return [tuple(step)]
        self._held.extendleft(reversed(list(chain.from_iterable(step))))
        return []


@dataclass
class Greedy(_QueuePacker):
    """What windows of some steps hold, the longest first, each where there is least work.

    Microbatches have the window's length; what fits none is cut. Those of like work then make a
    step. Where that is no better than the windows as they came, they stay.
    """

    keeps_documents_whole = False

    work: DocumentWork
    num_steps: int = 1  # that documents are held for

    @property
    def name(self) -> str:
        """In tables."""
        return f"greedy over {self.num_steps}"

    def packed(self, arrived: Sequence[Piece]) -> list[PackedStep]:
        """As many steps as documents are held for, once they are there."""
        self._held.extend(arrived)
        room = self.room
        num_windows = self.num_steps * room.num_microbatches
        found: list[PackedStep] = []
        while sum(piece.length for piece in self._held) >= num_windows * room.window:
            found.extend(self._steps([_taken(self._held, room.window) for _ in range(num_windows)]))
        return found

    def _steps(self, windows: list[list[Piece]]) -> Iterator[PackedStep]:
        came = [(sum(_work_of(window, self.work)), window) for window in windows]
        pieces = [piece for window in windows for piece in window]
        packed = _least_work_first(pieces, len(windows), self.room.window, self.work)
        packed.sort(key=lambda one: -one[0])
        count = self.room.num_microbatches
        best = min(
            ([one[first : first + count] for first in range(0, len(one), count)]
             for one in (packed, came)),
            key=lambda steps: sum(max(work_ns for work_ns, _ in step) for step in steps),
        )  # fmt: skip
        # Steps whose documents waited longest come first.
        best.sort(key=lambda step: min(piece[:2] for _, held in step for piece in held))
        for step in best:
            yield tuple(_in_order(held) for _, held in step)


@dataclass
class OutlierQueues(Packer):
    """Long documents wait until every microbatch of a step can have one; the rest fill up.

    Microbatches have lengths of their own, up to `room.longest`.
    """

    keeps_documents_whole = True

    room: Room
    work: DocumentWork
    thresholds: tuple[int, ...]  # tokens from which a document waits in each queue, rising
    _queues: list[deque[Piece]] = field(init=False)
    _left: deque[Piece] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """One queue for each threshold."""
        if list(self.thresholds) != sorted(set(self.thresholds)):
            raise ValueError(f"thresholds must rise, got {self.thresholds}")
        self._queues = [deque() for _ in self.thresholds]

    @property
    def name(self) -> str:
        """In tables."""
        count = len(self.thresholds)
        return f"{count} outlier queue{'s' if count > 1 else ''}"

    def packed(self, arrived: Sequence[Piece]) -> list[PackedStep]:
        """One step; none while documents are too few for every microbatch to have one."""
        fresh: list[Piece] = []
        for piece in arrived:
            queue = self._queue_of(piece.length)
            (fresh if queue is None else queue).append(piece)
        count = self.room.num_microbatches
        for queue in self._queues:
            if len(queue) >= count:
                fresh.extend(queue.popleft() for _ in range(count))
        # What was left before comes first: documents leave in the order of their arrival.
        fresh.sort(key=lambda piece: -piece.length)
        step, left = self._filled([*self._left, *fresh])
        self._left.clear()
        if all(step):
            self._left.extend(left)
            return [step]
        self._left.extend([*chain.from_iterable(step), *left])
        return []

    def _queue_of(self, length: int) -> deque[Piece] | None:
        number = bisect_right(self.thresholds, length)
        return self._queues[number - 1] if number else None

    def _filled(self, pieces: list[Piece]) -> tuple[PackedStep, list[Piece]]:
        """Each piece where there is least work, else where there are fewest tokens, else left."""
        count, longest = self.room.num_microbatches, self.room.longest
        step: list[list[Piece]] = [[] for _ in range(count)]
        tokens = [0] * count
        by_work = [(0.0, place) for place in range(count)]  # the least first
        left: list[Piece] = []
        for piece, own_ns in zip(pieces, _work_of(pieces, self.work), strict=True):
            at, place = 0, by_work[0][1]
            if tokens[place] + piece.length > longest:
                place = min(range(count), key=tokens.__getitem__)
                at = next(at for at, one in enumerate(by_work) if one[1] == place)
            if tokens[place] + piece.length > longest:
                left.append(piece)
                continue
            step[place].append(piece)
            tokens[place] += piece.length
            fuller = (by_work[at][0] + own_ns, place)
            if at == 0:
                heapq.heapreplace(by_work, fuller)
            else:
                by_work[at] = fuller
                heapq.heapify(by_work)
        return tuple(_in_order(microbatch) for microbatch in step), left

    @property
    def waiting(self) -> tuple[deque[Piece], ...]:
        """What was left over, and every queue."""
        return (self._left, *self._queues)


def _last_steps(pieces: Sequence[Piece], room: Room, *, whole: bool) -> list[PackedStep]:
    """Steps of what is left: each piece where there are fewest tokens, none cut."""
    longest = room.longest if whole else room.window
    found: list[list[list[Piece]]] = []
    tokens: list[int] = []
    for piece in sorted(pieces, key=lambda one: -one.length):
        place = min(range(len(tokens)), key=tokens.__getitem__, default=0)
        if not tokens or tokens[place] + piece.length > longest:
            found.append([[] for _ in range(room.num_microbatches)])
            place = len(tokens)
            tokens.extend([0] * room.num_microbatches)
        step, number = divmod(place, room.num_microbatches)
        found[step][number].append(piece)
        tokens[place] += piece.length
    return [tuple(tuple(microbatch) for microbatch in step if microbatch) for step in found]


def _taken(held: deque[Piece], num_tokens: int) -> list[Piece]:
    """So many tokens off the front, the last document cut where they end."""
    taken = []
    while num_tokens > 0:
        piece = held.popleft()
        if piece.length > num_tokens:
            held.appendleft(_rest(piece, num_tokens))
            piece = piece._replace(length=num_tokens)
        taken.append(piece)
        num_tokens -= piece.length
    return taken


def _in_order(microbatch: list[Piece]) -> Microbatch:
    """As documents came: the longest first would give the first ranks of CONTEXT the least."""
    return tuple(sorted(microbatch, key=lambda piece: piece[:2]))


def _rest(piece: Piece, num_tokens: int) -> Piece:
    return piece._replace(begin=piece.begin + num_tokens, length=piece.length - num_tokens)


def _work_of(pieces: Sequence[Piece], work: DocumentWork) -> list[float]:
    lengths: Int64s = np.array([piece.length for piece in pieces], np.int64)
    found: list[float] = work.work_of(lengths).tolist()
    return found


def _least_work_first(
    pieces: list[Piece], count: int, window: int, work: DocumentWork
) -> list[tuple[float, list[Piece]]]:
    """Microbatches that hold all pieces, `count * window` tokens, and the work of each."""
    waiting = [
        (-piece.length, number, piece, work_ns)
        for number, (piece, work_ns) in enumerate(zip(pieces, _work_of(pieces, work), strict=True))
    ]
    heapq.heapify(waiting)
    bins: list[list[Piece]] = [[] for _ in range(count)]
    work_ns, room = [0.0] * count, [window] * count
    number = len(pieces)
    while waiting:
        _, _, piece, own_ns = heapq.heappop(waiting)
        places = [place for place in range(count) if room[place] >= piece.length]
        if places:
            place = min(places, key=work_ns.__getitem__)
        else:
            place = max(range(count), key=room.__getitem__)
            parts = (piece._replace(length=room[place]), _rest(piece, room[place]))
            piece = parts[0]
            own_ns, rest_ns = _work_of(parts, work)
            heapq.heappush(waiting, (-parts[1].length, number, parts[1], rest_ns))
            number += 1
        bins[place].append(piece)
        work_ns[place] += own_ns
        room[place] -= piece.length
    return list(zip(work_ns, bins, strict=True))
