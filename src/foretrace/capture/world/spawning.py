"""`spawned_here`: a script that starts its own ranks is run as the one that this process is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import torch.multiprocessing

from foretrace.capture.world.journal import Journal

_SPAWNED = (
    "torch.multiprocessing.spawn started no processes: this rank is the one of its host's that "
    "would have its number"
)


@contextmanager
def spawned_here(journal: Journal, rank: int) -> Iterator[None]:
    """While it holds, `torch.multiprocessing.spawn` calls its function once, as this rank's."""

    def spawn(
        fn: Callable[..., object],
        args: Sequence[object] = (),
        nprocs: int = 1,
        *_given: object,
        **_named: object,
    ) -> None:
        journal.substitutes[_SPAWNED] += 1
        fn(rank % nprocs, *args)

    with patch.object(torch.multiprocessing, "spawn", spawn):
        yield
