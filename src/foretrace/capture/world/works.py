"""`IssuedWorks`: what communication returns to be waited for, and tensors that it holds."""

from __future__ import annotations

import weakref

GLOO = "gloo"


class IssuedWorks:
    """What was issued and may still run.

    NCCL's objects let go of their tensors once they are waited for, gloo's when they end.
    """

    def __init__(self) -> None:
        self.backend = ""
        self._running: dict[int, tuple[object, int, object]] = {}  # object, exchange, tensors
        self._kept: dict[weakref.ref[object], object] = {}

    def add(self, work: object, exchange: int, tensors: object) -> None:
        """An object was returned."""
        self._running[id(work)] = (work, exchange, tensors)

    def wait(self, work: object) -> int | None:
        """The exchange of an object that is waited for; None if it is not known."""
        found = self._running.pop(id(work), None)
        if found is None:
            return None
        if self.backend == GLOO:
            self._kept[weakref.ref(work, self._end)] = found[2]
        return found[1]

    @property
    def exchanges(self) -> set[int]:
        """Of objects that nobody has waited for."""
        return {exchange for _, exchange, _ in self._running.values()}

    def end_step(self) -> None:
        """What nothing waited for has ended by now."""
        self._running = {key: (one, at, None) for key, (one, at, _) in self._running.items()}

    def _end(self, work: weakref.ref[object]) -> None:
        self._kept.pop(work, None)
