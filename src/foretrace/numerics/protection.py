"""`protect`: every product and embedding sum of a model is checked while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from types import FunctionType
from typing import Any, ClassVar

from foretrace.answer import Answer, Column, Table, Told, Unit, count_text
from foretrace.base import WorkloadError
from foretrace.numerics.checks import CheckedWeight, wrong_attention, wrong_rows
from foretrace.numerics.formats import float_format
from foretrace.numerics.injection import Inputs, run
from foretrace.numerics.libraries import Tensor, torch

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
    weights: list[tuple[CheckedWeight, Tensor]]  # each with its bias' sum, float64[]
    num_calls: int = 0


@dataclass(frozen=True, eq=False)
class _Judged:
    """Rows of one call, whose sums a device may still be adding."""

    module: str
    call: int
    wrong: Tensor  # bool[rows]


class Protection:
    """Checks on a model's modules; ends with `remove`, or as a context.

    Attributes:
        found: corruptions so far.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        on_error: Callable[[CorruptionFound], object] | None,
        *,
        is_compiled: bool,
    ) -> None:
        """Encode every parameter that is guarded."""
        self.found: list[CorruptionFound] = []
        self._num_attended = 0
        self._attending: _Guarded | None = None
        self._on_error = on_error
        self._is_compiled = is_compiled
        self._is_running = False
        self._judged: list[_Judged] = []
        self._guarded = list(_guarded(model))
        if not self._guarded:
            raise WorkloadError(
                f"{type(model).__name__} has no linear layer, embedding bag or attention that "
                "could be checked: give a model that has some"
            )
        self._hooks: list[Any] = []
        for one in self._guarded:
            self._hooks += self._hooks_of(one)
        self._attention = _attention_checks(_AttentionLook(self._attended, self._projected))
        self._hooks += [
            model.register_forward_pre_hook(self._begin),
            model.register_forward_hook(self._end, always_call=True),
        ]

    @property
    def num_modules(self) -> int:
        """Modules that are checked."""
        return len(self._guarded)

    def encode(self) -> None:
        """Take the parameters as they are now for right: after a step of training."""
        for one in self._guarded:
            one.weights = _guard(one.name, one.module).weights

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

    def _begin(self, *_: object) -> None:
        self._is_running = True
        self._attention.__enter__()

    def _end(self, *_: object) -> None:
        self._attention.__exit__(None, None, None)
        self._is_running = False
        self._tell()

    def _hooks_of(self, one: _Guarded) -> Iterator[Any]:
        module, kind = one.module, type(one.module)
        if kind is not torch.nn.MultiheadAttention:
            yield module.register_forward_hook(self._hook(one), with_kwargs=True)
            return

        def enter(*_: object) -> None:
            self._attending = one

        def leave(*_: object) -> None:
            self._attending = None
            one.num_calls += 1

        yield module.register_forward_pre_hook(enter)
        yield module.register_forward_hook(leave, always_call=True)

    def _hook(
        self, one: _Guarded
    ) -> Callable[[Any, tuple[Any, ...], dict[str, Any], Tensor], None]:
        def check(_: Any, args: tuple[Any, ...], named: dict[str, Any], out: Tensor) -> None:
            given = args[0] if args else named["input"]
            is_weighted = named.get("per_sample_weights", args[2:]) not in (None, (), (None,))
            with torch.no_grad(), torch._C.DisableTorchFunction():  # noqa: SLF001  no mode looks at a check
                wrong = self._wrong(one, given, out, is_weighted=is_weighted)
            one.num_calls += 1
            self._judge(one.name, wrong, one.num_calls - 1)

        return check

    def _attended(self, wrong: Tensor) -> None:
        self._judge("attention", wrong, self._num_attended)
        self._num_attended += 1

    def _projected(self, given: Tensor, weight: Tensor, out: Tensor) -> None:
        """A product inside of attention, with one of its weights."""
        one = self._attending
        if one is None:
            return
        for (held, bias), (own, _) in zip(one.weights, _products(one.module), strict=True):
            if own.data_ptr() == weight.data_ptr() and own.shape == weight.shape:
                self._judge(one.name, self._wrong_product(held, bias, given, out), one.num_calls)
                return

    def _wrong(self, one: _Guarded, given: Tensor, out: Tensor, *, is_weighted: bool) -> Tensor:
        weight, bias = one.weights[0]
        if isinstance(one.module, torch.nn.Linear):
            return self._wrong_product(weight, bias, given, out)
        if given.dim() == 1 or is_weighted:
            return torch.zeros(1, dtype=torch.bool)  # bags by offsets, or weighted: not checked
        check = _compiled(_wrong_pooled) if self._is_compiled else _wrong_pooled
        return check(given, weight.sums, out, is_mean=one.module.mode == "mean")

    def _wrong_product(
        self, weight: CheckedWeight, bias: Tensor, given: Tensor, out: Tensor
    ) -> Tensor:
        rows, product = given.reshape(-1, given.shape[-1]), out.reshape(-1, out.shape[-1])
        check = _compiled(wrong_rows) if self._is_compiled else wrong_rows
        return check(rows, weight, product, offset=bias, output=float_format(str(out.dtype)))

    def _judge(self, module: str, wrong: Tensor, call: int) -> None:
        """Rows are looked at when the model is done: a device is not waited for at each module."""
        self._judged.append(_Judged(module, call, wrong))
        if not self._is_running:  # a module that was called by itself
            self._tell()

    def _tell(self) -> None:
        judged, self._judged = self._judged, []
        if not judged:
            return
        for one, is_wrong in zip(judged, _any_of([each.wrong for each in judged]), strict=True):
            if not is_wrong:
                continue
            rows = one.wrong.flatten().nonzero()[:, 0]
            found = CorruptionFound(
                module=one.module, num_rows=len(rows), first_row=int(rows[0]), call=one.call
            )
            self.found.append(found)
            if self._on_error is not None:
                self._on_error(found)


def protect(
    model: torch.nn.Module,
    *,
    on_error: Callable[[CorruptionFound], object] | None = None,
    is_compiled: bool = False,
) -> Protection:
    """Check linear layers, embedding bags and attention of a model while it runs.

    Weights are encoded now: flips in them later are found as those in a computation are. The model
    computes what it computed.

    Args:
        model: any module.
        on_error: called when the model is done with what was found, as to run the step again; it
            may raise.
        is_compiled: whether `torch.compile` makes one kernel of each check, which reads operands
            and results once; the first run then takes a while.

    Raises:
        WorkloadError: if nothing in it can be checked.
    """
    return Protection(model, on_error, is_compiled=is_compiled)


@cache
def _compiled(check: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """One kernel of a check's many operators."""
    return torch.compile(check)


def _any_of(wrong: Sequence[Tensor]) -> list[bool]:
    """Whether each holds a row; a device is asked once."""
    by_device: dict[Any, list[int]] = {}
    for at, one in enumerate(wrong):
        by_device.setdefault(one.device, []).append(at)
    found = [False] * len(wrong)
    for places in by_device.values():
        told: list[bool] = torch.stack([wrong[at].any() for at in places]).tolist()
        for at, is_wrong in zip(places, told, strict=True):
            found[at] = is_wrong
    return found


@dataclass
class _AttentionLook:
    """Judges calls of functions that attention is made of.

    Attributes:
        tell: gets which rows of attention are wrong.
        tell_product: gets each product inside of `nn.MultiheadAttention`.
        scores: queries, keys and mask of one whose weights are wanted, as two products.
        is_inside: of `nn.MultiheadAttention`.
    """

    tell: Callable[[Tensor], None]
    tell_product: Callable[[Tensor, Tensor, Tensor], None]
    scores: tuple[Any, ...] = ()
    is_inside: bool = False

    def look(self, func: Any, out: Any, args: Any, given: Any) -> None:
        """At one call, after it."""
        if func is torch.nn.functional.scaled_dot_product_attention:
            self.tell(wrong_attention(out, *args, **given))
        elif self.is_inside and func is torch.nn.functional.linear:
            self.tell_product(args[0], args[1], out)
        elif self.is_inside:
            self._look_at_two(func, out, args)

    def _look_at_two(self, func: Any, out: Any, args: Any) -> None:
        if func is torch.nn.functional.dropout:
            self.scores = ()  # what is left is another sum
        elif func is torch.baddbmm:
            self.scores = args[1], args[2].mT, args[0]
        elif func is torch.bmm and not self.scores:
            self.scores = args[0], args[1].mT, None
        elif func is torch.bmm:
            (queries, keys, mask), self.scores = self.scores, ()
            self.tell(wrong_attention(out, queries, keys, args[1], mask, scale=1.0))


def _attention_checks(look: _AttentionLook) -> Any:
    """A mode in which attention is checked; calls give what they gave."""
    from torch.overrides import TorchFunctionMode  # with a model alone

    whole = torch.nn.functional.multi_head_attention_forward

    class Checking(TorchFunctionMode):
        """Looks at results on their way."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is whole:
                look.is_inside, look.scores = True, ()
                try:
                    with self:
                        return _seen_inside(whole)(*args, **(kwargs or {}))
                finally:
                    look.is_inside = False
            out = func(*args, **(kwargs or {}))
            with torch.no_grad():
                look.look(func, out, args, kwargs or {})
            return out

    return Checking()


@cache
def _seen_inside(function: Any) -> Any:
    """A function of PyTorch that does not hand itself to a mode, so that its own calls are seen."""
    known = function.__globals__ | {"has_torch_function": lambda _: False}
    return FunctionType(
        function.__code__, known, function.__name__, function.__defaults__, function.__closure__
    )


def _guarded(model: torch.nn.Module) -> Iterator[_Guarded]:
    for name, module in model.named_modules():
        kind: type = type(module)
        is_bag = (
            kind is torch.nn.EmbeddingBag
            and module.mode in {"sum", "mean"}
            and module.padding_idx is None
            and module.max_norm is None  # which changes rows as they are looked up
        )
        if kind in (torch.nn.Linear, torch.nn.MultiheadAttention) or is_bag:
            yield _guard(name, module)


def _guard(name: str, module: Any) -> _Guarded:
    with torch.no_grad():
        weights = [
            (
                CheckedWeight.of(weight),
                (weight.new_zeros(1) if bias is None else bias).double().sum(),
            )
            for weight, bias in (
                (weight if isinstance(module, torch.nn.EmbeddingBag) else weight.mT, bias)
                for weight, bias in _products(module)
            )
        ]
    return _Guarded(name, module, weights)


def _products(module: Any) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Weights and biases that a module's products are with."""
    kind: type = type(module)
    if kind is not torch.nn.MultiheadAttention:
        yield module.weight, getattr(module, "bias", None)
        return
    bias, width = module.in_proj_bias, module.embed_dim
    if module.in_proj_weight is None:
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        apart = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
        yield from zip(apart, biases, strict=True)
    else:  # queries, keys and values stand in one matrix: one product, two or three
        for begin, end in ((0, 3), (0, 1), (1, 3), (1, 2), (2, 3)):
            rows = slice(begin * width, end * width)
            yield module.in_proj_weight[rows], None if bias is None else bias[rows]
    yield module.out_proj.weight, module.out_proj.bias


def _wrong_pooled(bags: Tensor, sums: Tensor, out: Tensor, *, is_mean: bool) -> Tensor:
    """Bags whose vector does not sum to its rows' sums; bool[bags]."""
    expected = sums[bags].sum(1)
    expected = expected / bags.shape[1] if is_mean else expected
    wide = out.double()
    return ~((wide.sum(1) - expected).abs() <= _SUM_TOLERANCE * wide.abs().sum(1))


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
    model: torch.nn.Module, inputs: Inputs, *, repeats: int = 20, is_compiled: bool = False
) -> CheckOverhead:
    """What `protect` costs on these inputs, here: medians of runs in turn.

    Args:
        model: any module.
        inputs: samples along the first dimension.
        repeats: runs of each.
        is_compiled: as of `protect`.

    Raises:
        WorkloadError: if the model fails, or nothing in it can be checked.
    """
    times: dict[str, list[int]] = {"plain": [], "checked": []}
    for _ in range(repeats + 1):
        times["plain"].append(_taken_ns(model, inputs))
        with protect(model, is_compiled=is_compiled) as guard:
            times["checked"].append(_taken_ns(model, inputs))
    plain, checked = (float(median(one[1:])) for one in times.values())
    rows = tuple(
        CheckedTime(way=way, time_ns=time_ns, overhead_percent=100 * (time_ns / plain - 1))
        for way, time_ns in (("plain", plain), ("checked", checked))
    )
    return CheckOverhead(rows, guard.num_modules)


def _taken_ns(model: torch.nn.Module, inputs: Inputs) -> int:
    begin = time.perf_counter_ns()
    device = run(model, inputs).device.type
    if device != "cpu":  # it is still at work
        getattr(torch, device).synchronize()
    return time.perf_counter_ns() - begin
