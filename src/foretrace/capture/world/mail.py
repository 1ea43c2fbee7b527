"""`Mailbox`: whole numbers and objects that ranks send each other, from process to process.

Ranks stand alone, and what is computed never reaches another. But a pipeline's stages agree on
shapes before they begin: such messages are small, known, and lie in a folder that all share.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import torch

from foretrace.base import WorkloadError
from foretrace.capture.world.role import role_path

_MOST_BYTES = 1 << 20  # of one message; what is larger is data
_POLL_SECONDS = 0.01


class Mailbox:
    """What one rank posts and takes, in order between every two."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._turns: Counter[str] = Counter()

    @staticmethod
    def carries(tensor: torch.Tensor) -> bool:
        """Whether a tensor is such a message."""
        is_whole = not (tensor.is_floating_point() or tensor.is_complex())
        return is_whole and tensor.numel() * tensor.element_size() <= _MOST_BYTES

    def post(self, to: int, like: torch.Tensor, value: torch.Tensor | None) -> None:
        """Send a value, or that nobody knows it."""
        path = self._path(self._rank, to, like)
        data = b"" if value is None else value.detach().contiguous().view(-1).numpy().tobytes()
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(data)
        unfinished.replace(path)

    def take(self, source: int, like: torch.Tensor) -> torch.Tensor | None:
        """What a rank sent, once it has; `None` if it did not know.

        Raises:
            WorkloadError: if that rank ended without sending it.
        """
        path = self._path(source, self._rank, like)
        (self._folder / f"{source}.wanted").touch()
        while not path.exists():
            if role_path(self._folder, source).exists() and not path.exists():
                raise WorkloadError(
                    f"rank {self._rank} waits for {like.numel()} x {like.dtype} of rank {source}, "
                    f"which ended without sending it: let both make as many steps"
                )
            time.sleep(_POLL_SECONDS)
        data = path.read_bytes()
        if not data:
            return None
        return torch.frombuffer(bytearray(data), dtype=like.dtype).reshape(like.shape)

    def _path(self, source: int, target: int, like: torch.Tensor) -> Path:
        """Of the next message of its kind."""
        kind = f"{source}-{target}-{like.numel()}-{str(like.dtype).removeprefix('torch.')}"
        self._turns[kind] += 1
        return self._folder / f"{kind}-{self._turns[kind]}.sent"
