"""`KnownValues`: small tensors of whole numbers whose values are known although they have none.

Code asks masks and positions what is in them, and goes one way or the other. Those come from the
inputs, or are counted up (`arange`), so their values are carried along beside the tensors that
stand for them. Values that depend on parameters are never known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretrace.capture.module.signature import tensors_in

if TYPE_CHECKING:
    import torch

_MOST_NUMBERS = 1 << 20  # of one tensor: a mask of 1,024 by 1,024 tokens
_COPY = "aten::copy_"
# Operators that one side can decide, and by what: all true, or nothing.
_DECIDING = {
    "aten::bitwise_or": True, "aten::logical_or": True, "aten::__or__": True,
    "aten::bitwise_and": False, "aten::logical_and": False, "aten::__and__": False,
}  # fmt: skip
_WITHOUT_VALUES = ("aten::empty", "aten::new_empty")


class KnownValues:
    """Values of tensors without memory, by tensor."""

    def __init__(self) -> None:
        """None yet."""
        from torch.utils.weak import WeakIdKeyDictionary  # on demand: an optional dependency

        self._values: Any = WeakIdKeyDictionary()

    def state(self, given: object, values: object) -> None:
        """Inputs without memory have these values, where these have any."""
        for one, value in zip(tensors_in(given), tensors_in(values), strict=True):
            if value.device.type == "cpu" and is_small_whole(value):
                self._values[one] = value.detach()

    def set(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """A tensor without memory has this value."""
        self._values[tensor] = value

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of a tensor, if it is known."""
        value: torch.Tensor | None = self._values.get(tensor)
        return value

    def scalar(self, tensor: torch.Tensor) -> Any:
        """The one number in a tensor.

        Raises:
            KeyError: if it is not known.
        """
        return self._values[tensor].item()

    def follow(
        self, func: Any, given: tuple[Sequence[Any], Mapping[str, Any]], result: Any
    ) -> None:
        """Do to values what an operator does to the tensors that stand for them."""
        import torch  # on demand: an optional dependency

        inputs = list(tensors_in(given))
        if self._decided(func, given[0], result):
            return
        is_known = all(one in self._values for one in inputs)
        outputs = list(tensors_in(result)) if is_known else []
        if outputs and all(map(is_small_whole, outputs)) and _is_followed(func):
            args, kwargs = self._real(given[0]), self._real(dict(given[1]))
            try:
                with torch.no_grad():
                    found = list(tensors_in(func(*args, **kwargs)))
            except (RuntimeError, NotImplementedError):  # a CPU has not every operator
                found = []
            if len(found) == len(outputs):
                for one, value in zip(outputs, found, strict=True):
                    self._values[one] = value
                return
        if func._schema.is_mutable and any(one in self._values for one in inputs):  # noqa: SLF001
            copied = self.get(given[0][1]) if func.name() == _COPY else None
            self._forget(list(tensors_in(_written(func, given[0]))))
            if copied is not None and is_small_whole(given[0][0]):
                to = given[0][0]
                self._values[to] = copied.to(to.dtype).expand(to.shape).clone()

    def _decided(self, func: Any, args: Sequence[Any], result: Any) -> bool:
        """Whether one known side alone says the result: all true of an or, nothing of an and."""
        decides = _DECIDING.get(str(func.name()).partition(".")[0])
        outputs = list(tensors_in(result))
        if decides is None or len(outputs) != 1 or not is_small_whole(outputs[0]):
            return False
        for one in tensors_in(args):
            value = self.get(one)
            if value is None or value.shape != outputs[0].shape:
                continue
            is_true = str(outputs[0].dtype) == "torch.bool" and bool(value.all())
            if is_true if decides else not bool(value.any()):
                self._values[outputs[0]] = value.to(outputs[0].dtype, copy=True)
                return True
        return False

    def _forget(self, changed: Sequence[torch.Tensor]) -> None:
        storages = {one.untyped_storage()._cdata for one in changed}  # noqa: SLF001
        for one in list(self._values.keys()):
            if one.untyped_storage()._cdata in storages:  # noqa: SLF001
                del self._values[one]

    def _real(self, value: Any) -> Any:
        import torch  # on demand: an optional dependency

        if isinstance(value, torch.Tensor):
            return self._values[value]
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, dict):
            return {key: self._real(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._real(one) for one in value)
        return value


def _written(func: Any, args: Sequence[Any]) -> list[Any]:
    """Arguments that an operator writes to."""
    arguments = func._schema.arguments  # noqa: SLF001 - the only way to them
    return [
        value
        for argument, value in zip(arguments, args, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def is_small_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one whose values are carried along: few, and whole numbers."""
    is_whole = not (tensor.is_floating_point() or tensor.is_complex())
    return is_whole and tensor.numel() <= _MOST_NUMBERS


def _is_followed(func: Any) -> bool:
    """Whether an operator gives the same for the same: nothing random, nothing unset."""
    import torch  # on demand: an optional dependency

    is_random = torch.Tag.nondeterministic_seeded in func.tags
    return not is_random and not str(func.name()).startswith(_WITHOUT_VALUES)
