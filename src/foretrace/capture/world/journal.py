"""`Journal`: collects what one rank issues, entry by entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from foretrace.capture.world.role import (
    COMPUTE_STREAM,
    FORWARD,
    DeviceWork,
    Entry,
    IssuedExchange,
    IssuedWork,
    StepBegin,
    StreamHold,
)


class StepsAreDone(BaseException):
    """Raised into a script when what is wanted of it has been written down.

    Not an `Exception`: scripts that go on after errors of their own must not catch it.
    """


@dataclass
class Journal:
    """What was issued so far."""

    entries: list[Entry] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    substitutes: Counter[str] = field(default_factory=Counter)
    phase: str = FORWARD
    current: Callable[[], int] | None = None  # the stream of a device; `None`: as entered
    _last: dict[int, int] = field(default_factory=dict)  # stream -> its last entry
    _streams: list[int] = field(default_factory=lambda: [COMPUTE_STREAM])  # entered, nested
    _of_group: dict[str, int] = field(default_factory=dict)
    _num_streams: int = 1
    _steps: int = 0

    @property
    def stream(self) -> int:
        """Where work goes now."""
        return self._streams[-1] if self.current is None else self.current()

    def new_stream(self) -> int:
        """The number of one more."""
        self._num_streams += 1
        return self._num_streams - 1

    def enter_stream(self, number: int) -> None:
        """IssuedWork goes there until it is left."""
        self._streams.append(number)

    def leave_stream(self) -> None:
        """IssuedWork goes where it went before."""
        self._streams.pop()

    def last_on(self, stream: int) -> int:
        """The last entry of a stream; -1."""
        return self._last.get(stream, -1)

    def hold(self, stream: int, behind: int) -> None:
        """What a stream does from here on waits for an entry."""
        if behind >= 0 and behind != self.last_on(stream):
            self._add(stream, StreamHold(stream, behind))

    def begin_step(self) -> None:
        """A step begins."""
        self.entries.append(StepBegin(self._steps))
        self._steps += 1

    @property
    def num_begun(self) -> int:
        """Steps that began."""
        return self._steps

    def work(self, name: str, signature: str, *, host_ns: int = 0, measured_ns: int = 0) -> int:
        """An operator was issued; its entry."""
        at = len(self.entries)
        self._add(
            self.stream,
            IssuedWork(
                self._text(name), self._text(signature), self.stream, self.phase, host_ns,
                measured_ns,
            ),
        )  # fmt: skip
        return at

    def was_timed(self, of_entry: Mapping[int, Sequence[tuple[str, int, int]]]) -> None:
        """What operators started on a device: name, category and duration in ns of each."""
        for at, started in of_entry.items():
            works = tuple(DeviceWork(self._text(name), *rest) for name, *rest in started)
            self.entries[at] = msgspec.structs.replace(self.entries[at], started=works)

    def exchange(
        self, name: str, group: str, *, elements: tuple[int, int], dtype: str, peer: int = -1,
        host_ns: int = 0,
    ) -> int:  # fmt: skip
        """A communication was issued; its entry. Nothing waits for it yet."""
        # NCCL runs a communicator's collectives one after the other; transfers between two
        # wait for each other alone, or a schedule that is legal would wait in a circle.
        own = group if peer < 0 else f"{group} {name} {peer}"
        stream = self._of_group.get(own)
        if stream is None:
            stream = self._of_group[own] = self.new_stream()
        at = len(self.entries)
        self._add(
            stream,
            IssuedExchange(
                name=name, group=group, in_elements=elements[0], out_elements=elements[1],
                dtype=dtype, stream=stream, phase=self.phase, behind=self.last_on(self.stream),
                peer=peer, host_ns=host_ns,
            ),
        )  # fmt: skip
        return at

    def _add(self, stream: int, entry: Entry) -> None:
        self._last[stream] = len(self.entries)
        self.entries.append(entry)

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))
