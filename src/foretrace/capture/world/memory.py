"""`StorageCount`: bytes of storages that are alive, and the most that were at once."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from foretrace.capture.module.signature import tensors_in
from foretrace.capture.world.role import RoleMemory


class StorageCount:
    """Follows storages from the operator that made them to their end."""

    def __init__(self) -> None:
        self._alive: dict[int, tuple[object, int]] = {}  # key -> reference, bytes
        self._bytes = 0
        self._peak = 0
        self._optimizers: list[torch.optim.Optimizer] = []
        self._state_bytes = self._parameter_bytes = self._gradient_bytes = 0

    def see(self, tensor: torch.Tensor, *, at_least: int = 0, is_new: bool = True) -> None:
        """A tensor that an operator returned, whose storage has so many bytes `at_least`.

        What was only written to (not `is_new`) is as large as it was, unless it is resized: a
        storage that was never seen stands for one with memory, such as a bucket of DDP.
        """
        if tensor.layout is not torch.strided or tensor.is_meta:  # that has no memory
            return
        storage = tensor.untyped_storage()
        if is_new or _key_of(storage) in self._alive:
            self.see_storage(storage, at_least=at_least)

    def see_storage(self, storage: torch.UntypedStorage, *, at_least: int = 0) -> None:
        """It was made, or resized, as FSDP does with what it gathers."""
        key = _key_of(storage)
        num_bytes = max(storage.nbytes(), at_least)
        reference, before = self._alive.get(key, (None, 0))
        if reference is None:
            reference = weakref.ref(storage, lambda _: self._end(key))
        self._alive[key] = (reference, num_bytes)
        self._bytes += num_bytes - before
        self._peak = max(self._peak, self._bytes)

    def end_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has made its step: its states are there, and gradients still are."""
        if all(optimizer is not one for one in self._optimizers):
            self._optimizers.append(optimizer)
        owned = [
            one
            for each in self._optimizers
            for group in each.param_groups
            for one in group["params"]
        ]
        self._parameter_bytes = _bytes_of(owned)
        self._gradient_bytes = max(
            self._gradient_bytes, _bytes_of(one.grad for one in owned if one.grad is not None)
        )
        self._state_bytes = _bytes_of(
            value for each in self._optimizers for value in tensors_in(list(each.state.values()))
        )

    def memory(self) -> RoleMemory:
        """What was found."""
        return RoleMemory(
            peak=self._peak,
            parameters=self._parameter_bytes,
            gradients=self._gradient_bytes,
            optimizer=self._state_bytes,
        )

    def _end(self, key: int) -> None:
        _, num_bytes = self._alive.pop(key, (None, 0))
        self._bytes -= num_bytes


def _bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Of their storages on this rank, each once."""
    found = {}
    for one in tensors:
        for part in _parts(getattr(one, "_local_tensor", one)):
            storage = part.untyped_storage()
            found[_key_of(storage)] = storage.nbytes()
    return sum(found.values())


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors that hold it: a sparse gradient's are its indices and its values."""
    if tensor.layout is not torch.sparse_coo:
        return (tensor,)
    return tensor._indices(), tensor._values()  # noqa: SLF001 - those of a gradient are uncoalesced


def _key_of(storage: torch.UntypedStorage) -> int:
    return int(storage._cdata)  # noqa: SLF001 - as torch.multiprocessing compares them
