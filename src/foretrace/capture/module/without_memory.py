"""Copies of modules and inputs that have shapes and no memory: PyTorch's device "meta"."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from foretrace.base import WorkloadError

if TYPE_CHECKING:
    import torch
    from torch import nn

_DEVICE = "meta"


def module_without_memory(module: nn.Module) -> nn.Module:
    """A copy whose parameters, buffers and other tensors have shapes alone.

    Raises:
        WorkloadError: if the module cannot be copied.
    """
    known: dict[int, Any] = {}
    for tensor in _tensors_of(module):
        known[id(tensor)] = _without_memory(tensor)
    try:
        # Tensors are found in the memo, so none is copied with its memory.
        return copy.deepcopy(module, known)
    except Exception as err:  # whatever a user's module raises when it is copied
        raise WorkloadError(
            f"module {type(module).__name__} cannot be copied ({_first_line(err)}): keep what "
            "cannot be (locks, files, process groups) out of it while it is captured"
        ) from err


def value_without_memory(value: Any) -> Any:
    """Inputs with shapes alone; what is no tensor stays."""
    import torch  # on demand: an optional dependency

    if isinstance(value, torch.Tensor):
        return _without_memory(value)
    if isinstance(value, Mapping):
        return {key: value_without_memory(one) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(value_without_memory(one) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(value_without_memory(one) for one in value)
    return value


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    import torch  # on demand: an optional dependency

    found = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_DEVICE)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(found, requires_grad=tensor.requires_grad)
    return found.requires_grad_(tensor.requires_grad and tensor.is_leaf)


def _tensors_of(module: nn.Module) -> Iterator[torch.Tensor]:
    """Parameters, buffers, and tensors that are plain attributes, alone or in lists."""
    import torch  # on demand: an optional dependency

    for one in module.modules():
        for value in (*one._parameters.values(), *one._buffers.values()):  # noqa: SLF001
            if value is not None:
                yield value
        for value in vars(one).values():
            held = value.values() if isinstance(value, dict) else value
            for each in held if isinstance(value, dict | list | tuple) else (value,):
                if isinstance(each, torch.Tensor):
                    yield each


def _first_line(err: BaseException) -> str:
    lines = str(err).strip().splitlines()
    return lines[0] if lines else type(err).__name__
