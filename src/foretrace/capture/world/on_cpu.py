"""`OnCpu`: what a script asks for on a GPU is made where tensors without memory can pretend."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed import device_mesh
from torch.distributed.fsdp import _init_utils
from torch.nn.attention import flex_attention as flex
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from foretrace.capture.world.journal import Journal

_FLEX: Any = flex
_FSDP: Any = _init_utils
_MASKS, _ATTENTION = "create_block_mask", "flex_attention"
_CAUSAL = "flex_attention was causal attention, whatever its mask; making its masks took no time"
# Methods of tensors that pretend: they are there, and pinned.
_STAYS = frozenset({"cuda", "pin_memory"})
_DEVICE = re.compile(r"(cuda|cpu)(:\d+)?")


class OnCpu(TorchFunctionMode):
    """What is asked for on a GPU is made where tensors can pretend to be."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if _is_number(kwargs.get("device")):
            kwargs["device"] = "cpu"
        name = getattr(func, "__name__", "")
        if func is torch.device and args and _is_number(args[0]):
            return torch.device("cpu")
        if name == "to" and len(args) > 1 and _is_number(args[1]):
            args = (args[0], "cpu", *args[2:])
        if name in _STAYS and args and isinstance(args[0], torch.Tensor):
            return args[0]
        return func(*map(_on_cpu, args), **kwargs)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type in {"cuda", "cpu"} else value
    return "cpu" if isinstance(value, str) and _DEVICE.fullmatch(value) else value


def _is_number(value: object) -> bool:
    """Whether a GPU is named by its number."""
    return isinstance(value, int) and not isinstance(value, bool)


@contextmanager
def mesh_of_what_pretends(*, on_gpu: bool) -> Iterator[None]:
    """Meshes of a GPU are meshes of what pretends to be one."""
    made = device_mesh.init_device_mesh

    @functools.wraps(made)
    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        kind = "cpu" if device_type == "cuda" and not on_gpu else device_type
        with _disable_current_modes():
            return made(kind, *args, **kwargs)

    with ExitStack() as stack:
        for module in [*sys.modules.values()]:  # some have it by its name, as fully_shard's does
            if vars(module).get(made.__name__) is made:
                stack.enter_context(patch.object(module, made.__name__, init_device_mesh))
        yield


@contextmanager
def classes_on_cpu() -> Iterator[None]:
    """DDP's devices, and autocast's: classes are not asked of a mode."""
    wrap: Any = torch.nn.parallel.DistributedDataParallel
    wrapped, cast, moved = wrap.__init__, torch.autocast.__init__, torch.nn.Module.to

    @functools.wraps(moved)
    def to(own: Any, *args: Any, **kwargs: Any) -> Any:
        if args and _is_number(args[0]):
            args = ("cpu", *args[1:])
        if _is_number(kwargs.get("device")):
            kwargs["device"] = "cpu"
        return moved(own, *args, **kwargs)

    @functools.wraps(wrapped)
    def on_one(
        own: Any, module: Any, device_ids: object = None, output_device: object = None,
        *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        del device_ids, output_device  # of the module that pretends to be there
        wrapped(own, module, None, None, *args, **kwargs)

    @functools.wraps(cast)
    def autocast(own: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            dtype = dtype or torch.get_autocast_dtype(device_type)
        cast(own, _on_cpu(device_type), dtype, *args, **kwargs)

    with (
        patch.object(wrap, "__init__", on_one),
        patch.object(torch.nn.Module, "to", to),
        patch.object(_FSDP, "_check_module_states_for_sync_module_states", lambda _states: None),
        patch.object(torch.Tensor, "record_stream", lambda _own, _stream: None),
        patch.object(wrap, "_check_comm_hook", lambda _own, _hook: None),  # asks for GPUs' own
        patch.object(torch.autocast, "__init__", autocast),
    ):
        yield


@contextmanager
def attention_without_masks(
    journal: Journal, unseen: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """While it holds, FlexAttention, which a compiler writes, is PyTorch's own attention.

    Its masks are functions of positions and of values, so how much of them is left out is not known
    where tensors have none: it is taken for causal attention, and the answer says so.

    Args:
        journal: where the answer's sentence goes.
        unseen: makes a function whose work is not written down.
    """

    def attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_given: object, **named: Any
    ) -> Any:
        journal.substitutes[_CAUSAL] += 1
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=named.get("scale"),
            enable_gqa=named.get("enable_gqa", False),
        )  # fmt: skip
        if named.get("return_lse"):
            return out, _sums(query)
        if named.get("return_aux") is not None:
            return out, _FLEX.AuxOutput(lse=_sums(query), max_scores=_sums(query))
        return out

    with ExitStack() as stack:
        stack.enter_context(patch.object(_FLEX, _ATTENTION, attention))
        stack.enter_context(patch.object(_FLEX, _MASKS, unseen(getattr(_FLEX, _MASKS))))
        yield


def _sums(query: torch.Tensor) -> torch.Tensor:
    """One number for each row of scores, which the kernel writes beside its result."""
    return query.new_empty(query.shape[:-1], dtype=torch.float32)
