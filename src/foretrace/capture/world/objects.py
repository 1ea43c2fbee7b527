"""What ranks tell each other as Python objects, and what they would write down."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import checkpoint

from foretrace.capture.world.journal import Journal
from foretrace.capture.world.observer import Observer

_C10D: Any = dist.distributed_c10d
_CHECKPOINT: Any = checkpoint
# Pickled into tensors that need their memory.
_BETWEEN_TWO = ("send_object_list", "recv_object_list")
_OF_GROUPS = ("broadcast_object_list", "scatter_object_list", "all_gather_object", "gather_object")
_OWN = ("all_gather_object", "gather_object")
_GATHERED = "objects that other ranks gave were this rank's own"
_UNWRITTEN = "torch.distributed.checkpoint.{0} {1}: tensors have no values"


@contextmanager
def objects_that_arrive(observer: Observer, journal: Journal) -> Iterator[None]:
    """While it holds, objects that one rank gives others arrive; gathered ones are this rank's."""

    def with_memory(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if name in _OWN:
                journal.substitutes[_GATHERED] += 1
            with unset_fake_temporarily(), observer.objects(arrive=name in _OF_GROUPS):
                return function(*args, **kwargs)

        return called

    with ExitStack() as stack:
        for name in (*_BETWEEN_TWO, *_OF_GROUPS):
            changed = with_memory(name, getattr(dist, name))
            for module in (dist, _C10D):
                stack.enter_context(patch.object(module, name, changed))
        yield


@contextmanager
def unwritten_checkpoints(journal: Journal) -> Iterator[None]:
    """While it holds, checkpoints of distributed tensors are neither written nor read."""

    def saved(name: str, made: Callable[[], Any], *_given: object, **_more: object) -> Any:
        journal.substitutes[_UNWRITTEN.format(name, "did nothing")] += 1
        return made()

    def done() -> Future[None]:
        future: Future[None] = Future()
        future.set_result(None)
        return future

    with ExitStack() as stack:
        for name, made in (
            ("save", lambda: None), ("load", lambda: None), ("async_save", done),
        ):  # fmt: skip
            if hasattr(_CHECKPOINT, name):
                told = functools.partial(saved, name, made)
                stack.enter_context(patch.object(_CHECKPOINT, name, told))
        yield
