"""`Observer`: sees every operator and every communication that a rank issues, below autograd."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch._subclasses.fake_tensor import (
    FakeTensor,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode

from foretrace.capture.gloo import NAMES
from foretrace.capture.module.recorder import device_call, known_operator
from foretrace.capture.module.signature import tensors_in
from foretrace.capture.world.device_times import DeviceTimes
from foretrace.capture.world.journal import Journal
from foretrace.capture.world.mail import Mailbox
from foretrace.capture.world.memory import StorageCount
from foretrace.capture.world.stand_ins import stand_in
from foretrace.capture.world.values import SubstitutedValues

_C10D: Any = _distributed_c10d  # what it offers is in no stub
# Names of functional collectives -> as NCCL calls what they do.
_FUNCTIONAL = {
    "all_reduce": "allreduce",
    "all_gather_into_tensor": "_allgather_base",
    "reduce_scatter_tensor": "_reduce_scatter_base",
    "all_to_all_single": "all_to_allv",
    "broadcast": "broadcast",
    "isend": "send",
    "irecv": "recv",
}
_TRANSFERS = {"send": "send", "recv_": "recv"}
_WAIT = "_c10d_functional::wait_tensor"
# Their kernels write a loss of every element, and its sum or mean into the same storage.
_REDUCED_IN_PLACE = {
    torch.ops.aten.mse_loss.default,
    torch.ops.aten.smooth_l1_loss.default,
    torch.ops.aten.binary_cross_entropy.default,
    torch.ops.aten.soft_margin_loss.default,
}
_RANDOM = "numbers that other ranks send were random"
_MARKS = "profiler"  # namespace of what opens and closes a script's own
_DEVICE = torch.ops.prim.device.default  # what every operator asks tensors without memory


class Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes what is dispatched into a journal."""

    def __init__(
        self,
        journal: Journal,
        values: SubstitutedValues | None,
        mailbox: Mailbox,
        times: DeviceTimes,
    ) -> None:
        """`values`: what code is told that asks for values; `None`: tensors have theirs."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.journal = journal
        self.memory = StorageCount()
        self.groups: dict[str, tuple[int, ...]] = {}  # of those that something was exchanged in
        self.last_exchange = -1
        self.unheld: list[int] = []  # exchanges that nothing waited for yet
        self._values = values
        self._mailbox = mailbox
        self._has_objects = False
        self._times = times
        self._expected: dict[int, tuple[int, torch.Tensor]] = {}  # exchange -> source, buffer
        self._written_by: dict[int, int] = {}  # storage -> exchange, of functional collectives
        self._paused = 0
        self._ended_ns = time.perf_counter_ns()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and what keeps it from being costs time at every operator."""
        return False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While it holds, nothing is written down."""
        self._paused += 1
        try:
            with self._times.marked(aside=True):
                yield
        finally:
            self._paused -= 1

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run it, unless a tensor's own class comes first, and write it down."""
        if func is _DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        if not all(map(_is_plain, types)):
            return NotImplemented
        kwargs = kwargs or {}
        if self._paused or func.namespace == _MARKS:
            return func(*args, **kwargs)
        begun_ns = time.perf_counter_ns()
        if self._values is not None:
            try:
                result = self._values.called(func, args, kwargs, self.journal)
            except UnsupportedOperatorException:
                if func.namespace != "c10d":
                    raise
                result = _done_work(
                    args
                )  # coalesced ones have no kernel for tensors without memory
        else:
            with self._times.marked():
                result = func(*args, **kwargs)
        result = self._write(func, (args, kwargs), result, begun_ns=begun_ns)
        self._ended_ns = time.perf_counter_ns()
        return result

    def _write(
        self, func: Any, given: tuple[Any, Mapping[str, Any]], result: Any, *, begun_ns: int
    ) -> Any:
        name = str(func.name())
        host_ns = begun_ns - self._ended_ns
        namespace, _, rest = name.partition("::")
        short = rest.partition(".")[0]
        if namespace == "c10d":
            self._c10d(short, func, given, host_ns)
            result = _with_future(given[0], result)
        elif name == _WAIT:
            self._hold(given[0][0])
        elif namespace.startswith("_c10d_functional"):
            self._functional(short, func, given, result, host_ns=host_ns)
        elif namespace == "_dtensor":
            self._functional("all_to_all_single", func, given, result, host_ns=host_ns)
        elif known_operator(func)[1]:
            inputs, outputs = list(tensors_in(given)), list(tensors_in(result))
            measured_ns = 0 if self._values is not None else time.perf_counter_ns() - begun_ns
            at = self.journal.work(
                *device_call(func, given, inputs=inputs, outputs=outputs),
                host_ns=host_ns, measured_ns=measured_ns,
            )  # fmt: skip
            self._times.is_of(at)
        if not func.is_view:
            is_new = all(one.alias_info is None for one in func._schema.returns)  # noqa: SLF001
            for one in tensors_in(result):
                self.memory.see(one, at_least=_bytes_kept(func, given[0]), is_new=is_new)
        return result

    def _c10d(
        self, short: str, func: Any, given: tuple[Any, Mapping[str, Any]], host_ns: int
    ) -> None:
        """A call of a process group."""
        name = _TRANSFERS.get(short) or NAMES.get(short, (short, short))[1]
        arguments = _named(func, given)
        group = next((each for each in map(_group_of, arguments.values()) if each), None)
        if group is None:
            return
        came_out = [one for key, one in arguments.items() if key.startswith("output")]
        went_in = [one for key, one in arguments.items() if not key.startswith("output")]
        peer = arguments.get("dst", arguments.get("src", -1)) if short in _TRANSFERS else -1
        at = self._exchange(name, group, went_in, came_out, peer=peer, host_ns=host_ns)
        if name == "all_to_allv" and self._values is not None:
            self._exchange_counts(came_out[0], went_in[0])
        if self._has_objects:
            self._objects(name, group, arguments, went_in, came_out)
        if short in _TRANSFERS:
            self._mail(name, at, self.groups[str(group.group_name)][peer], went_in[0][0])

    @contextmanager
    def objects(self, *, arrive: bool) -> Iterator[None]:
        """While it holds, what one rank of a group gives the others arrives."""
        before, self._has_objects = self._has_objects, arrive
        try:
            yield
        finally:
            self._has_objects = before

    def _objects(
        self, name: str, group: Any, arguments: Mapping[str, Any], went_in: Any, came_out: Any
    ) -> None:
        """Pickled objects, which a fake group leaves where they were."""
        members = self.groups[str(group.group_name)]
        root = int(arguments.get("root_rank", 0))
        own, source = int(group.rank()), members[root]
        gave, got = list(tensors_in(went_in)), list(tensors_in(came_out))
        with self.paused():
            if name == "broadcast":
                message, everyone = (gave or got)[0], f"all.{members[0]}.{members[-1]}"
                if own == root:
                    self._mailbox.post(f"{everyone}.{len(members)}", message, message)
                else:
                    self._fill(message, source, f"{everyone}.{len(members)}")
            elif name == "scatter" and own == root:
                for at, part in enumerate(gave):
                    if at != own:
                        self._mailbox.post(members[at], part, part)
                    else:
                        got[0].copy_(part)
            elif name == "scatter":
                self._fill(got[0], source, members[own])
            elif name == "gather":
                for one in got:
                    one.copy_(gave[0])

    def _fill(self, message: torch.Tensor, source: int, target: int | str) -> None:
        value = self._mailbox.take(source, message, to=target)
        if value is not None:
            message.copy_(value)

    def _exchange_counts(self, received: torch.Tensor, sent: torch.Tensor) -> None:
        """Counts of tokens that ranks tell each other: as many come as go."""
        values = self._values
        is_message = isinstance(sent, FakeTensor) and self._mailbox.carries(sent)
        if values is None or not is_message or received.shape != sent.shape:
            return
        known = values.known(sent)
        if known is not None:
            values.state(received, known)
            self.journal.substitutes["counts that other ranks send were as those sent there"] += 1

    def _mail(self, name: str, at: int, other: int, tensor: torch.Tensor) -> None:
        """Whole numbers arrive: pipelines vote with them, and tell shapes."""
        if not self._mailbox.carries(tensor):
            return
        if name == "recv":
            self._expected[at] = (other, tensor)
            return
        value: torch.Tensor | None = tensor
        if isinstance(tensor, FakeTensor) and self._values is not None:
            value = self._values.known(tensor)
        with unset_fake_temporarily():
            self._mailbox.post(other, tensor, value)

    def _receive(self, exchange: int) -> None:
        source, tensor = self._expected.pop(exchange, (-1, None))
        if tensor is None:
            return
        value = self._mailbox.take(source, tensor)
        if value is None:
            self.journal.substitutes["whole numbers that other ranks send were 1"] += 1
            value = torch.ones(tensor.shape, dtype=tensor.dtype)
        if isinstance(tensor, FakeTensor) and self._values is not None:
            self._values.state(tensor, value)
        else:
            tensor.copy_(value)

    def _functional(
        self,
        short: str,
        func: Any,
        given: tuple[Any, Mapping[str, Any]],
        result: Any,
        *,
        host_ns: int,
    ) -> None:
        """A collective that returns what it makes."""
        arguments = _named(func, given)
        plain = short.removesuffix("_").removesuffix("_out").removesuffix("_coalesced")
        name = _FUNCTIONAL.get(plain)
        if name is None:
            return
        group = _C10D._resolve_process_group(arguments["group_name"])  # noqa: SLF001
        peer = arguments.get("dst", arguments.get("src", -1)) if name in {"send", "recv"} else -1
        at = self._exchange(name, group, given, result, peer=peer, host_ns=host_ns)
        for one in tensors_in(result):
            self._written_by[_key(one)] = at

    def _exchange(
        self, name: str, group: Any, went_in: Any, came_out: Any, *, peer: int, host_ns: int
    ) -> int:
        inputs, outputs = list(tensors_in(went_in)), list(tensors_in(came_out))
        elements = tuple(sum(one.numel() for one in each) for each in (inputs, outputs))
        some = next(iter((*inputs, *outputs)), None)
        group_name = str(group.group_name)
        if group_name not in self.groups:
            self.groups[group_name] = tuple(dist.get_process_group_ranks(group))
        at = self.journal.exchange(
            name,
            group_name,
            elements=(elements[0], elements[1] if outputs else elements[0]),
            dtype="" if some is None else str(some.dtype).removeprefix("torch."),
            peer=self.groups[group_name][peer] if peer >= 0 else -1,
            host_ns=host_ns,
        )
        self.last_exchange = at
        self.unheld.append(at)
        self._times.is_of(None)  # fake groups copy what other ranks would send
        if self._values is None:
            with self.paused():
                is_random = stand_in(name, inputs, outputs, place=int(group.rank()))
            self.journal.substitutes[_RANDOM] += is_random
        return at

    def hold_for(self, exchange: int) -> None:
        """The current stream waits for an exchange."""
        self.journal.hold(self.journal.stream, exchange)
        if exchange in self.unheld:
            self.unheld.remove(exchange)
        with self.paused(), unset_fake_temporarily():
            self._receive(exchange)

    def hold_for_all(self) -> None:
        """The current stream waits for all exchanges that nothing waited for."""
        for exchange in list(self.unheld):
            self.hold_for(exchange)

    def _hold(self, tensor: torch.Tensor) -> None:
        at = self._written_by.pop(_key(tensor), None)
        if at is not None:
            self.hold_for(at)


def _bytes_kept(func: Any, given: Sequence[Any]) -> int:
    """Of losses whose kernels reduce in place: the result keeps the storage of every element's."""
    if func not in _REDUCED_IN_PLACE:
        return 0
    return int(given[0].numel() * given[0].element_size())


def _is_plain(kind: type) -> bool:
    """Whether tensors of a class are what operators work on: distributed ones come apart first."""
    found: Any = kind
    return kind is FakeTensor or found.__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _named(func: Any, given: tuple[Any, Mapping[str, Any]]) -> dict[str, Any]:
    """Arguments of a call by name."""
    names = [one.name for one in func._schema.arguments]  # noqa: SLF001 - the only way to them
    return {**dict(zip(names, given[0], strict=False)), **given[1]}


def _group_of(value: object) -> Any:
    """The process group that an argument is, or `None`."""
    if not isinstance(value, torch.ScriptObject):
        return None
    try:
        return dist.ProcessGroup.unbox(value)
    except (RuntimeError, TypeError):  # a reduction
        return None


def _with_future(given: Sequence[Any], result: Any) -> Any:
    """Work that tells its tensors, as DDP wants it: those given first, which it writes to."""
    if not (isinstance(result, tuple) and len(result) == 2):  # noqa: PLR2004  tensors, work
        return result
    return given[0], _done_work(given)


def _done_work(given: Sequence[Any]) -> Any:
    """Work that is over, of the tensors given first."""
    future: Any = torch.futures.Future()
    future.set_result(list(tensors_in(given[0])))
    return _C10D._create_work_from_future(future).boxed()  # noqa: SLF001


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - as torch.multiprocessing does
