"""`Agreement`: whether libraries and the emulation mean the same by a format, and where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, TypeAlias

import numpy as np

from foretrace.answer import Answer, Column, Sentences, Table, Told, Unit, count_text
from foretrace.numerics.formats import (
    FLOAT_FORMATS,
    FloatFormat,
    emulated,
    pattern_values,
)
from foretrace.numerics.libraries import Tensor, check_device, ml_dtypes, torch

_MOST_BITS = 16  # whose patterns are all tried
_AT_ONCE = 1 << 20  # values
_SINGLE_MANTISSA = 23
_TWICE = 4096  # values of fp64 beside a tie, which two roundings move across it
Cast: TypeAlias = "Callable[[Tensor], Tensor]"  # values as a library holds them, in fp64

_WHY = {
    "beyond the largest": "a finite value above the largest: one side keeps the largest number, "
    "the other makes it NaN (`saturates` chooses for the emulation)",
    "below zero": "a scale has no sign: one side drops the sign, the other makes it NaN",
    "zero": "the format has no zero, or no zero below zero: the sides choose another stand-in",
    "infinite": "the format has no infinity: the sides choose another stand-in",
    "not a number": "the format has no NaN: one side keeps it, the other chooses a number",
    "a subnormal of fp32": "libraries round what fp32 holds without a leading one up to the next "
    "power of two, where the nearest is the one below",
    "between": "a finite value is rounded to another neighbour",
    "beside a tie": "fp64 is taken through fp32 first: what lies a little beside a tie is rounded "
    "onto it, and then to the even neighbour, so that it is rounded twice",
}


@dataclass(frozen=True, kw_only=True)
class FormatAgreement:
    """Two sides on one format."""

    format: str
    sides: str  # "torch, emulated"
    what: str  # "patterns", "fp32", "ties" or "fp64"
    num_tried: int
    num_different: int
    kind: str = ""  # of the values that differ most often
    example: str = ""


@dataclass(frozen=True, repr=False)
class Agreement(Answer):
    """Every format of two sides or more."""

    json_names: ClassVar = {"rows": "formats"}

    rows: tuple[FormatAgreement, ...]

    @property
    def headline(self) -> str:
        """How many agree."""
        same = sum(not one.num_different for one in self.rows)
        return (
            f"{same} of {count_text(len(self.rows), 'comparison')} agree bit by bit, the formats "
            f"{len({one.format for one in self.rows})}, the libraries torch and ml_dtypes"
        )

    def parts(self) -> tuple[Told, ...]:
        """What was compared, then why sides differ."""
        table = Table.of(
            "formats",
            self.rows,
            Column("format", unit=Unit.WORD),
            Column("sides"),
            Column("what", "of", Unit.WORD),
            Column("num_tried"),
            Column("num_different"),
            Column("kind", "where"),
            Column("example"),
            is_strong=lambda one: bool(one.num_different),
        )
        return table, Sentences("why they differ", tuple(self._reasons()))

    def _reasons(self) -> Iterator[tuple[str, str]]:
        for kind in dict.fromkeys(one.kind for one in self.rows if one.kind):
            where = dict.fromkeys(one.format for one in self.rows if one.kind == kind)
            yield f"{kind} ({', '.join(where)}):", _WHY[kind]


def format_agreement(
    *,
    num_values: int = 1_000_000,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Agreement:
    """What PyTorch, ml_dtypes and the emulation make of the same patterns and values.

    Args:
        num_values: random fp32 patterns of bits that each format rounds.
        seed: of the values.
        device: where PyTorch and the emulation compute, as "cuda"; ml_dtypes does on the host.
        progress: called with formats done and formats in all.

    Raises:
        WorkloadError: if PyTorch has no such device here.
    """
    check_device(device)
    chosen = [one for one in FLOAT_FORMATS if one.ml_dtypes]
    rows: list[FormatAgreement] = []
    for done, each in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        rows += _of_patterns(each, device)
        rows += _of_values(each, device, num_values=num_values, seed=seed)
        rows += _of_doubles(each, device, seed)
    return Agreement(tuple(rows))


def _casts(of: FloatFormat) -> dict[str, Cast]:
    """Every side that has the format."""
    found: dict[str, Cast] = {}
    if of.torch:
        kind = getattr(torch, of.torch)
        found["torch"] = lambda values: values.to(kind).double()
    if of.ml_dtypes:
        found["ml_dtypes"] = lambda values: _by_ml_dtypes(values.cpu(), of).to(values.device)
    found["emulated"] = lambda values: emulated(values, of)
    return found


def _ml_type(of: FloatFormat) -> type:
    # fp16 is numpy's own.
    kind: type = getattr(np if of.ml_dtypes == "float16" else ml_dtypes, of.ml_dtypes)
    return kind


def _by_ml_dtypes(values: Tensor, of: FloatFormat) -> Tensor:
    with np.errstate(all="ignore"):  # a NaN that is made here is meant
        held: Any = values.numpy().astype(_ml_type(of))
    return _from_ml_dtypes(held)


def _from_ml_dtypes(held: Any) -> Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(held.astype(np.float64))


def _of_patterns(of: FloatFormat, device: str) -> Iterator[FormatAgreement]:
    """What every pattern of bits means."""
    if of.num_bits > _MOST_BITS:
        return
    patterns = torch.arange(2**of.num_bits).to(torch.int16 if of.num_bits > 8 else torch.uint8)  # noqa: PLR2004  bits of a byte
    sides = {"emulated": pattern_values(of)}
    if of.torch:
        sides["torch"] = patterns.to(device).view(getattr(torch, of.torch)).double().cpu()
    if of.ml_dtypes:
        sides["ml_dtypes"] = _from_ml_dtypes(patterns.numpy().view(_ml_type(of)))
    ours = sides.pop("emulated")
    for name, found in sides.items():
        count = _Differences()
        count.add(found, found, ours, of)
        yield count.row(of, f"{name}, emulated", "patterns")


def _of_values(
    of: FloatFormat, device: str, *, num_values: int, seed: int
) -> Iterator[FormatAgreement]:
    """Random patterns of fp32: every exponent alike, NaN and infinities among them; then ties."""
    yield from _of(of, "fp32", _random_fp32(num_values, seed), device)
    yield from _of(of, "ties", _ties(of), device)


def _ties(of: FloatFormat) -> Iterator[Tensor]:
    """Every upper half of an fp32 pattern, with lower halves at and beside the middle of two."""
    middle = 1 << (_SINGLE_MANTISSA - 1 - of.mantissa_bits)
    at = sorted({(low + high) & 0xFFFF for low in (-1, 0, 1) for high in (0, middle, 3 * middle)})
    for low in at:
        bits = torch.arange(-(2**15), 2**15) * 2**16 + low
        yield bits.to(torch.int32).view(torch.float32)


def _of_doubles(of: FloatFormat, device: str, seed: int) -> Iterator[FormatAgreement]:
    """Values of fp64 just beside what lies in the middle of two numbers."""
    if of.is_scale or of.num_bits > _MOST_BITS:
        return
    generator = torch.Generator().manual_seed(seed)
    step = 2.0**-of.mantissa_bits
    at = torch.randint(0, 2**of.mantissa_bits, (_TWICE,), generator=generator)
    beside = torch.rand(_TWICE, dtype=torch.float64, generator=generator) - 0.5
    yield from _of(of, "fp64", iter([1.0 + (at + 0.5) * step + beside * 2.0**-30]), device)


def _random_fp32(num_values: int, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for begin in range(0, num_values, _AT_ONCE):
        size = min(_AT_ONCE, num_values - begin)
        bits = torch.randint(-(2**31), 2**31, (size,), generator=generator)
        yield bits.to(torch.int32).view(torch.float32)


def _of(
    of: FloatFormat, what: str, values: Iterator[Tensor], device: str
) -> Iterator[FormatAgreement]:
    casts = _casts(of)
    counts = {pair: _Differences() for pair in combinations(casts, 2)}
    for one in values:
        some = one.to(device)
        found = {name: cast(some) for name, cast in casts.items()}
        for (left, right), count in counts.items():
            count.add(some.double(), found[left], found[right], of)
    for pair, count in counts.items():
        yield count.row(of, ", ".join(pair), what)


class _Differences:
    """How often two sides differ, and where first."""

    def __init__(self) -> None:
        self.num_tried = 0
        self._numbers: dict[str, int] = {}
        self._examples: dict[str, str] = {}

    def add(self, given: Tensor, left: Tensor, right: Tensor, of: FloatFormat) -> None:
        """Count what differs; NaN is NaN, whatever its bits, and zeros have signs."""
        self.num_tried += given.numel()
        same = (left == right) & (left.signbit() == right.signbit())
        wrong = ~(same | (left.isnan() & right.isnan()))
        for kind, holds in _kinds(given, of):
            here = wrong & holds
            wrong = wrong & ~holds
            if not here.any():
                continue
            self._numbers[kind] = self._numbers.get(kind, 0) + int(here.sum())
            at = int(here.nonzero()[0])
            told = f"{given[at].item():.9g} becomes {left[at].item():g}, {right[at].item():g}"
            self._examples.setdefault(kind, told)

    def row(self, of: FloatFormat, sides: str, what: str) -> FormatAgreement:
        kind = max(self._numbers, key=lambda one: self._numbers[one], default="")
        return FormatAgreement(
            format=of.name,
            sides=sides,
            what=what,
            num_tried=self.num_tried,
            num_different=sum(self._numbers.values()),
            kind=kind,
            example=self._examples.get(kind, ""),
        )


def _kinds(given: Tensor, of: FloatFormat) -> Iterator[tuple[str, Tensor]]:
    """Where a value is special; the first that holds counts."""
    yield "not a number", given.isnan()
    yield "infinite", given.isinf()
    yield "zero", given == 0
    if of.is_scale:
        yield "below zero", given < 0
        yield "a subnormal of fp32", given.abs() < torch.finfo(torch.float32).tiny
    yield "beyond the largest", given.abs() > of.largest
    is_beside = given.float().double() != given
    yield "beside a tie", is_beside
    yield "between", torch.ones_like(is_beside)
