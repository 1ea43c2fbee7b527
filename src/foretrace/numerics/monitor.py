"""`OptimizerMonitor`: whether an optimizer is still in the regime that it was derived for.

A step of Adam divides the mean of gradients by the root of their mean square. Where gradients have
no memory this ratio is small and bell-shaped; where they point one way, it is plus or minus one in
a whole layer at once, which is how large runs have been lost (arXiv:2304.09871).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from foretrace.base import Float64s, WorkloadError
from foretrace.numerics.alarms import Alarm, AlarmRule, Watchman, expected_ratio
from foretrace.numerics.libraries import Tensor, torch

_LARGE = 0.5  # a ratio that gradients without memory have in 3 % of elements (b1 = 0.9)
_TINY = 1e-30  # beside any gradient
_OF_MEDIAN = 8  # one of so many elements is sorted
_FEWEST = 16  # elements that have a distribution
_EVERY, _LARGEST_EVERY = 20, 320  # steps between two observations, where none are asked for
_SHARE = 0.01  # of the time of steps that looking may take then

# Limits: measured to raise no alarm on healthy training, and to see a planted event first
# (bench/numerics.py); docs/numerics.md states what they raised.
OPTIMIZER_RULES = (
    AlarmRule(statistic="ratio_std", deviations=8.0, factor=1.6,
              says="updates of the whole layer point one way"),
    AlarmRule(statistic="update_norm", deviations=12.0, factor=4.0,
              says="updates are far larger than they were"),
    # Of Lion and Muon, whose updates are as long whatever gradients do, nothing else tells.
    AlarmRule(statistic="gradient_memory", deviations=6.0, factor=1.0, least=0.5,
              is_correlation=True, says="gradients keep a direction from step to step"),
    AlarmRule(statistic="epsilon_ratio", deviations=0.0, factor=1.0, floor=3.0,
              says="gradients vanish beside epsilon: the next large one moves the whole layer"),
)  # fmt: skip
STATISTICS = (
    "ratio_std",  # of the update ratio: update over learning rate
    "large_share",  # of elements whose ratio is above 0.5
    "bimodality",  # (skewness^2 + 1) / kurtosis; 5/9 is a uniform distribution's
    "epsilon_ratio",  # median root of the mean square over epsilon
    "gradient_memory",  # correlation of a gradient with the one before
    "cosine",  # of the update and the negative gradient
    "update_norm",  # root mean square of the update
)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One step of an optimizer, layer by layer; NaN where an optimizer has no such number."""

    step: int
    time_ns: int  # since 1970
    rank: int | None = None  # of a distributed job
    layers: Mapping[str, Mapping[str, float | None]]
    expected_std: float | None = None  # of the update ratio, where gradients have no memory


class OptimizerMonitor:
    """Watches an optimizer through its hooks; ends with `close`, or as a context.

    What is looked at is this process's part of every tensor: its shard, where there are several. A
    process of many that has no part of any tensor watches nothing.

    Attributes:
        alarms: raised so far.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        path: str | Path | None = None,
        *,
        names: Iterable[tuple[str, Tensor]] = (),
        every: int | None = None,
        sample: int = 512,
        on_alarm: Callable[[Alarm], object] | None = None,
    ) -> None:
        """Begin to watch.

        Args:
            optimizer: any of PyTorch's form.
            path: where a line of JSON goes for each observation.
            names: of parameters, as `model.named_parameters()`.
            every: steps between two observations; `None`: 20, and twice as many for as long as
                looking takes this process more than 1 % of its time, up to 320.
            sample: elements of each tensor that are looked at.
            on_alarm: called with each alarm.

        Raises:
            WorkloadError: if no parameter has enough elements, and there is no other process.
        """
        first = _EVERY if every is None else every
        if first < 1 or sample < 2:  # noqa: PLR2004  one element has no spread
            raise WorkloadError(f"every {every} steps, {sample} elements: take 1 and 2 or more")
        self.alarms: list[Alarm] = []
        self._on_alarm = on_alarm
        self._every, self._next = first, first
        self._effort = None if every is not None else _Effort(since=time.perf_counter())
        self._watchman = Watchman(OPTIMIZER_RULES)
        group = torch.distributed
        is_one_of_many = group.is_available() and group.is_initialized()
        self._rank = group.get_rank() if is_one_of_many else None
        self._parts = _parts(optimizer, dict(names), sample)
        if not self._parts and not is_one_of_many:
            raise WorkloadError(
                f"the optimizer has no parameters to watch: give one that trains a tensor of "
                f"{_FEWEST} elements or more"
            )
        self._optimizer = optimizer
        self._path = None if path is None else Path(path)
        if self._path is not None:
            self._path.write_text("", encoding="utf-8")
        self._step = 0
        self._before: Tensor | None = None
        self._last_gradient: Tensor | None = None
        self._steps_ahead: list[int] | None = None  # of an optimizer that went on from a checkpoint
        self._places = _places(self._parts, sample)
        self._hooks = (
            optimizer.register_step_pre_hook(self._begin),
            optimizer.register_step_post_hook(self._end),
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.close()

    def close(self) -> None:
        """Take the hooks off."""
        for one in self._hooks:
            one.remove()

    def _begin(self, *_: object) -> None:
        """Before the optimizer's step: keep what it is about to change."""
        if not self._parts:
            return
        self._step += 1
        if self._step < self._next - 1:
            return
        with _timed(self._effort):
            if self._step == self._next:
                self._before = self._values(lambda part: part.parameter)
            else:
                self._last_gradient = self._values(_gradient)

    def _end(self, *_: object) -> None:
        """After it: look, write, judge."""
        if self._before is None:
            return
        with _timed(self._effort):
            self._look(self._before)
        self._before = None
        if self._effort is not None and self._effort.is_too_large():
            self._every = min(2 * self._every, _LARGEST_EVERY)
        self._next = self._step + self._every

    def _look(self, before: Tensor) -> None:
        with torch.no_grad():
            found = self._observed(before)
        if self._every == 1:
            self._last_gradient = self._values(_gradient)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:  # whole lines, if the run ends
                file.write(msgspec.json.encode(found).decode() + "\n")
        for alarm in self._watchman.observe(found.step, *rule_values(found)):
            self.alarms.append(alarm)
            if self._on_alarm is not None:
                self._on_alarm(alarm)

    def _values(self, of: Callable[[_Part], Tensor | None]) -> Tensor:
        """Sampled elements of a tensor of every part; [parts, sample].

        What is looked at is copied once: strided views of all tensors, then one index into these.
        """
        pieces = []
        for part in self._parts:
            whole = of(part)
            pieces.append(part.nothing if whole is None else part.picked(whole))
        return torch.cat(pieces)[self._places].view(len(self._parts), -1).float()

    def _observed(self, before: Tensor) -> Observation:
        gradient = self._values(_gradient)
        update = self._values(lambda part: part.parameter) - before
        rates = torch.tensor([[float(part.group["lr"])] for part in self._parts])
        ratio, root, expected = self._ratios(update, rates.to(update.device))
        centred = ratio - ratio.mean(1, keepdim=True)
        spread = (centred * centred).mean(1).sqrt()
        shape = centred / (spread[:, None] + _TINY)
        square = shape * shape
        norm = update.norm(dim=1)
        columns = {
            "ratio_std": spread,
            "large_share": (ratio.abs() > _LARGE).float().mean(1),
            "bimodality": ((square * shape).mean(1).pow(2) + 1)
            / ((square * square).mean(1) + _TINY),
            "epsilon_ratio": root,
            "gradient_memory": _cosines(gradient, self._last_gradient),
            "cosine": _cosines(update, -gradient),
            "update_norm": norm / update.shape[1] ** 0.5,
        }
        on_device = torch.stack([columns[name].double() for name in STATISTICS], 1)
        with _waited(self._effort):  # for the step's own work
            table = on_device.cpu().tolist()
        return Observation(
            step=self._step,
            time_ns=time.time_ns(),
            rank=self._rank,
            layers={
                part.name: dict(zip(STATISTICS, map(_number, row), strict=True))
                for part, row in zip(self._parts, table, strict=True)
            },
            expected_std=expected,
        )

    def _ratios(self, update: Tensor, rates: Tensor) -> tuple[Tensor, Tensor, float | None]:
        """Update ratios; of Adam from its own state, with the root over epsilon."""
        nothing = torch.full((len(self._parts),), torch.nan, device=update.device)
        if not all("exp_avg_sq" in self._state(part) for part in self._parts):
            return -update / (rates + _TINY), nothing, None
        means = self._values(lambda part: self._state(part)["exp_avg"])
        squares = self._values(lambda part: self._state(part)["exp_avg_sq"])
        if self._steps_ahead is None:  # where its count lies on a device, reading it waits
            done = [int(self._state(part)["step"]) for part in self._parts]
            self._steps_ahead = [each - self._step for each in done]
        steps = [self._step + each for each in self._steps_ahead]
        betas = [part.group["betas"] for part in self._parts]
        epsilon = torch.tensor([[float(part.group["eps"])] for part in self._parts])
        first = torch.tensor([[1 - b[0] ** n] for b, n in zip(betas, steps, strict=True)])
        second = torch.tensor([[1 - b[1] ** n] for b, n in zip(betas, steps, strict=True)])
        root = (squares / second.to(squares.device)).sqrt()
        epsilon = epsilon.to(root.device)
        # Elements that no gradient has reached yet say nothing of the others.
        some = root[:, ::_OF_MEDIAN]
        touched = torch.where(some > 0, some, torch.nan).nanmedian(1).values
        ratio = means / first.to(means.device) / (root + epsilon)
        return ratio, touched / epsilon[:, 0], expected_ratio(float(betas[0][0]), steps[0])

    def _state(self, part: _Part) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self._optimizer.state.get(part.parameter, {})
        return state


@dataclass
class _Effort:
    """What looking has taken of this process's time since the last observation; seconds."""

    since: float
    spent: float = 0.0

    def is_too_large(self) -> bool:
        """Whether it was a larger share than it may be; the next observation counts anew."""
        now = time.perf_counter()
        found = self.spent > _SHARE * (now - self.since)
        self.since, self.spent = now, 0.0
        return found


@contextmanager
def _timed(effort: _Effort | None, sign: int = 1) -> Iterator[None]:
    """Count what is done within as effort."""
    begin = time.perf_counter()
    yield
    if effort is not None:
        effort.spent += sign * (time.perf_counter() - begin)


def _waited(effort: _Effort | None) -> AbstractContextManager[None]:
    """Take what is waited for within out of the effort that it is part of."""
    return _timed(effort, sign=-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """One tensor of an optimizer, and the elements of it that are looked at."""

    name: str
    parameter: Any  # an optimizer's state is keyed by it
    group: Mapping[str, Any]
    size: int  # elements that are looked at
    stride: int  # between two of them
    nothing: Any  # zeros, in place of a tensor that is not there

    def picked(self, whole: Tensor) -> Tensor:
        """Its elements, as a view where it lies in one piece."""
        return _local(whole).flatten().as_strided((self.size,), (self.stride,))


def _parts(
    optimizer: torch.optim.Optimizer, names: Mapping[str, Tensor], sample: int
) -> list[_Part]:
    name_of = {id(one): name for name, one in names.items()}
    found: list[_Part] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            local = _local(parameter)
            if local.numel() < _FEWEST or not parameter.requires_grad:
                continue
            size = min(sample, local.numel())
            found.append(
                _Part(
                    name=name_of.get(id(parameter), f"parameter {len(found)}"),
                    parameter=parameter,
                    group=group,
                    size=size,
                    stride=_stride(local.numel() // size, local.shape),
                    nothing=torch.zeros(size, dtype=local.dtype, device=local.device),
                )
            )
    return found


def _stride(most: int, shape: Sequence[int]) -> int:
    """The largest step that does not stay in a row or column of the tensor."""
    whole = math.prod(shape)
    return next(each for each in range(most, 0, -1) if math.gcd(each, whole) == 1)


def _places(parts: Sequence[_Part], sample: int) -> Tensor:
    """Where the elements of each part stand among all; those of small tensors several times."""
    if not parts:
        return torch.empty(0, dtype=torch.long)
    sizes = np.array([part.size for part in parts])
    begins = np.cumsum(sizes) - sizes
    places = begins[:, None] + np.arange(sample) % sizes[:, None]
    return torch.from_numpy(places.ravel()).to(parts[0].nothing.device)


def _local(tensor: Tensor) -> Tensor:
    """This process's shard of a DTensor; any other tensor itself."""
    to_local = getattr(tensor, "to_local", None)
    found: Tensor = tensor if to_local is None else to_local()
    return found


def _gradient(part: _Part) -> Tensor | None:
    found: Tensor | None = part.parameter.grad
    return found


def _cosines(left: Tensor, right: Tensor | None) -> Tensor:
    """Of every row; NaN where there is nothing to compare."""
    if right is None:
        return torch.full((left.shape[0],), torch.nan, device=left.device)
    sizes = left.norm(dim=1) * right.norm(dim=1)
    return torch.where(sizes > 0, (left * right).sum(1) / sizes, torch.nan)


def _number(value: float) -> float | None:
    return value if value == value else None  # noqa: PLR0124  NaN is no JSON


def rule_values(of: Observation) -> tuple[list[str], Float64s]:
    """Layers, and of each what rules judge; NaN where there is no number.

    Where a ratio has no closed form (Lion's is 1 or -1), its deviation says nothing of a direction.
    """
    columns = [rule.statistic for rule in OPTIMIZER_RULES]
    unknown = {"ratio_std"} if of.expected_std is None else set()
    rows = [
        [np.nan if name in unknown or row.get(name) is None else row[name] for name in columns]
        for row in of.layers.values()
    ]
    return list(of.layers), np.array(rows, np.float64)
