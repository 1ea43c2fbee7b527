"""`gpu_that_pretends`: what scripts call of `torch.cuda` where no GPU is."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from foretrace.base import WorkloadError
from foretrace.capture.world.journal import Journal
from foretrace.capture.world.streams import stream_classes

_CUDA: Any = torch.cuda
# The least that has bf16, which scripts are told of (torch.cuda.is_bf16_supported).
_CAPABILITY = (8, 0)
# What scripts call without a tensor, and what they are told.
_TOLD: dict[str, object] = {
    "set_device": None, "synchronize": None, "empty_cache": None, "manual_seed": None,
    "manual_seed_all": None, "seed": None, "seed_all": None, "current_device": 0,
    "is_bf16_supported": True, "get_device_capability": _CAPABILITY,
    "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0,
    "max_memory_reserved": 0, "memory_summary": "", "ipc_collect": None,
    "reset_peak_memory_stats": None, "reset_accumulated_memory_stats": None,
    "reset_max_memory_allocated": None, "set_per_process_memory_fraction": None,
    "set_rng_state": None, "set_rng_state_all": None, "get_rng_state_all": [],
}  # fmt: skip
_MARKS = ("range_push", "range_pop", "mark", "range_start", "range_end")


class _Cudart:
    """The driver's interface: whatever is called does nothing."""

    def __getattr__(self, name: str) -> Any:
        del name
        return lambda *_given, **_more: 0


@contextmanager
def gpu_that_pretends(
    journal: Journal, gpu: tuple[str, int], *, num_gpus: int = 1
) -> Iterator[None]:
    """While it holds, `torch.cuda` answers for GPUs that do nothing, the first of them in use.

    Its streams and events say what waits for what; between two events one millisecond passes, as
    any number that is not known is one.

    Args:
        journal: of this rank.
        gpu: name, and bytes of memory.
        num_gpus: of the host.
    """
    name, num_bytes = gpu
    properties = SimpleNamespace(
        name=name, total_memory=num_bytes, major=_CAPABILITY[0], minor=_CAPABILITY[1]
    )
    told: dict[str, object] = {
        **_TOLD,
        "memory_stats": Counter(),
        "device_count": num_gpus,
        "get_device_name": name,
        "get_device_properties": properties,
        "mem_get_info": (num_bytes, num_bytes),
        "cudart": _Cudart(),
    }
    with ExitStack() as stack:
        for key, value in told.items():
            stack.enter_context(patch.object(_CUDA, key, _saying(value), create=True))
        state = torch.get_rng_state()
        stack.enter_context(patch.object(_CUDA, "get_rng_state", _saying(state)))
        for key, value in stream_classes(journal).items():
            stack.enter_context(patch.object(_CUDA, key, value))
        stack.enter_context(patch.object(_CUDA, "CUDAGraph", _NoGraph))
        stack.enter_context(patch.object(_CUDA, "device", lambda _one: nullcontext()))
        for key in _MARKS:
            stack.enter_context(patch.object(_CUDA.nvtx, key, _saying(0)))
        stack.enter_context(patch.object(_CUDA.nvtx, "range", lambda *_given: nullcontext()))
        for key in ("start", "stop"):
            stack.enter_context(patch.object(_CUDA.profiler, key, _saying(None)))
        yield


def _saying(answer: object) -> Any:
    return functools.partial(lambda told, *_given, **_more: told, answer)


class _NoGraph:
    """In the place of a class that scripts also name in annotations."""

    def __init__(self, *_given: object, **_named: object) -> None:
        raise WorkloadError(
            "a CUDA graph was asked for, whose replays issue no operators that could be written "
            "down: run the script without them; kernels of its job take what they do in eager "
            "PyTorch"
        )
