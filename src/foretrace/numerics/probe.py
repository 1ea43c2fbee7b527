"""`TrainingProbe`: a small model trained in several number formats, beside the spread of seeds.

Products take numbers of a format and keep their sums in another; weights, optimizer and everything
else stay fp32, as in training with master weights (arXiv:1905.12322).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean, stdev
from typing import ClassVar

from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Sentences,
    Series,
    Table,
    Told,
    Unit,
    count_text,
    number_text,
)
from foretrace.base import WorkloadError
from foretrace.numerics.formats import FP32, FloatFormat, Rounding, float_format, rounded
from foretrace.numerics.libraries import Tensor, torch
from foretrace.numerics.products import Accumulator, emulated_product

_LAST = 20  # steps whose mean loss is the loss
_BLOCK = 1  # products that are summed exactly before a narrow accumulator keeps the sum
_BATCH = 64
_BEYOND = 2.0  # spreads of seeds that a format may be off
_SURE = 0.95  # of intervals
_LEARNT = 0.9  # of the first loss: where fp32 stays above, nothing is told of formats
_BASE = "fp32"


@dataclass(frozen=True, kw_only=True)
class TrainingFormat:
    """How products of a training are computed."""

    name: str
    takes: FloatFormat
    accumulates: FloatFormat = FP32
    rounding: Rounding = Rounding.NEAREST


def training_format(text: str) -> TrainingFormat:
    """What a text says: "bf16", "bf16:bf16" with its accumulator, "bf16:bf16:toward-zero".

    Raises:
        WorkloadError: if a format or rounding is unknown.
    """
    takes, _, rest = text.partition(":")
    keeps, _, way = rest.partition(":")
    ways = [one.value for one in Rounding]
    if way and way not in ways:
        raise WorkloadError(f"the rounding {way!r} is unknown: expected one of {', '.join(ways)}")
    return TrainingFormat(
        name=text,
        takes=float_format(takes),
        accumulates=float_format(keeps) if keeps else FP32,
        rounding=Rounding(way) if way else Rounding.NEAREST,
    )


@dataclass(frozen=True, kw_only=True)
class ProbedFormat:
    """A training in one format."""

    format: str
    loss: float  # mean of the last steps, over seeds
    spread: float  # between seeds
    parity: float  # loss over fp32's
    distance: float  # from fp32's loss, in spreads of its seeds
    low: float  # of the distance, from what each seed's two trainings differ by
    high: float
    is_within: bool  # whether all of the interval is
    is_beyond: bool  # whether the distance is, and the interval has no fp32 in it

    @property
    def verdict(self) -> str:
        """Whether the format is as good as fp32, as far as these seeds can tell."""
        return "yes" if self.is_within else "no" if self.is_beyond else "more seeds"


@dataclass(frozen=True, repr=False)
class TrainingProbe(Answer):
    """Formats beside fp32."""

    json_names: ClassVar = {"rows": "formats"}

    name: str
    num_steps: int
    num_seeds: int
    rows: tuple[ProbedFormat, ...]
    curves: Mapping[str, tuple[float, ...]]  # mean loss by step

    @property
    def headline(self) -> str:
        """Which formats train as fp32 does."""
        steps, seeds = count_text(self.num_steps, "step"), count_text(self.num_seeds, "seed")
        told = f"{self.name}, {steps}, {seeds}"
        first, last = self.curves[_BASE][0], self.rows[0].loss
        if last > _LEARNT * first:
            return (
                f"{told}: too short to tell formats apart: fp32's loss was {number_text(first)} "
                f"and is {number_text(last)}, a tenth less is needed; take more steps"
            )
        others = [one for one in self.rows if one.format != _BASE]
        by_verdict = {
            verdict: ", ".join(one.format for one in others if one.verdict == verdict)
            for verdict in ("yes", "no", "more seeds")
        }
        found = f"as good as fp32: {by_verdict['yes'] or 'none'}; not: {by_verdict['no'] or 'none'}"
        open_ones = by_verdict["more seeds"]
        return f"{told}: {found}" + (f"; undecided: {open_ones}" if open_ones else "")

    def parts(self) -> tuple[Told, ...]:
        """Formats, curves, and how to read them."""
        table = Table.of(
            "formats",
            self.rows,
            Column("format", unit=Unit.WORD),
            Column("loss", unit=Unit.NUMBER),
            Column("spread", "seeds +-", Unit.NUMBER),
            Column("parity", "over fp32's", Unit.NUMBER),
            Column("distance", "spreads off", Unit.NUMBER),
            Column("low", "from", Unit.NUMBER),
            Column("high", "to", Unit.NUMBER),
            Column("verdict", "as fp32"),
        )
        words = (
            "a format is as good as fp32 where all of its interval lies at most "
            f"{number_text(_BEYOND)} spreads of fp32's seeds above, and is not where its distance "
            "is more and its interval begins above 0; the interval is of the difference of two "
            f"trainings that begin alike and see the same data, at {_SURE:.0%}"
        )
        return table, self._drawn(), Sentences.of("to know", (words,))

    def _drawn(self) -> Table:
        colours = ("compute", "communication", "overlapped", "idle")
        columns = [Column(f"loss_{at}", name, Unit.NUMBER) for at, name in enumerate(self.curves)]
        series = tuple(
            Series(one.key, one.title, colours[at % len(colours)]) for at, one in enumerate(columns)
        )
        label = f"Loss of {self.name} by step, a curve for each format"
        chart = Chart(ChartKind.CURVES, label, "step", series, Unit.NUMBER,
                      category_unit=Unit.COUNT)  # fmt: skip
        steps = zip(*self.curves.values(), strict=True)
        rows = tuple((step, *values) for step, values in enumerate(steps))
        return Table("curves", "loss by step", (Column("step", unit=Unit.COUNT), *columns), rows,
                     chart=chart)  # fmt: skip


def probe(
    model: str = "lenet",
    *,
    formats: Sequence[str] = ("bf16", "fp8_e4m3", "bf16:bf16:toward-zero"),
    num_steps: int = 60,
    num_seeds: int = 3,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> TrainingProbe:
    """Train a small model in several formats and say which are as good as fp32.

    Args:
        model: lenet, dlrm, bert or transformer.
        formats: of products: "bf16", or with their accumulator and rounding,
            "bf16:bf16:toward-zero".
        num_steps: of each training.
        num_seeds: trainings of each format; fp32 is trained with as many.
        seed: of the first.
        progress: called with trainings done and trainings in all.

    Raises:
        WorkloadError: if model or format is unknown, or there are too few seeds or steps.
    """
    from foretrace.numerics.small_models import SMALL_TASKS, training_losses  # it loads PyTorch

    if model not in SMALL_TASKS:
        raise WorkloadError(f"no model is called {model!r}: expected {', '.join(SMALL_TASKS)}")
    if num_seeds < 2 or num_steps < 1:  # noqa: PLR2004  one seed has no spread
        raise WorkloadError(
            f"{num_seeds} seeds, {num_steps} steps: take 2 seeds and a step or more"
        )
    chosen = [training_format(one) for one in dict.fromkeys((_BASE, *formats))]
    task = SMALL_TASKS[model]
    found: dict[str, list[list[float]]] = {}
    done, total = 0, len(chosen) * num_seeds
    for kind in chosen:
        for own in range(seed, seed + num_seeds):
            if progress is not None:
                progress(done, total)
            with narrow_products(kind, own):
                losses = training_losses(task, steps=num_steps, batch=_BATCH, seed=own)
            found.setdefault(kind.name, []).append(losses)
            done += 1
    base = [mean(one[-_LAST:]) for one in found[_BASE]]
    rows = tuple(_row(name, [mean(one[-_LAST:]) for one in runs], base)
                 for name, runs in found.items())  # fmt: skip
    curves = {
        name: tuple(mean(step) for step in zip(*runs, strict=True)) for name, runs in found.items()
    }
    return TrainingProbe(model, num_steps, num_seeds, rows, curves)


def _row(name: str, losses: Sequence[float], base: Sequence[float]) -> ProbedFormat:
    from scipy.special import stdtrit  # on demand: it takes a while to load

    spread = max(stdev(base), 1e-12)
    off = [(one - other) / spread for one, other in zip(losses, base, strict=True)]
    distance, degrees = mean(off), len(off) - 1
    half = float(stdtrit(degrees, (1 + _SURE) / 2)) * stdev(off) / len(off) ** 0.5
    return ProbedFormat(
        format=name,
        loss=mean(losses),
        spread=stdev(losses),
        parity=mean(losses) / mean(base),
        distance=distance,
        low=distance - half,
        high=distance + half,
        is_within=distance + half <= _BEYOND,
        is_beyond=distance > _BEYOND and distance > half,
    )


@contextmanager
def narrow_products(kind: TrainingFormat, seed: int) -> Iterator[None]:
    """While it holds, linear layers' products are those of the format, forward and backward."""
    if kind.takes is FP32 and kind.accumulates is FP32:
        yield
        return
    generator = torch.Generator().manual_seed(seed)
    plain = torch.nn.functional.linear

    def linear(given: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return _narrow_linear(given, weight, bias, _Products(kind, generator))

    torch.nn.functional.linear = linear  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.nn.functional.linear = plain


@dataclass(frozen=True, eq=False)
class _Products:
    """Products of one format."""

    kind: TrainingFormat
    generator: torch.Generator

    def held(self, values: Tensor) -> Tensor:
        """Values as the unit takes them; of narrow formats with a scale for the tensor."""
        takes = self.kind.takes
        scale = 1.0
        if takes.num_bits <= 8:  # noqa: PLR2004  8-bit formats are used with scales
            largest = float(values.detach().abs().max())
            scale = takes.largest / largest if largest > 0 else 1.0
        found = rounded(
            values.detach() * scale,
            takes,
            rounding=self.kind.rounding,
            generator=self.generator,
        )
        return found / scale

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """`left @ right` with its sums kept in the accumulator's format."""
        if self.kind.accumulates is FP32:
            return left @ right
        accumulator = Accumulator(
            keeps=self.kind.accumulates, block=_BLOCK, rounding=self.kind.rounding
        )
        return emulated_product(left, right, accumulator, generator=self.generator)


def _narrow_linear(given: Tensor, weight: Tensor, bias: Tensor | None, by: _Products) -> Tensor:
    class Narrow(torch.autograd.Function):
        """Forward and backward products, each of rounded numbers."""

        @staticmethod
        def forward(context: torch.autograd.function.FunctionCtx, x: Tensor, w: Tensor) -> Tensor:
            held = by.held(x.reshape(-1, x.shape[-1])), by.held(w)
            context.save_for_backward(*held)
            return by.product(held[0], held[1].mT).view(*x.shape[:-1], -1)

        @staticmethod
        def backward(
            context: torch.autograd.function.FunctionCtx, gradient: Tensor
        ) -> tuple[Tensor, Tensor]:
            x, w = context.saved_tensors  # type: ignore[attr-defined]
            held = by.held(gradient.reshape(-1, gradient.shape[-1]))
            of_x = by.product(held, w).view(*gradient.shape[:-1], -1)
            return of_x, by.product(held.mT, x)

    found: Tensor = Narrow.apply(given, weight)  # type: ignore[no-untyped-call]
    return found if bias is None else found + bias
