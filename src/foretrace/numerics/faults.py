"""Bits that flip: fault models, and numbers as the bits that a format stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from foretrace.base import WorkloadError
from foretrace.numerics.formats import FloatFormat, float_format
from foretrace.numerics.libraries import Tensor, torch

_INT8 = "int8"
_WARP = 32  # threads: a fault in what they share recurs with their number as its period

_SEVERAL = 2  # bits of a multi-bit flip or a burst, unless stated

Wrong = Callable[["Tensor", "Tensor"], "Tensor"]


class FaultKind(StrEnum):
    """What becomes of stored bits.

    Gate-level studies find single bits in fewer than 40 % of events (arXiv:2605.04213): a campaign
    of one kind is no campaign of hardware.
    """

    SINGLE = "single"  # one bit flips
    MULTI = "multi"  # several bits of one number flip, anywhere
    BURST = "burst"  # several bits of one number flip, side by side
    WARP = "warp"  # the same bit flips in several numbers, a warp apart
    STUCK_0 = "stuck-0"  # one bit reads as 0
    STUCK_1 = "stuck-1"  # one bit reads as 1

    @property
    def num_elements(self) -> int:
        """Numbers that one fault touches."""
        return 4 if self is FaultKind.WARP else 1


@dataclass(frozen=True, kw_only=True)
class StorageFormat:
    """How a parameter lies in memory."""

    name: str
    num_bits: int
    held: FloatFormat | None  # none: int8 with one scale for the tensor

    @property
    def _integer(self) -> torch.dtype:
        kinds = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
        return kinds[self.num_bits]

    def bits(self, values: Tensor, scale: float) -> Tensor:
        """Patterns of bits, as int64 without sign."""
        if self.held is None:
            whole = (values / scale).round().clamp(-127, 127).to(torch.int64)
        else:
            whole = values.to(getattr(torch, self.held.torch)).view(self._integer).to(torch.int64)
        return whole & ((1 << self.num_bits) - 1)

    def values(self, bits: Tensor, scale: float) -> Tensor:
        """What patterns mean, in fp32."""
        sign = 1 << (self.num_bits - 1)
        signed = (bits ^ sign) - sign
        if self.held is None:
            return signed.float() * scale
        narrow = (bits if self.num_bits == 8 else signed).to(self._integer)  # noqa: PLR2004  bytes have no sign
        return narrow.view(getattr(torch, self.held.torch)).float()

    def scale_of(self, values: Tensor) -> float:
        """Of a tensor that is stored as int8."""
        largest = float(values.abs().max()) if values.numel() else 0.0
        return largest / 127 if self.held is None and largest > 0 else 1.0


def storage_format(name: str) -> StorageFormat:
    """How numbers lie in memory under this name: int8, or a float format that PyTorch has.

    Raises:
        WorkloadError: if PyTorch has no type for it.
    """
    if name == _INT8:
        return StorageFormat(name=_INT8, num_bits=8, held=None)
    found = float_format(name)
    if not found.torch or found.is_scale:
        raise WorkloadError(
            f"parameters cannot be stored as {name}: expected int8, or a format that PyTorch has a "
            "type for, as fp32, bf16, fp16 or fp8_e4m3"
        )
    return StorageFormat(name=found.name, num_bits=found.num_bits, held=found)


def faulty_bits(
    bits: Tensor,
    kind: FaultKind,
    at: Tensor,
    *,
    num_bits: int,
    several: int = _SEVERAL,
    generator: torch.Generator,
) -> Tensor:
    """Patterns after a fault.

    Args:
        bits: [faults, elements], as they were stored.
        kind: of the faults.
        at: [faults], the bit of each; of a burst the lowest.
        num_bits: of one number.
        several: bits that flip, of multi-bit flips and bursts.
        generator: of the other bits of a multi-bit flip.
    """
    one = torch.ones_like(at) << at
    if kind is FaultKind.BURST:
        for further in range(1, several):
            one = one | (torch.ones_like(at) << (at + further).clamp(max=num_bits - 1))
    elif kind is FaultKind.MULTI:
        keys = torch.rand((at.numel(), num_bits), generator=generator)
        keys.scatter_(1, at[:, None], 2.0)  # the stated one is among them
        chosen = keys.topk(min(several, num_bits), dim=1).indices
        one = (torch.ones_like(chosen) << chosen).sum(1)
    mask = one[:, None]
    if kind is FaultKind.STUCK_0:
        return bits & ~mask
    return bits | mask if kind is FaultKind.STUCK_1 else bits ^ mask


def places_of(
    kind: FaultKind, number: int, *, num_elements: int, generator: torch.Generator
) -> Tensor:
    """Elements that faults touch; [faults, elements]."""
    first = torch.randint(num_elements, (number, 1), generator=generator)
    lanes = torch.arange(kind.num_elements)[None]
    return (first + _WARP * lanes) % num_elements


def wrong_decisions(clean: Tensor, faulty: Tensor) -> Tensor:
    """Whether each sample is decided otherwise, or the output is no number; bool[samples].

    Of several columns the largest decides, of one its sign (or 0.5 of a probability).
    """
    first, second = clean.flatten(1), faulty.flatten(1)
    lost = ~second.isfinite().all(1)
    if first.shape[1] > 1:
        return (first.argmax(1) != second.argmax(1)) | lost
    is_probability = bool(((first >= 0) & (first <= 1)).all())
    limit = 0.5 if is_probability else 0.0
    return ((first > limit) != (second > limit)).any(1) | lost
