"""What ranks tell each other as Python objects, and what they would write down."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
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
_SAVED = "torch.save wrote no file: tensors have no values; torch.load gave back what was saved"
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
        stack.enter_context(_files_in_memory(journal))
        yield


@contextmanager
def _files_in_memory(journal: Journal) -> Iterator[None]:
    """What a script saves is what it loads, and no file holds it."""
    kept: dict[str, object] = {}
    read = torch.load

    def save(obj: object, f: object, *_given: object, **_named: object) -> None:
        journal.substitutes[_SAVED] += 1
        if isinstance(f, (str, os.PathLike)):
            kept[os.fspath(f)] = obj

    @functools.wraps(read)
    def load(f: Any, *args: Any, **named: Any) -> Any:
        path = os.fspath(f) if isinstance(f, (str, os.PathLike)) else None
        return kept[path] if path in kept else read(f, *args, **named)

    with patch.object(torch, "save", save), patch.object(torch, "load", load):
        yield
