"""Streams and events say what waits for what; where there is no device, they do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Self
from unittest.mock import patch

import torch

from foretrace.capture.world.journal import Journal

_ELAPSED = "every time between two events was 1 ms, whatever lay between"


class JournalStream:
    """A stream of this rank."""

    journal: ClassVar[Journal]

    def __init__(self, device: object = None, priority: int = 0) -> None:
        """A new one."""
        del device, priority
        self.number = self.journal.new_stream()

    def wait_stream(self, stream: JournalStream) -> None:
        """What comes waits for all that stands there."""
        self.journal.hold(self.number, self.journal.last_on(stream.number))

    def record_event(self, event: JournalEvent | None = None) -> JournalEvent:
        """A point behind what stands here."""
        event = event or JournalEvent(self.journal)
        event.record(self)
        return event

    def wait_event(self, event: JournalEvent) -> None:
        """What comes waits for a point."""
        self.journal.hold(self.number, event.entry)

    @property
    def cuda_stream(self) -> int:
        """What a GPU's library would know it by."""
        return self.number

    def query(self) -> bool:
        """Nothing runs."""
        return True

    def synchronize(self) -> None:
        """Nothing runs."""

    def __enter__(self) -> Self:
        self.journal.enter_stream(self.number)
        return self

    def __exit__(self, *_error: object) -> None:
        self.journal.leave_stream()


class JournalEvent:
    """A point of a stream."""

    def __init__(self, journal: Journal) -> None:
        """Of no stream yet."""
        self._journal = journal
        self.entry = -1

    def record(self, stream: JournalStream | None = None) -> None:
        """It stands behind all that a stream has, or the current one."""
        number = self._journal.stream if stream is None else stream.number
        self.entry = self._journal.last_on(number)

    def wait(self, stream: JournalStream | None = None) -> None:
        """What comes on a stream, or the current one, waits for it."""
        number = self._journal.stream if stream is None else stream.number
        self._journal.hold(number, self.entry)

    def query(self) -> bool:
        """Nothing runs."""
        return True

    def synchronize(self) -> None:
        """Nothing runs."""

    def elapsed_time(self, _end: JournalEvent) -> float:
        """One millisecond, so that whoever divides by it can; the answer says so."""
        self._journal.substitutes[_ELAPSED] += 1
        return 1.0


def stream_classes(journal: Journal) -> dict[str, Any]:
    """What takes the place of `torch.cpu`'s own, by name; those do nothing at all."""
    kind: Any = type("Stream", (JournalStream,), {"journal": journal})
    by_number: dict[int, JournalStream] = {}

    class Event(JournalEvent):
        def __init__(self, *_given: object, **_more: object) -> None:
            super().__init__(journal)

    def current_stream(_device: object = None) -> JournalStream:
        number = journal.stream
        if number not in by_number:
            by_number[number] = kind.__new__(kind)
            by_number[number].number = number
        return by_number[number]

    @contextmanager
    def stream(one: JournalStream | None) -> Iterator[None]:
        if one is None:
            yield
            return
        with one:
            yield

    return {
        "Stream": kind,
        "Event": Event,
        "current_stream": current_stream,
        "default_stream": current_stream,
        "stream": stream,
    }


def follow_cuda(journal: Journal, stack: ExitStack) -> None:
    """A GPU's streams and events are its own, and what waits for what is written down.

    PyTorch's streams wait for each other through events alone (torch.cuda.streams). What its
    autograd engine makes one stream wait for by itself, in C++, is not seen.
    """
    cuda: Any = torch.cuda
    numbers = {int(cuda.current_stream().stream_id): journal.stream}
    recorded, waited = cuda.Event.record, cuda.Event.wait

    def number(stream: Any = None) -> int:
        known = int((stream or cuda.current_stream()).stream_id)
        if known not in numbers:
            numbers[known] = journal.new_stream()
        return numbers[known]

    def record(event: Any, stream: Any = None) -> Any:
        event.journal_entry = journal.last_on(number(stream))
        return recorded(event, stream)

    def wait(event: Any, stream: Any = None) -> Any:
        journal.hold(number(stream), getattr(event, "journal_entry", -1))
        return waited(event, stream)

    journal.current = number
    stack.enter_context(patch.object(cuda.Event, "record", record))
    stack.enter_context(patch.object(cuda.Event, "wait", wait))
    if hasattr(torch, "accelerator"):  # its streams wait in C++, unseen
        stack.enter_context(patch.object(torch.accelerator, "current_stream", cuda.current_stream))
