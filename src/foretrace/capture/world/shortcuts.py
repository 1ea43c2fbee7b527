"""`shortcuts`: what PyTorch does for every rank of a group, or every parameter of a list, once.

Each leaves what it returns as it is. Of a world of a thousand ranks PyTorch would make a tensor
for each rank's chunk of every parameter, to take one. Where a version lacks what is replaced,
nothing is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any, overload
from unittest.mock import patch

import torch
from torch._subclasses import fake_tensor
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.tensor import _sharding_prop

_METADATA: Any = getattr(fake_tensor, "TensorMetadata", None)
_PARAMETER: Any = _fsdp_param
_PROPAGATION: Any = _sharding_prop
_CHUNKS, _FLAG = "_chunk_with_empty", "_propagate_use_strided_shard_flag"
_FLATTEN = "_flatten_into"
Propagate = Callable[[Any, Any], None]
Flatten = Callable[[Any, list[object], Any, Any], None]


@contextmanager
def shortcuts() -> Iterator[None]:
    """While it holds, they are taken; for tensors without memory."""
    with ExitStack() as stack:
        if hasattr(_PARAMETER, _CHUNKS):
            stack.enter_context(patch.object(_PARAMETER, _CHUNKS, ChunksOnDemand))
        if hasattr(_PROPAGATION, _FLAG):
            flag = _once_for_each_call(getattr(_PROPAGATION, _FLAG))
            stack.enter_context(patch.object(_PROPAGATION, _FLAG, flag))
        if hasattr(_METADATA, _FLATTEN):
            flatten = _at_once(getattr(_METADATA, _FLATTEN))
            stack.enter_context(patch.object(_METADATA, _FLATTEN, flatten))
        yield


class ChunksOnDemand(Sequence[torch.Tensor]):
    """As `torch.chunk` divides, and empty ones up to a number; each is made when asked for."""

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._num_chunks, self._dim = tensor, num_chunks, dim
        self._each = max(-(-tensor.size(dim) // num_chunks), 1)

    def __len__(self) -> int:
        return self._num_chunks

    @overload
    def __getitem__(self, at: int) -> torch.Tensor: ...
    @overload
    def __getitem__(self, at: slice) -> list[torch.Tensor]: ...
    def __getitem__(self, at: int | slice) -> torch.Tensor | list[torch.Tensor]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(self._num_chunks))]
        size = self._tensor.size(self._dim)
        first = min(range(self._num_chunks)[at] * self._each, size)
        if first == size > 0:  # there are fewer chunks than asked for
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, first, min(self._each, size - first))


class _Asked:
    """A call, of whose sharded arguments one of each kind is left."""

    def __init__(self, call: Any) -> None:
        self.call = call
        strided: dict[object, Any] = {}
        for spec in call.args_spec:
            if any(isinstance(one, _PROPAGATION._StridedShard) for one in spec.placements):  # noqa: SLF001
                strided.setdefault(spec.use_strided_shard_as_shard_order, spec)
        self.args_spec = tuple(strided.values())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.call, name)


def _once_for_each_call(propagate: Propagate) -> Propagate:
    """DTensor reads all arguments of a call again for each of its parameters.

    It asks what those that are sharded with strides say of their order, and whether they differ.
    """
    last: _Asked | None = None

    def asked(strategy: Any, call: Any) -> None:
        nonlocal last
        if last is None or last.call is not call:
            last = _Asked(call)
        propagate(strategy, last)

    return asked


def _at_once(flatten: Flatten) -> Flatten:
    """What a tensor looks like, to find an operator's result again that was worked out before."""
    fields = attrgetter(*(one.name for one in dataclasses.fields(_METADATA)))

    def flattened(metadata: Any, result: list[object], mode: Any, state: Any) -> None:
        if mode.shape_env is None:  # sizes are numbers
            result.append(fields(metadata))
        else:
            flatten(metadata, result, mode, state)

    return flattened
