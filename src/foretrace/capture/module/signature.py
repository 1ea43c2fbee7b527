"""Signatures of operators as they run, written as PyTorch's profiler would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretrace.base import number_format

if TYPE_CHECKING:
    import torch


class Signature:
    """Collects an operator's inputs."""

    def __init__(self) -> None:
        """None yet."""
        self._said: dict[str, list[object]] = {
            "dims": [], "types": [], "strides": [], "inputs": [],
        }  # fmt: skip

    def add(self, value: object) -> None:
        """One more input: a tensor, a list of tensors, or anything else."""
        import torch  # on demand: an optional dependency

        if isinstance(value, torch.Tensor):
            self._add(list(value.shape), type_name(value), list(_strides(value)), "")
        elif _is_tensors(value):
            kept = [one for one in value if one is not None]  # type: ignore[attr-defined]
            self._add(
                [list(one.shape) for one in kept],
                [type_name(one) for one in kept],
                [list(_strides(one)) for one in kept],
                "",
            )
        else:
            self._add([], "", [], _text(value))

    def _add(self, dims: object, kind: object, strides: object, text: str) -> None:
        for key, one in zip(self._said, (dims, kind, strides, text), strict=True):
            self._said[key].append(one)

    def text(self) -> str:
        """As `trace` keeps it."""
        return json.dumps(self._said, separators=(",", ":"))


def signature_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Of a call of an operator of PyTorch: what was given, and defaults for the rest."""
    found = Signature()
    for at, argument in enumerate(func._schema.arguments):  # noqa: SLF001 - the only way to it
        given = args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
        found.add(given)
    return found.text()


def copy_signature(to: object, source: object) -> str:
    """Of `aten::copy_`, which casts and copies of any name end in on a device."""
    found = Signature()
    for one in (to, source, False):
        found.add(one)
    return found.text()


def bytes_signature(num_written: int, num_read: int) -> str:
    """Of `aten::copy_` of so many bytes."""
    said = {
        "dims": [[num_written], [num_read], []],
        "types": ["unsigned char", "unsigned char", ""],
        "strides": [[1], [1], []],
        "inputs": ["", "", "False"],
    }
    return json.dumps(said, separators=(",", ":"))


def type_name(tensor: torch.Tensor) -> str:
    """How profilers call its number format; its own name, if no profiler knows it."""
    found = number_format(str(tensor.dtype))
    return found.profiled if found is not None else str(tensor.dtype).removeprefix("torch.")


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors of a value: itself, or in lists, tuples and mappings, or in its attributes."""
    found: list[torch.Tensor] = []
    _collect(value, found)
    return iter(found)


def _collect(value: object, found: list[torch.Tensor]) -> None:
    """Add the tensors of a value."""
    import torch  # on demand: an optional dependency

    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, list | tuple):
        for one in value:
            _collect(one, found)
    elif value is None or isinstance(value, int | float | str):
        return
    elif isinstance(value, Mapping):
        for one in value.values():
            _collect(one, found)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _collect(getattr(value, name), found)


def _strides(tensor: torch.Tensor) -> Sequence[int]:
    import torch  # on demand: an optional dependency

    return tensor.stride() if tensor.layout is torch.strided else ()


def _is_tensors(value: object) -> bool:
    import torch  # on demand: an optional dependency

    return (
        isinstance(value, list | tuple)
        and any(isinstance(one, torch.Tensor) for one in value)
        and all(one is None or isinstance(one, torch.Tensor) for one in value)
    )


def _text(value: object) -> str:
    import torch  # on demand: an optional dependency

    if isinstance(value, torch.dtype):
        found = number_format(str(value))
        return str(found.code) if found is not None else ""
    if isinstance(value, bool | int | float | list | tuple):
        return str(list(value)) if isinstance(value, list | tuple) else str(value)
    return ""
