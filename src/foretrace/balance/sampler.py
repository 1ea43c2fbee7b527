"""`BatchSampler`: the packers of a prediction, as what a training's data loader draws by.

It needs no PyTorch and fits `torch.utils.data.DataLoader(batch_sampler=...)`: each batch is the
documents of one microbatch of this copy of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from foretrace.balance.packing import (
    Arriving,
    AsItComesWhole,
    Microbatch,
    OutlierQueues,
    PackedStep,
    Packer,
    Piece,
    Room,
    step_numbers,
)
from foretrace.balance.work import DocumentWork
from foretrace.base import Int64s, WorkloadError

_SHARE = 0.5  # of attention in a full window, if nothing is known: near 64 K tokens of a 7B model


class BatchSampler:
    """Microbatches of about equal work, every document once an epoch.

    Every copy of the model makes the same steps, from the same seed, and takes its own
    microbatches of them. Documents wait no longer than until the next documents of their size
    have come; those that still wait at the end of an epoch make its last steps, which may leave
    a copy an empty microbatch.

    Example:
        sampler = BatchSampler(lengths, window=8192, num_microbatches=4, num_copies=2, copy=rank)
        loader = DataLoader(documents, batch_sampler=sampler, collate_fn=packed)
    """

    def __init__(
        self,
        lengths: Sequence[int] | Int64s,
        *,
        window: int,
        num_microbatches: int,
        num_copies: int = 1,
        copy: int = 0,
        thresholds: Sequence[int] | None = None,
        longest: int | None = None,
        work: DocumentWork | None = None,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        """Begin the first epoch.

        Args:
            lengths: of every document, in tokens; none above the window.
            window: tokens of the longest document, and of a microbatch on the average.
            num_microbatches: of a step of one copy of the model.
            num_copies: of the model (data parallel).
            copy: which of them this process belongs to, from 0.
            thresholds: tokens from which documents wait in each queue, rising; a quarter and half
                of the window, if left out; none: documents as they come.
            longest: tokens of the longest microbatch; 1.5 windows, if left out.
            work: of documents, from `document_work`; attention is half of a full window's, if
                left out.
            seed: of the order.
            shuffle: each epoch anew; else the dataset's order.

        Raises:
            WorkloadError: if a document is empty or longer than the window, or nothing fits.
        """
        self._lengths = np.asarray(lengths, np.int64)
        wrong = np.flatnonzero((self._lengths < 1) | (self._lengths > window))
        if len(wrong):
            raise WorkloadError(
                f"document {int(wrong[0]):,} has {int(self._lengths[wrong[0]]):,} tokens, where "
                f"microbatches take 1 to {window:,}: leave it out, or cut it first"
            )
        if not 0 <= copy < num_copies:
            raise WorkloadError(f"copy {copy} of {num_copies} does not exist: they count from 0")
        self._room = Room(window, num_microbatches * num_copies, longest or round(1.5 * window))
        self._own = slice(copy, None, num_copies)
        cuts = (window // 4, window // 2) if thresholds is None else tuple(thresholds)
        self._thresholds = tuple(sorted({max(1, cut) for cut in cuts}))
        self._work = work or DocumentWork.of_share(window, _SHARE)
        self._seed, self._shuffles = seed, shuffle
        self._epoch = 0
        self._ready: list[Microbatch] = []
        self._longest_wait = 0
        self._begin()

    def __iter__(self) -> Iterator[list[int]]:
        """This copy's microbatches until the epoch's end, from where the last stop was."""
        while True:
            while self._ready:
                yield [piece.document for piece in self._ready.pop(0)]
            if not self._goes_on():
                break
        self._epoch += 1
        self._begin()

    @property
    def longest_wait(self) -> int:
        """Steps that the document waited that waited longest, this epoch."""
        return self._longest_wait

    def state_dict(self) -> dict[str, Any]:
        """Where it is, as plain values."""
        return {
            "epoch": self._epoch,
            "seed": self._seed,
            "next_document": self._next,
            "num_steps": self._num_steps,
            "is_emptied": self._is_emptied,
            "longest_wait": self._longest_wait,
            "step": self._arriving.step,
            "num_tokens": self._arriving.num_tokens,
            "arriving": _plain([self._arriving.held])[0],
            "held": _plain(self._packer.held()),
            "ready": _plain(self._ready),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; lengths and sizes must be those it was saved with."""
        self._epoch, self._seed = state["epoch"], state["seed"]
        self._begin()
        self._next, self._num_steps = state["next_document"], state["num_steps"]
        self._is_emptied, self._longest_wait = state["is_emptied"], state["longest_wait"]
        self._arriving = Arriving(
            self._room, state["step"], state["num_tokens"], _pieces(state["arriving"])
        )
        self._packer.restore([_pieces(each) for each in state["held"]])
        self._ready = [tuple(_pieces(each)) for each in state["ready"]]

    def _begin(self) -> None:
        """Of an epoch."""
        count = len(self._lengths)
        generator = np.random.default_rng([self._seed, self._epoch])
        self._order = generator.permutation(count) if self._shuffles else np.arange(count)
        self._packer: Packer = AsItComesWhole(self._room)
        if self._thresholds:
            self._packer = OutlierQueues(self._room, self._work, self._thresholds)
        self._arriving = Arriving(self._room)
        self._ready = []
        self._next = self._num_steps = self._longest_wait = 0
        self._is_emptied = False

    def _goes_on(self) -> bool:
        """Make the next steps; False at the end of the epoch."""
        while self._next < len(self._order):
            document = int(self._order[self._next])
            self._next += 1
            for arrived in self._arriving.added(document, int(self._lengths[document])):
                self._take(self._packer.packed(arrived))
            if self._ready:
                return True
        if self._is_emptied:
            return False
        self._is_emptied = True
        self._take(self._packer.packed(self._arriving.held))
        self._arriving.held = []
        self._take(self._packer.emptied())
        return bool(self._ready)

    def _take(self, steps: list[PackedStep]) -> None:
        """This copy's microbatches: dealt in turn, so that copies have like work."""
        numbers = step_numbers(self._num_steps - 1, self._arriving.step - 1, len(steps))
        for number, step in zip(numbers, steps, strict=True):
            waited = (number - piece.arrived for each in step for piece in each)
            self._longest_wait = max(self._longest_wait, *waited)
            self._num_steps = number + 1
            full = [*step, *[()] * (self._room.num_microbatches - len(step))]
            self._ready.extend(full[self._own])


def _plain(pieces: Sequence[Sequence[Piece]]) -> list[list[list[int]]]:
    return [[list(piece) for piece in each] for each in pieces]


def _pieces(plain: Sequence[Sequence[int]]) -> list[Piece]:
    return [Piece(*values) for values in plain]
