"""Formats of numbers: how many bytes one takes, and what each source calls it.

A format's name here is what plans, chips and tables of measurements say: "bf16". Formats that
chips do not tell apart share one name: both 8-bit floats are "fp8".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from foretrace.base.errors import WorkloadError

_NO_CODE = -1
_NARROW_BYTES = 1.0


@dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """One format of numbers."""

    name: str
    num_bytes: float  # of one number, without scales
    torch: str = ""  # the attribute of `torch`
    profiled: str = ""  # as PyTorch's profiler prints the type of a tensor
    code: int = _NO_CODE  # c10/core/ScalarType.h: how it stands among concrete inputs
    spellings: tuple[str, ...] = ()  # others', in small letters: old traces, NCCL, its kernels
    scale_bytes: float = 0.0  # each number's share of the scales that its block keeps
    units: str = ""  # the name of the format at whose rate chips work on it; its own if empty

    @property
    def whole_bytes(self) -> int:
        """Bytes of one number; 0 where several share one byte."""
        return int(self.num_bytes)

    @property
    def rated_as(self) -> str:
        """What chips' peaks and tables of measurements call it."""
        return self.units or self.name

    @property
    def is_narrow(self) -> bool:
        """Whether it is a float of eight bits or fewer, which products take with scales."""
        return self.num_bytes <= _NARROW_BYTES and "fp" in self.name


def _float8(torch: str, profiled: str, code: int, *spellings: str) -> NumberFormat:
    return NumberFormat(
        name="fp8", num_bytes=1.0, torch=torch, profiled=profiled, code=code, spellings=spellings
    )


# Scales: a byte for 32 numbers, and for 16. Source: Open Compute Project, "Microscaling
# Formats (MX) Specification", 1.0; NVIDIA, "Pretraining Large Language Models with NVFP4",
# arXiv:2509.25149.
_MX_SCALE, _NV_SCALE = 1 / 32, 1 / 16
_FLOAT8, _FLOAT4 = "c10::Float8_e4m3fn", "c10::Float4_e2m1fn"
# Of several under one name, the first is written. Formats of blocks (mxfp8) are profiled as their
# elements' format, and TF32 is a way to multiply fp32, which no profiler tells apart: its name
# there is ours.
NUMBER_FORMATS = (
    NumberFormat(name="fp64", num_bytes=8.0, torch="float64", profiled="double", code=7,
                 spellings=("f64",)),
    NumberFormat(name="fp32", num_bytes=4.0, torch="float32", profiled="float", code=6,
                 spellings=("f32",)),
    NumberFormat(name="tf32", num_bytes=4.0, profiled="tensorfloat32"),
    NumberFormat(name="bf16", num_bytes=2.0, torch="bfloat16", profiled="c10::BFloat16", code=15),
    NumberFormat(name="fp16", num_bytes=2.0, torch="float16", profiled="c10::Half", code=5,
                 spellings=("f16",)),
    _float8("float8_e4m3fn", _FLOAT8, 24, "float8", "fp8e4m3", "f8e4m3"),
    _float8("float8_e5m2", "c10::Float8_e5m2", 23, "fp8e5m2", "f8e5m2"),
    _float8("float8_e5m2fnuz", "c10::Float8_e5m2fnuz", 25),
    _float8("float8_e4m3fnuz", "c10::Float8_e4m3fnuz", 26),
    _float8("float8_e8m0fnu", "c10::Float8_e8m0fnu", 44),
    NumberFormat(name="mxfp8", num_bytes=1.0, profiled=_FLOAT8, scale_bytes=_MX_SCALE, units="fp8"),
    NumberFormat(name="fp4", num_bytes=0.5, profiled=_FLOAT4),
    NumberFormat(name="nvfp4", num_bytes=0.5, profiled=_FLOAT4, scale_bytes=_NV_SCALE, units="fp4"),
    NumberFormat(name="mxfp4", num_bytes=0.5, profiled=_FLOAT4, scale_bytes=_MX_SCALE, units="fp4"),
    NumberFormat(name="int64", num_bytes=8.0, torch="int64", profiled="long int", code=4,
                 spellings=("long", "i64")),
    NumberFormat(name="int32", num_bytes=4.0, torch="int32", profiled="int", code=3,
                 spellings=("i32",)),
    NumberFormat(name="int16", num_bytes=2.0, torch="int16", profiled="short int", code=2,
                 spellings=("short",)),
    NumberFormat(name="int8", num_bytes=1.0, torch="int8", profiled="signed char", code=1,
                 spellings=("char", "i8")),
    NumberFormat(name="uint8", num_bytes=1.0, torch="uint8", profiled="unsigned char", code=0,
                 spellings=("byte", "u8"), units="int8"),
    NumberFormat(name="int4", num_bytes=0.5, spellings=("i4",)),
    NumberFormat(name="bool", num_bytes=1.0, torch="bool", profiled="bool", code=11),
    NumberFormat(name="complex32", num_bytes=4.0, torch="complex32",
                 profiled="c10::complex<c10::Half>", code=8),
    NumberFormat(name="complex64", num_bytes=8.0, torch="complex64",
                 profiled="c10::complex<float>", code=9),
    NumberFormat(name="complex128", num_bytes=16.0, torch="complex128",
                 profiled="c10::complex<double>", code=10),
)  # fmt: skip
SIXTEEN_BITS = ("bf16", "fp16")  # the same units work on both, at the same rate


def _by(*keys_of: str) -> dict[str, NumberFormat]:
    """The first format of each key among these fields."""
    found: dict[str, NumberFormat] = {}
    for each in NUMBER_FORMATS:
        for key in keys_of:
            said = getattr(each, key)
            for one in said if isinstance(said, tuple) else (said,):
                found.setdefault(one, each)
    return found


FORMAT_BY_NAME: Mapping[str, NumberFormat] = _by("name")
FORMAT_BY_CODE: Mapping[int, NumberFormat] = {
    each.code: each for each in NUMBER_FORMATS if each.code != _NO_CODE
}
_BY_SPELLING = {
    written: found
    for key, found in _by("name", "torch", "profiled", "spellings").items()
    for written in (key.removeprefix("c10::"), key.removeprefix("c10::").lower())
    if key
}


@lru_cache(maxsize=1024)
def number_format(text: str) -> NumberFormat | None:
    """The format of any spelling: "bf16", "torch.bfloat16", "c10::BFloat16"; none if unknown."""
    plain = text.strip().lower().removeprefix("torch.").removeprefix("c10::")
    return _BY_SPELLING.get(plain)


def tensor_format(text: str) -> NumberFormat | None:
    """The format of a tensor's type in a trace; none for others: `Int`, `Double` are one value."""
    return _BY_SPELLING.get(text.removeprefix("c10::"))


def known_format(text: str) -> NumberFormat:
    """The format of any spelling.

    Raises:
        WorkloadError: if it is unknown.
    """
    found = number_format(text)
    if found is None:
        near = get_close_matches(text.lower(), FORMAT_BY_NAME, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise WorkloadError(
            f"the number format {text!r} is unknown: known are {', '.join(FORMAT_BY_NAME)}{hint}"
        )
    return found
