"""Formats of floating-point numbers and how a value is rounded to one.

PyTorch rounds where it has the format as a type; every other format and rounding is emulated here,
in fp64, whose 53 bits hold every sum that the emulation needs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from foretrace.base import WorkloadError, number_format
from foretrace.numerics.libraries import Tensor, torch

_DOUBLE_BIAS, _DOUBLE_MANTISSA = 1023, 52
_STATED = re.compile(r"e(\d+)m(\d+)$")
_MOST_EXPONENT, _MOST_MANTISSA = 8, 23  # of a stated format: fp64 holds its sums


class Rounding(StrEnum):
    """What becomes of a value between two numbers of a format."""

    NEAREST = "nearest"  # the nearer one; of two alike the even one
    TOWARD_ZERO = "toward-zero"  # the smaller one: bits are cut off
    STOCHASTIC = "stochastic"  # the upper one with the odds that make the mean right


class Specials(StrEnum):
    """What the largest patterns mean."""

    IEEE = "ieee"  # infinities, and NaN above them
    ONE_NAN = "fn"  # the largest pattern of either sign alone is NaN, there are no infinities
    UNSIGNED_ZERO = "fnuz"  # NaN stands where -0 would, there are no infinities
    NONE = "none"  # all are numbers


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """Sign, exponent and mantissa of one format."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    specials: Specials = Specials.IEEE
    torch: str = ""  # PyTorch's type
    ml_dtypes: str = ""  # the type of ml_dtypes
    is_scale: bool = False  # an exponent alone: no sign, no zero

    @property
    def bias(self) -> int:
        """What is taken from the stored exponent."""
        is_shifted = self.specials is Specials.UNSIGNED_ZERO
        return (1 << (self.exponent_bits - 1)) - 1 + is_shifted

    @property
    def num_bits(self) -> int:
        """Of one number."""
        return self.exponent_bits + self.mantissa_bits + (not self.is_scale)

    @property
    def smallest_exponent(self) -> int:
        """Of a normal number; below it mantissas have no leading one."""
        return -self.bias if self.is_scale else 1 - self.bias

    @cached_property
    def largest(self) -> float:
        """The largest finite value."""
        top = (1 << self.exponent_bits) - 1 - self.bias
        if self.is_scale:
            return math.ldexp(1.0, top - 1)  # the last pattern is NaN
        step = math.ldexp(1.0, -self.mantissa_bits)
        if self.specials is Specials.IEEE:
            return math.ldexp(2.0 - step, top - 1)
        lost = 2 if self.specials is Specials.ONE_NAN else 1
        return math.ldexp(2.0 - lost * step, top)

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of a nearest number, of normal values."""
        return math.ldexp(1.0, -(self.mantissa_bits + 1))


def _float8(name: str, exponent_bits: int, specials: Specials, library: str) -> FloatFormat:
    return FloatFormat(
        name=name,
        exponent_bits=exponent_bits,
        mantissa_bits=7 - exponent_bits,
        specials=specials,
        torch=library,
        ml_dtypes=library,
    )


# Sources: IEEE 754-2019; NVIDIA's TF32; Micikevicius et al., "FP8 Formats for Deep Learning",
# arXiv:2209.05433; Noune et al., arXiv:2206.02915 (fnuz); Open Compute Project, "Microscaling
# Formats (MX) Specification" 1.0.
FLOAT_FORMATS = (
    FloatFormat(name="fp64", exponent_bits=11, mantissa_bits=52, torch="float64"),
    FloatFormat(name="fp32", exponent_bits=8, mantissa_bits=23, torch="float32"),
    FloatFormat(name="tf32", exponent_bits=8, mantissa_bits=10),
    FloatFormat(name="bf16", exponent_bits=8, mantissa_bits=7, torch="bfloat16",
                ml_dtypes="bfloat16"),
    FloatFormat(name="fp16", exponent_bits=5, mantissa_bits=10, torch="float16",
                ml_dtypes="float16"),
    _float8("fp8_e4m3", 4, Specials.ONE_NAN, "float8_e4m3fn"),
    _float8("fp8_e5m2", 5, Specials.IEEE, "float8_e5m2"),
    _float8("fp8_e4m3fnuz", 4, Specials.UNSIGNED_ZERO, "float8_e4m3fnuz"),
    _float8("fp8_e5m2fnuz", 5, Specials.UNSIGNED_ZERO, "float8_e5m2fnuz"),
    FloatFormat(name="fp6_e2m3", exponent_bits=2, mantissa_bits=3, specials=Specials.NONE,
                ml_dtypes="float6_e2m3fn"),
    FloatFormat(name="fp6_e3m2", exponent_bits=3, mantissa_bits=2, specials=Specials.NONE,
                ml_dtypes="float6_e3m2fn"),
    FloatFormat(name="fp4_e2m1", exponent_bits=2, mantissa_bits=1, specials=Specials.NONE,
                ml_dtypes="float4_e2m1fn"),
    FloatFormat(name="e8m0", exponent_bits=8, mantissa_bits=0, specials=Specials.ONE_NAN,
                torch="float8_e8m0fnu", ml_dtypes="float8_e8m0fnu", is_scale=True),
)  # fmt: skip
_BY_NAME = {one.name: one for one in FLOAT_FORMATS}
_BY_NAME |= {one.torch: one for one in FLOAT_FORMATS if one.torch}
FP64, FP32, BF16 = _BY_NAME["fp64"], _BY_NAME["fp32"], _BY_NAME["bf16"]


def float_format(name: str) -> FloatFormat:
    """The format of this name; "e5m4" is one with so many bits of exponent and mantissa.

    Raises:
        WorkloadError: if there is none.
    """
    plain = name.strip().lower().removeprefix("torch.").replace("-", "_")
    found = _BY_NAME.get(plain)
    if found is None and (known := number_format(plain)) is not None:  # "f32", "c10::Half"
        found = _BY_NAME.get({"fp8": "fp8_e4m3", "fp4": "fp4_e2m1"}.get(known.name, known.name))
    if found is not None:
        return found
    if stated := _STATED.match(plain):
        exponent_bits, mantissa_bits = map(int, stated.groups())
        if 2 <= exponent_bits <= _MOST_EXPONENT and 1 <= mantissa_bits <= _MOST_MANTISSA:  # noqa: PLR2004  one bit is no exponent
            return FloatFormat(name=plain, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)
    raise WorkloadError(
        f"the float format {name!r} is unknown: expected one of "
        f"{', '.join(one.name for one in FLOAT_FORMATS)}, or eXmY with 2 to {_MOST_EXPONENT} bits "
        f"of exponent and 1 to {_MOST_MANTISSA} of mantissa"
    )


def rounded(
    values: Tensor,
    to: FloatFormat,
    *,
    rounding: Rounding = Rounding.NEAREST,
    saturates: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The values as the format holds them, in the type that they came in.

    Args:
        values: fp32 or fp64.
        to: the format.
        rounding: what becomes of values between two numbers.
        saturates: whether what is too large for a format without infinities is its largest
            number, as PyTorch has it, or NaN, as ml_dtypes has it.
        generator: of random numbers, for stochastic rounding; PyTorch's own, if left out.
    """
    if to is FP64 or (to is FP32 and values.dtype is torch.float32):
        return values
    rounds_once = values.dtype is torch.float32 or to is FP32  # PyTorch takes fp64 through fp32
    if rounds_once and to.torch and to.specials is Specials.IEEE and rounding is Rounding.NEAREST:
        return values.to(getattr(torch, to.torch)).to(values.dtype)
    return emulated(values, to, rounding=rounding, saturates=saturates, generator=generator).to(
        values.dtype
    )


def emulated(
    values: Tensor,
    to: FloatFormat,
    *,
    rounding: Rounding = Rounding.NEAREST,
    saturates: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The same by arithmetic alone, in fp64; what libraries do is held against it."""
    wide = values.double()
    quantum = exponents(wide).clamp(min=to.smallest_exponent) - to.mantissa_bits
    scaled = wide * power(-quantum)
    if rounding is Rounding.NEAREST:
        whole = scaled.round()
    elif rounding is Rounding.TOWARD_ZERO:
        whole = scaled.trunc()
    else:
        odds = torch.rand(
            scaled.shape, dtype=torch.float64, generator=generator, device=scaled.device
        )
        whole = (scaled.abs() + odds).floor().copysign(scaled)
    found = whole * power(quantum)
    found = _with_overflow(found, wide, to, is_clipped=rounding is not Rounding.NEAREST)
    return _with_specials(found, wide, to, saturates=saturates)


def _with_overflow(found: Tensor, wide: Tensor, to: FloatFormat, *, is_clipped: bool) -> Tensor:
    """Finite values beyond the largest are infinite; or the largest, where bits are cut off."""
    beyond = torch.where(wide.isfinite(), to.largest if is_clipped else torch.inf, wide.abs())
    return torch.where(found.abs() > to.largest, beyond.copysign(wide), found)


def _with_specials(found: Tensor, wide: Tensor, to: FloatFormat, *, saturates: bool) -> Tensor:
    found = torch.where(wide.isnan(), torch.nan, found)
    if to.specials is not Specials.IEEE:
        is_saturated = to.specials is Specials.NONE or (
            saturates and to.specials is Specials.ONE_NAN and not to.is_scale
        )
        largest = torch.full_like(found, to.largest).copysign(found)
        found = torch.where(found.isinf(), largest if is_saturated else torch.nan, found)
    if to.specials is Specials.UNSIGNED_ZERO:
        found = torch.where(found == 0, 0.0, found)
    if to.is_scale:
        found = torch.where(wide <= 0, torch.nan, found.clamp(min=2.0**to.smallest_exponent))
    return found


def exponents(wide: Tensor) -> Tensor:
    """floor(log2|x|) of every normal fp64 number, from its bits."""
    bits = wide.view(torch.int64) >> _DOUBLE_MANTISSA
    return (bits & (2 * _DOUBLE_BIAS + 1)) - _DOUBLE_BIAS


def power(exponents: Tensor) -> Tensor:
    """Two to these powers, exactly."""
    bounded = exponents.clamp(1 - _DOUBLE_BIAS, _DOUBLE_BIAS)
    return ((bounded + _DOUBLE_BIAS) << _DOUBLE_MANTISSA).view(torch.float64)


def pattern_values(of: FloatFormat) -> Tensor:
    """What every pattern of bits of a format of 16 bits or fewer means; fp64[patterns]."""
    patterns = torch.arange(2**of.num_bits)
    stored = (patterns >> of.mantissa_bits) & (2**of.exponent_bits - 1)
    fraction = (patterns & (2**of.mantissa_bits - 1)).double() * 2.0**-of.mantissa_bits
    top = 2**of.exponent_bits - 1
    if of.is_scale:
        found = power(stored - of.bias)
        return torch.where(stored == top, torch.nan, found)
    is_normal = stored > 0
    found = (fraction + is_normal) * power(stored.clamp(min=1) - of.bias)
    sign = torch.where((patterns >> (of.num_bits - 1)) == 1, -1.0, 1.0)
    if of.specials is Specials.IEEE:
        special = torch.where(fraction == 0, torch.inf, torch.nan)
        found = torch.where(stored == top, special, found)
    elif of.specials is Specials.ONE_NAN:
        is_last = (stored == top) & (fraction == 1 - 2.0**-of.mantissa_bits)
        found = torch.where(is_last, torch.nan, found)
    found = found.copysign(sign)
    if of.specials is Specials.UNSIGNED_ZERO:
        found = torch.where((found == 0) & (sign < 0), torch.nan, found)
    return found
