"""`tensors_without_memory`: what PyTorch and scripts do with memory, where tensors have none."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.data import DataLoader

_LOADER: Any = DataLoader
_swapped: Any = torch.utils.swap_tensors
_copied_with_memory: Any = torch.Tensor.__deepcopy__
_formatted_with_memory: Any = torch.Tensor.__format__
_made: Any = _LOADER.__init__


@contextmanager
def tensors_without_memory() -> Iterator[None]:
    """While it holds, they are moved, copied, printed and loaded without it."""
    with (
        patch.object(torch.utils, "swap_tensors", _take_data),
        patch.object(torch.Tensor, "__deepcopy__", _copied),
        patch.object(torch.Tensor, "__format__", _formatted),
        patch.object(_LOADER, "__init__", _without_workers),
        patch.object(torch.amp.GradScaler, "_maybe_opt_step", _stepped),
        # Distributions ask whether all their parameters are allowed.
        patch.object(torch.distributions.Distribution, "_validate_args", new=False),
    ):
        yield


def _take_data(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """`Module.to` exchanges tensors without memory, which it refuses for those that are known."""
    if not isinstance(tensor, FakeTensor):
        _swapped(tensor, other)
    elif tensor.device.type == other.device.type:
        tensor.data = other
    else:  # made on no device, and moved to one: data may not change its kind
        kept, taken = vars(tensor), vars(other)
        tensor.__dict__, other.__dict__ = taken, kept
        torch._C._swap_tensor_impl(tensor, other)  # noqa: SLF001 - modes hold weak references


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
    """A copy of a module's: of tensors without memory, PyTorch's own would copy that."""
    if not isinstance(tensor, FakeTensor):
        return _copied_with_memory(tensor, memo)
    if id(tensor) not in memo:
        made = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, tensor.requires_grad)
        made.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            made.grad = _copied(tensor.grad, memo)
        memo[id(tensor)] = made
    return memo[id(tensor)]


def _formatted(tensor: torch.Tensor, form: str) -> str:
    """Of one number what scripts print of it, as PyTorch does of tensors of no other class."""
    if isinstance(tensor, FakeTensor) and not tensor.dim():
        return format(tensor.item(), form)
    return str(_formatted_with_memory(tensor, form))


def _stepped(
    _scaler: object, optimizer: Any, _states: object, *args: Any, **kwargs: Any
) -> float | None:
    """A scaler leaves out steps of infinite gradients: none is known to be."""
    taken: float | None = optimizer.step(*args, **kwargs)
    return taken


@functools.wraps(_made)
def _without_workers(loader: Any, *args: Any, **kwargs: Any) -> None:
    """A loader's own processes would send it tensors' memory."""
    _made(loader, *args, **kwargs)
    loader.num_workers = 0
