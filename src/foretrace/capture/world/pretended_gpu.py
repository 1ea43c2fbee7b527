"""`gpu_that_pretends`: what scripts call of `torch.cuda` and its like where no GPU is."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from foretrace.base import WorkloadError
from foretrace.capture.world.journal import Journal
from foretrace.capture.world.streams import stream_classes

_CUDA: Any = torch.cuda
_ACCELERATOR: Any = getattr(torch, "accelerator", SimpleNamespace())
_PYTORCH = str(Path(torch.__file__).parent)
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
# Of `torch.accelerator`, where it goes by another name than in `torch.cuda`.
_TOLD_OF_ANY: dict[str, object] = {
    "set_device_index": None, "set_device_idx": None, "current_device_index": 0,
    "current_device_idx": 0, "set_stream": None, "empty_host_cache": None,
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

    Scripts and libraries find that there are GPUs; PyTorch itself does not, as its tensors stay
    where they are. Streams and events say what waits for what; between two events one millisecond
    passes, as any number that is not known is one.

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
    streams = stream_classes(journal)
    state = torch.get_rng_state()
    with ExitStack() as stack:

        def replace(owner: Any, named: Mapping[str, object], *, create: bool = False) -> None:
            for key, value in named.items():
                if create or hasattr(owner, key):
                    stack.enter_context(patch.object(owner, key, value, create=create))

        answers = {key: _saying(value) for key, value in told.items()}
        replace(_CUDA, answers, create=True)
        replace(_CUDA, streams)
        replace(
            _CUDA,
            {
                "get_rng_state": _saying(state),
                "CUDAGraph": _NoGraph,
                "device": lambda _one: nullcontext(),
                "is_available": _telling_scripts(answer=True, otherwise=False),
            },
        )
        replace(_CUDA.nvtx, {key: _saying(0) for key in _MARKS})
        replace(_CUDA.nvtx, {"range": lambda *_given: nullcontext()})
        replace(_CUDA.profiler, {key: _saying(None) for key in ("start", "stop")})
        replace(_ACCELERATOR, answers)
        replace(_ACCELERATOR, {key: _saying(value) for key, value in _TOLD_OF_ANY.items()})
        replace(
            _ACCELERATOR,
            {
                "get_memory_info": answers["mem_get_info"],
                "current_stream": streams["current_stream"],
                "device_index": lambda _one: nullcontext(),
                "is_available": _telling_scripts(answer=True, otherwise=False),
                "current_accelerator": _telling_scripts(
                    answer=torch.device("cuda"), otherwise=None
                ),
            },
        )
        replace(
            dist,
            {
                "is_nccl_available": _telling_scripts(answer=True, otherwise=False),
                "get_default_backend_for_device": _saying("nccl"),
            },
        )
        yield


def _saying(answer: object) -> Any:
    return functools.partial(lambda told, *_given, **_more: told, answer)


def _telling_scripts(*, answer: object, otherwise: object) -> Any:
    """A function that says one thing, and to PyTorch's own code another."""

    def told(*_given: object, **_more: object) -> object:
        asking = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - inspect is 100 times slower
        return otherwise if asking.startswith(_PYTORCH) else answer

    return told


class _NoGraph:
    """In the place of a class that scripts also name in annotations."""

    def __init__(self, *_given: object, **_named: object) -> None:
        raise WorkloadError(
            "a CUDA graph was asked for, whose replays issue no operators that could be written "
            "down: run the script without them; kernels of its job take what they do in eager "
            "PyTorch"
        )
