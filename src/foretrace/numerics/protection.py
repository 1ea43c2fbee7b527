"""`protect`: every product and embedding sum of a model is checked while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from foretrace.answer import Answer, Column, Table, Told, Unit, count_text
from foretrace.base import WorkloadError, optional
from foretrace.numerics.checks import CheckedWeight, wrong_attention, wrong_rows
from foretrace.numerics.formats import float_format
from foretrace.numerics.injection import Inputs, run

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = optional("torch", extra="numerics")

_SUM_TOLERANCE = 1e-5  # of embedding sums in fp32: arXiv:2103.00130


@dataclass(frozen=True, kw_only=True)
class CorruptionFound:
    """A module's output whose sum did not come out."""

    module: str
    num_rows: int  # wrong ones
    first_row: int
    call: int  # of this module, from 0


@dataclass
class _Guarded:
    """One module, and the sums of its parameters as they were."""

    name: str
    module: Any
    weight: CheckedWeight
    bias: float  # its sum
    num_calls: int = 0


class Protection:
    """Checks on a model's modules; ends with `remove`, or as a context.

    Attributes:
        found: corruptions so far.
    """

    def __init__(
        self, model: torch.nn.Module, on_error: Callable[[CorruptionFound], object] | None
    ) -> None:
        """Encode every parameter that is guarded."""
        self.found: list[CorruptionFound] = []
        self._num_attended = 0
        self._on_error = on_error
        self._guarded = list(_guarded(model))
        if not self._guarded:
            raise WorkloadError(
                f"{type(model).__name__} has no linear layer and no embedding bag that could be "
                "checked: give a model that has some"
            )
        self._hooks = [one.module.register_forward_hook(self._hook(one)) for one in self._guarded]
        self._attention = _attention_checks(self._attended)
        begin, end = self._attention.__enter__, self._attention.__exit__
        self._hooks += [
            model.register_forward_pre_hook(lambda *_: begin() and None),
            model.register_forward_hook(lambda *_: end(None, None, None), always_call=True),
        ]

    @property
    def num_modules(self) -> int:
        """Modules that are checked."""
        return len(self._guarded)

    def encode(self) -> None:
        """Take the parameters as they are now for right: after a step of training."""
        for one in self._guarded:
            fresh = _guard(one.name, one.module)
            one.weight, one.bias = fresh.weight, fresh.bias

    def remove(self) -> None:
        """Take the checks off."""
        for one in self._hooks:
            one.remove()

    def __enter__(self) -> Protection:  # noqa: PYI034  no class derives from it
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.remove()

    def _hook(self, one: _Guarded) -> Callable[[Any, tuple[Any, ...], Tensor], None]:
        def check(_: Any, given: tuple[Any, ...], out: Tensor) -> None:
            with torch.no_grad():
                wrong = _wrong(one, given, out)
            one.num_calls += 1
            self._tell(one.name, wrong, one.num_calls - 1)

        return check

    def _attended(self, wrong: Tensor) -> None:
        self._tell("attention", wrong, self._num_attended)
        self._num_attended += 1

    def _tell(self, module: str, wrong: Tensor, call: int) -> None:
        if not bool(wrong.any()):
            return
        rows = wrong.flatten().nonzero()[:, 0]
        found = CorruptionFound(
            module=module, num_rows=len(rows), first_row=int(rows[0]), call=call
        )
        self.found.append(found)
        if self._on_error is not None:
            self._on_error(found)


def protect(
    model: torch.nn.Module, *, on_error: Callable[[CorruptionFound], object] | None = None
) -> Protection:
    """Check linear layers, embedding bags and attention of a model while it runs.

    Weights are encoded now: flips in them later are found as those in a computation are. The model
    computes what it computed.

    Args:
        model: any module.
        on_error: called with what is found, as to run the step again; it may raise.

    Raises:
        WorkloadError: if nothing in it can be checked.
    """
    return Protection(model, on_error)


def _attention_checks(tell: Callable[[Tensor], None]) -> Any:
    """A mode in which each `scaled_dot_product_attention` is checked; calls give what they gave.

    `tell` gets which rows are wrong.
    """
    from torch.overrides import TorchFunctionMode  # with a model alone

    fused = torch.nn.functional.scaled_dot_product_attention

    class Checking(TorchFunctionMode):
        """Looks at results on their way."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            with torch.no_grad():
                if func is fused:
                    tell(wrong_attention(out, *args, **(kwargs or {})))
            return out

    return Checking()


def _guarded(model: torch.nn.Module) -> Iterator[_Guarded]:
    for name, module in model.named_modules():
        kind: type = type(module)
        is_bag = kind is torch.nn.EmbeddingBag and module.mode in ("sum", "mean")
        if kind is torch.nn.Linear or is_bag:
            yield _guard(name, module)


def _guard(name: str, module: Any) -> _Guarded:
    weight = module.weight.detach()
    is_linear = isinstance(module, torch.nn.Linear)
    has_bias = is_linear and module.bias is not None
    bias = float(module.bias.detach().double().sum()) if has_bias else 0.0
    return _Guarded(name, module, CheckedWeight.of(weight.mT if is_linear else weight), bias)


def _wrong(one: _Guarded, given: tuple[Any, ...], out: Tensor) -> Tensor:
    first: Tensor = given[0]
    if isinstance(one.module, torch.nn.Linear):
        rows, product = first.reshape(-1, first.shape[-1]), out.reshape(-1, out.shape[-1])
        output = float_format(str(out.dtype))
        return wrong_rows(rows, one.weight, product, offset=one.bias, output=output)
    if first.dim() == 1:
        return torch.zeros(1, dtype=torch.bool)  # bags by offsets are not checked
    expected = one.weight.sums[first].sum(1)
    expected = expected / first.shape[1] if one.module.mode == "mean" else expected
    sizes = out.double().abs().sum(1)
    return ~((out.double().sum(1) - expected).abs() <= _SUM_TOLERANCE * sizes)


@dataclass(frozen=True, kw_only=True)
class CheckedTime:
    """One way to run a model."""

    way: str
    time_ns: float
    overhead_percent: float


@dataclass(frozen=True, repr=False)
class CheckOverhead(Answer):
    """What checks cost here, beside what was published of them."""

    json_names: ClassVar = {"rows": "ways"}

    rows: tuple[CheckedTime, ...]
    num_modules: int

    @property
    def headline(self) -> str:
        """Measured on this machine."""
        return (
            f"checks of {count_text(self.num_modules, 'module')} make a run "
            f"{self.rows[1].overhead_percent:.0f} % longer on this machine"
        )

    def parts(self) -> tuple[Told, ...]:
        """With and without."""
        return (
            Table.of(
                "ways",
                self.rows,
                Column("way"),
                Column("time_ns", unit=Unit.NS),
                Column("overhead_percent"),
            ),
        )


def measured_overhead(
    model: torch.nn.Module, inputs: Inputs, *, repeats: int = 20
) -> CheckOverhead:
    """What `protect` costs on these inputs, here: medians of runs in turn.

    Args:
        model: any module.
        inputs: samples along the first dimension.
        repeats: runs of each.

    Raises:
        WorkloadError: if the model fails, or nothing in it can be checked.
    """
    times: dict[str, list[int]] = {"plain": [], "checked": []}
    for _ in range(repeats + 1):
        times["plain"].append(_taken_ns(model, inputs))
        with protect(model) as guard:
            times["checked"].append(_taken_ns(model, inputs))
    plain, checked = (float(median(one[1:])) for one in times.values())
    rows = tuple(
        CheckedTime(way=way, time_ns=time_ns, overhead_percent=100 * (time_ns / plain - 1))
        for way, time_ns in (("plain", plain), ("checked", checked))
    )
    return CheckOverhead(rows, guard.num_modules)


def _taken_ns(model: torch.nn.Module, inputs: Inputs) -> int:
    begin = time.perf_counter_ns()
    run(model, inputs)
    return time.perf_counter_ns() - begin
