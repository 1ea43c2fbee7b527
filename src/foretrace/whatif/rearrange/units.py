"""`RankRun`: one rank's pieces as steps of units, what a schedule orders and layers fill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from foretrace.whatif.recorded.program import Coordinates, Piece


class Role(Enum):
    """What a piece is to its unit."""

    LAYER = "layer"
    BUCKET = "bucket"  # a collective of gradients or sharded parameters
    RECEIVE = "receive"  # from another stage, before the layers
    SEND = "send"  # to another stage, behind them
    END = "end"  # embedding, head, loss: of the model's first or last chunk alone
    BEGIN = "begin"  # one host thread hands over to the one that runs the backward pass
    RETURN = "return"  # and that one hands back
    REDUCED = "reduced"  # waits for buckets and what is made of them, behind the last layer
    OTHER = "other"


@dataclass(frozen=True)
class Entry:
    """A piece, possibly a cut of a recorded one, in its role."""

    piece: Piece
    role: Role


@dataclass(frozen=True)
class Slot:
    """What one unit does for one layer: recomputing it, its own work, its bucket."""

    layer: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class RecordedUnit:
    """One pass of one chunk for one microbatch, in the order in which it was issued."""

    is_forward: bool
    microbatch: int
    chunk: int
    before: tuple[Entry, ...]  # what stands before the first layer
    slots: tuple[Slot, ...]  # layers in the order of the pass
    after: tuple[Entry, ...]

    @property
    def entries(self) -> Iterator[Entry]:
        """All of it, in order."""
        yield from self.before
        for slot in self.slots:
            yield from slot.entries
        yield from self.after

    @property
    def key(self) -> tuple[bool, int, int]:
        """What names the unit in its step."""
        return self.is_forward, self.microbatch, self.chunk


@dataclass(frozen=True)
class StepRun:
    """One step of one rank."""

    step: int
    prologue: tuple[Piece, ...]  # data, zeroing, the step's mark
    units: tuple[RecordedUnit, ...]
    epilogue: tuple[Piece, ...]  # optimizer, synchronisation, the step's end


@dataclass(frozen=True)
class RankRun:
    """All that one rank ran."""

    rank: int
    coordinates: Coordinates
    opening: tuple[Piece, ...]  # before the first step
    steps: tuple[StepRun, ...]
    closing: tuple[Piece, ...]  # behind the last one
