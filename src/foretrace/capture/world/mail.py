"""`Mailbox`: whole numbers and objects that ranks send each other; `RankTurn`: one works at a time.

Ranks stand alone, and what is computed never reaches another. But a pipeline's stages agree on
shapes before they begin: such messages are small, known, and lie in a folder that all share.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from foretrace.base import WorkloadError
from foretrace.capture.world.role import role_path

_MOST_BYTES = 1 << 20  # of one message; what is larger is data
_POLL_SECONDS = 0.01


class RankTurn:
    """Ranks whose times are measured work one at a time: beside another they would be slower.

    Whose turn it is has made a folder, which all systems make for one process alone.
    """

    def __init__(self, folder: Path, *, is_measured: bool) -> None:
        self._path, self._is_measured = folder / "turn", is_measured

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until nobody else works, then while this rank does."""
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """While this rank waits for another."""
        self._give()
        try:
            yield
        finally:
            self._take()

    def _take(self) -> None:
        while self._is_measured:
            try:
                self._path.mkdir()
            except OSError:  # it is there, or goes just now
                time.sleep(_POLL_SECONDS)
            else:
                return

    def _give(self) -> None:
        if self._is_measured:
            self._path.rmdir()


class Mailbox:
    """What one rank posts and takes, in order between every two."""

    def __init__(self, folder: Path, rank: int, turn: RankTurn) -> None:
        self._folder, self._rank, self._turn = folder, rank, turn
        self._turns: Counter[str] = Counter()

    @staticmethod
    def carries(tensor: torch.Tensor) -> bool:
        """Whether a tensor is such a message."""
        is_whole = not (tensor.is_floating_point() or tensor.is_complex())
        return is_whole and tensor.numel() * tensor.element_size() <= _MOST_BYTES

    def post(self, to: int | str, like: torch.Tensor, value: torch.Tensor | None) -> None:
        """Send a value, or that nobody knows it, to a rank, or to whoever takes it by a name."""
        path = self._path(self._rank, to, like)
        own = None if value is None else value.detach().cpu().contiguous().view(-1)
        data = b"" if own is None else own.numpy().tobytes()
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(data)
        unfinished.replace(path)

    def take(
        self, source: int, like: torch.Tensor, *, to: int | str | None = None
    ) -> torch.Tensor | None:
        """What a rank sent, once it has; `None` if it did not know.

        Raises:
            WorkloadError: if that rank ended without sending it.
        """
        path = self._path(source, self._rank if to is None else to, like)
        (self._folder / f"{source}.wanted").touch()
        with self._turn.given_up():
            self._wait_for(path, source, like)
        data = path.read_bytes()
        if not data:
            return None
        return torch.frombuffer(bytearray(data), dtype=like.dtype).reshape(like.shape)

    def _wait_for(self, path: Path, source: int, like: torch.Tensor) -> None:
        while not path.exists():
            if role_path(self._folder, source).exists() and not path.exists():
                raise WorkloadError(
                    f"rank {self._rank} waits for {like.numel()} x {like.dtype} of rank {source}, "
                    f"which ended without sending it: let both make as many steps"
                )
            time.sleep(_POLL_SECONDS)

    def _path(self, source: int, target: int | str, like: torch.Tensor) -> Path:
        """Of the next message of its kind."""
        kind = f"{source}-{target}-{like.numel()}-{str(like.dtype).removeprefix('torch.')}"
        self._turns[kind] += 1
        return self._folder / f"{kind}-{self._turns[kind]}.sent"
