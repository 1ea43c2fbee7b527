"""`ModuleRecorder`: sees every operator that a module dispatches, forward and backward.

Each call of an operator in the forward pass is a *tick*; operators that start a kernel are
*events*. Autograd numbers its functions as they are made, so a function that runs backward tells
the tick that made it, and with it the module whose work it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from foretrace.capture.module.divided import COPIED, SUMMED
from foretrace.capture.module.known import KnownValues
from foretrace.capture.module.signature import (
    Signature,
    copy_signature,
    signature_of,
    tensors_in,
)
from foretrace.operators import OperatorClass, operator_class

if TYPE_CHECKING:
    import torch
    from torch import nn

Scope = tuple[str, ...]  # paths of the modules that are running, the outermost first

# Names by which copies are dispatched; on a device `copy_` does them.
_COPIES = ("aten::_to_copy", "aten::clone")
# Names by which memory is filled; all of them read nothing.
_FILLS = frozenset(
    f"aten::{prefix}{what}{suffix}"
    for what in ("zeros", "ones", "full")
    for prefix, suffix in (("", ""), ("new_", ""), ("", "_like"))
)
_SCALAR = "aten::_local_scalar_dense"
_CHECKS = ("aten::_assert", "profiler::", "prim::", "prims::", "aten::_has_", "aten::sym_")


@dataclass(frozen=True)
class Event:
    """An operator that starts work on a device."""

    tick: int  # of the forward pass that it belongs to
    name: str
    signature: str
    reads: tuple[int, ...]  # storages
    writes: tuple[int, ...]
    needs: tuple[int, ...]  # of what is read, storages whose gradients are wanted
    read_bytes: int
    written_bytes: int
    is_backward: bool
    is_again: bool  # forward work within the backward pass
    is_exchange: bool


@dataclass
class ModuleRecorder:
    """What has been seen so far."""

    events: list[Event] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)  # by tick
    saved: dict[int, int] = field(default_factory=dict)  # storage -> tick that kept it first
    num_bytes: dict[int, int] = field(default_factory=dict)  # by storage
    scope: Scope = ()
    is_backward: bool = False
    num_forward: int = 0  # ticks of the forward pass, once it is over
    known: KnownValues | None = None  # values that code may ask for; `None`: it has all
    _numbers: list[int] = field(default_factory=list)  # autograd's next number, by tick
    _held: dict[int, object] = field(default_factory=dict)  # storages, so that no key is reused
    _same: dict[int, int] = field(default_factory=dict)  # storages that stand for another
    _is_paused: bool = False

    def storage(self, tensor: torch.Tensor) -> int:
        """A number for the memory behind a tensor."""
        import torch  # on demand: an optional dependency

        if tensor.layout is not torch.strided:
            return id(self._held.setdefault(id(tensor), tensor))
        storage = tensor.untyped_storage()
        key = int(storage._cdata)  # noqa: SLF001 - as torch.multiprocessing compares them
        if key not in self._held:
            self._held[key] = storage
            self.num_bytes[key] = storage.nbytes()
        return self._same.get(key, key)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While it holds, operators are seen, and what autograd keeps."""
        import torch  # on demand: an optional dependency

        with ExitStack() as stack:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._keep, _same))
            stack.enter_context(_mode(self))
            yield

    def begin_backward(self) -> None:
        """The forward pass is over."""
        self.scope, self.is_backward, self.num_forward = (), True, len(self.scopes)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While it holds, nothing is seen."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    @contextmanager
    def following(self, module: nn.Module) -> Iterator[None]:
        """While it holds, `scope` says which modules of this one are running."""
        handles = []
        try:
            for path, one in module.named_modules():
                if path:
                    enter, leave = self._hooks(path)
                    handles.append(one.register_forward_pre_hook(enter, prepend=True))
                    handles.append(one.register_forward_hook(leave, always_call=True))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hooks(self, path: str) -> tuple[Any, Any]:
        """What to do as a module begins and as it ends; later calls of it have a number."""
        outer: list[Scope] = []
        calls = 0

        def enter(_module: nn.Module, _inputs: object) -> None:
            nonlocal calls
            outer.append(self.scope)
            # A call that autograd repeats is the first one's work.
            name = path if not calls or self.is_backward else f"{path}@{calls}"
            calls += not self.is_backward
            self.scope = (*self.scope, name)

        def leave(_module: nn.Module, _inputs: object, _output: object) -> None:
            self.scope = outer.pop()

        return enter, leave

    def see(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator and write down what it was."""
        if self.known is not None and func.name() == _SCALAR:
            with suppress(KeyError):
                return self.known.scalar(args[0])
        result = func(*args, **kwargs)
        if self._is_paused:
            return result
        if self.known is not None and not self.is_backward:
            self.known.follow(func, (args, kwargs), result)
        is_again = self.is_backward and bool(self.scope)
        tick = self._tick(is_forward=not self.is_backward or is_again)
        name, starts_work = known_operator(func)
        if name == COPIED:
            self._same[self.storage(result)] = self.storage(args[0])
        elif starts_work:
            self.events.append(
                self._event(func, (args, kwargs), result, tick=tick, is_again=is_again)
            )
        return result

    def _event(
        self,
        func: Any,
        given: tuple[Sequence[Any], Mapping[str, Any]],
        result: Any,
        *,
        tick: int,
        is_again: bool,
    ) -> Event:
        inputs, outputs = list(tensors_in(given)), list(tensors_in(result))
        name, signature = device_call(func, given, inputs=inputs, outputs=outputs)
        if known_operator(func)[0] in _FILLS:
            inputs = []
        if name == SUMMED:
            self._same[self.storage(outputs[0])] = self.storage(inputs[0])
        return Event(
            tick=tick,
            name=name,
            signature=signature,
            reads=tuple(self.storage(one) for one in inputs),
            writes=tuple(self.storage(one) for one in outputs),
            needs=tuple(self.storage(one) for one in inputs if one.requires_grad),
            read_bytes=sum(_bytes_of(one) for one in inputs),
            written_bytes=sum(_bytes_of(one) for one in outputs),
            is_backward=self.is_backward,
            is_again=is_again,
            is_exchange=name == SUMMED,
        )

    def _tick(self, *, is_forward: bool) -> int:
        import torch  # on demand: an optional dependency

        if is_forward:
            self.scopes.append(self.scope)
            self._numbers.append(torch._C._autograd._get_sequence_nr())  # noqa: SLF001
            return len(self.scopes) - 1
        node: Any = torch._C._current_autograd_node()  # noqa: SLF001 - as PyTorch's own counters do
        number = -1 if node is None else node._sequence_nr()  # noqa: SLF001
        # Sums of gradients and what no function runs belong to what ran before.
        known = bisect_right(self._numbers, number) if number >= 0 else len(self._numbers)
        if known < len(self._numbers):
            return known
        return self.events[-1].tick if self.events else 0

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self._is_paused and self.scopes and not self.is_backward:
            self.saved.setdefault(self.storage(tensor), len(self.scopes) - 1)
        return tensor


def device_call(
    func: Any,
    given: tuple[Sequence[Any], Mapping[str, Any]],
    *,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> tuple[str, str]:
    """Name and signature of the operator that does a call's work on a device."""
    name, _ = known_operator(func)
    if name in _COPIES:
        return "aten::copy_", copy_signature(outputs[0], inputs[0])
    if name in _FILLS:
        filled = Signature()
        filled.add(outputs[0])
        return "aten::fill_", filled.text()
    return name, signature_of(func, *given)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _mode(recorder: ModuleRecorder) -> Any:
    from torch.utils._python_dispatch import (  # on demand: an optional dependency
        TorchDispatchMode,
    )

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Hands every operator to the recorder."""

        def __torch_dispatch__(
            self, func: Any, types: object, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            return recorder.see(func, args, kwargs or {})

    return Mode()  # type: ignore[no-untyped-call]


@cache
def known_operator(func: Any) -> tuple[str, bool]:
    """An operator's name without its overload, and whether it starts work on a device."""
    name = str(func.name()).partition(".")[0]
    if func.is_view or name.startswith(_CHECKS):
        return name, False
    is_plain = name.startswith("aten::")
    return name, not (is_plain and operator_class(name) is OperatorClass.OTHER)


def _bytes_of(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
