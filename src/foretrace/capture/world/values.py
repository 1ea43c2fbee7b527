"""`SubstitutedValues`: what code is told that asks tensors without memory for their values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    unset_fake_temporarily,
)

from foretrace.capture.module.known import KnownValues, is_small_whole
from foretrace.capture.module.signature import tensors_in
from foretrace.capture.world.journal import Journal

_MODES: Any = torch._C  # noqa: SLF001 - what is in no stub
_get_mode, _FAKE = _MODES._get_dispatch_mode, _MODES._TorchDispatchModeKey.FAKE  # noqa: SLF001
_SCALAR = "aten::_local_scalar_dense"
_COUNTS = ("aten::bincount", "aten::histc")
_DRAWN = ("aten::randint", "aten::randperm")
_NOT_THE_SCRIPTS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))


class SubstitutedValues:
    """Whole numbers that are known stay so; the rest gets a stated substitute."""

    def __init__(self) -> None:
        self._known = KnownValues()

    def state(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """A tensor holds these numbers."""
        self._known.set(tensor, value)

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor holds, if that is known."""
        self._know(tensor)
        return self._known.get(tensor)

    def whole(self, tensor: torch.Tensor, journal: Journal) -> torch.Tensor:
        """What a tensor holds, or as many substitutes, in memory."""
        known = self.known(tensor)
        with unset_fake_temporarily():
            if known is not None:
                return known.to(tensor.dtype).clone()
            value: Any = _substitute(tensor, journal)
            return torch.full((), value, dtype=tensor.dtype).expand(tuple(tensor.shape))

    def called(self, func: Any, args: Any, kwargs: Any, journal: Journal) -> Any:
        """What an operator returns.

        Raises:
            WorkloadError: if it cannot return anything without values.
        """
        if _get_mode(_FAKE) is None:  # tensors that have values, for a while
            return func(*args, **kwargs)
        name = str(func.name()).partition(".")[0]
        if name == _SCALAR:
            return self._scalar(func, args, journal)
        if name in _COUNTS:
            return self._counts(func, args, kwargs, journal)
        given = list(tensors_in((args, kwargs)))
        for one in given:
            self._know(one)
        result = func(*args, **kwargs)
        with unset_fake_temporarily():
            if name in _DRAWN and is_small_whole(result):  # places in data, and their order
                self._known.set(result, func(*args, **kwargs))
            else:
                self._known.follow(func, (args, kwargs), result)
        return result

    def _know(self, tensor: torch.Tensor) -> None:
        """Whole numbers that were written down in the script have their values."""
        value = getattr(tensor, "constant", None)
        if value is None and not isinstance(tensor, FakeTensor) and tensor.device.type == "cpu":
            with unset_fake_temporarily():  # made where nothing dispatches: generators' states
                value = tensor.detach()
        if value is not None and is_small_whole(value):
            self._known.set(tensor, value)

    def _scalar(self, func: Any, args: Any, journal: Journal) -> Any:
        tensor = args[0]
        try:
            with unset_fake_temporarily():
                return self._known.scalar(tensor)
        except KeyError:
            pass
        try:
            return func(*args)
        except DataDependentOutputException:
            pass
        return _substitute(tensor, journal)

    def _counts(self, func: Any, args: Any, kwargs: Any, journal: Journal) -> Any:
        """Tokens of experts: as many each."""
        given = args[0]
        names = [one.name for one in func._schema.arguments]  # noqa: SLF001 - the only way
        named = dict(zip(names, args, strict=False)) | kwargs
        bins = int(named.get("bins", 0) or named.get("minlength", 0))
        if not bins:
            raise DynamicOutputShapeException(func)
        each, more = divmod(given.numel(), bins)
        dtype = given.dtype if "bins" in named else torch.int64
        counts = given.new_empty((bins,), dtype=dtype)
        whole = [each + (at < more) for at in range(bins)]
        with unset_fake_temporarily():
            self._known.set(counts, torch.tensor(whole, dtype=torch.int64))
        journal.substitutes["counts of experts' tokens were balanced: as many each"] += 1
        return counts


@contextmanager
def arrays_of_substitutes(values: SubstitutedValues, journal: Journal) -> Iterator[None]:
    """While it holds, NumPy gets what is known of tensors without memory; lists ask one by one."""

    def with_memory(name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(torch.Tensor, name)

        @functools.wraps(method)
        def called(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            whole = values.whole(tensor, journal) if isinstance(tensor, FakeTensor) else tensor
            with unset_fake_temporarily():
                return method(whole, *args, **kwargs)

        return called

    with ExitStack() as stack:
        for name in ("numpy", "__array__"):
            stack.enter_context(patch.object(torch.Tensor, name, with_memory(name)))
        yield


def _substitute(tensor: torch.Tensor, journal: Journal) -> complex | bool:
    """A number in the place of one that was computed; the answer says so."""
    said = f"a number that was computed ({tensor.dtype}) was"
    if tensor.is_floating_point() or tensor.is_complex():
        value: complex | bool = 1.0
    elif tensor.dtype is torch.bool:
        value = False
    else:  # which may become a size: whoever reads this has to know where it was asked for
        value = 1
        journal.substitutes[f"{said} {value} {_asking_line()}"] += 1
        return value
    journal.substitutes[f"{said} {value}"] += 1
    return value


def _asking_line() -> str:
    """Where a value is asked for: the innermost line that is neither PyTorch's nor ours."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_SCRIPTS):
        frame = frame.f_back
    if frame is None:
        return "somewhere"
    return f"in {Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
