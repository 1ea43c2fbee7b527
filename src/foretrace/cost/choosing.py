"""Which constants answer for a chip: its own, its architecture's, another's, or all chips'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.cost.answer import Source
from foretrace.cost.constants import ELSEWHERE, Constants, Fit, Spread, width_of
from foretrace.cost.errors import REGIONS
from foretrace.machine import Chip

# NVIDIA's architectures by age: a chip without measurements resembles its neighbours most.
_BY_AGE = ("Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")
# What runs on the same units stands in for a format that nobody measured, the nearest first.
_STAND_INS = {
    "tf32": ("16bit",),
    "int8": ("fp8", "16bit"),
    "fp8": ("16bit",),
    "fp4": ("fp8",),
    "fp64": ("fp32",),
    "16bit": ("fp32",),
    "fp32": ("16bit",),
}


# Where nothing tells how far a model is off: from half to twice, wider than any model tested.
UNTESTED_SPREAD = Spread(0.5, 2.0)


@dataclass(frozen=True)
class Chosen:
    """Constants, how they were come by, and the spread that goes with that."""

    fit: Fit
    source: Source  # FITTED or TRANSFERRED
    spread_by_region: dict[str, Spread]


def chosen_fit(
    key: tuple[str, str, str], chip: Chip, constants: Sequence[Constants]
) -> Chosen | None:
    """The nearest constants for a model, a kind of kernels and a number format; none: no fit.

    Args:
        key: model, kind, number format.
        chip: for which chip.
        constants: all there are.
    """
    model, kind, dtype = key
    width = width_of(dtype)
    own = next((one for one in constants if one.chip == chip.name), None)
    found = own.fit(model, kind, width) if own is not None else None
    if found is not None:
        return Chosen(found, Source.FITTED, dict(found.spread_by_region))
    for stand_in in (width, *_STAND_INS.get(width, ())):
        for one in _nearest(chip, constants):
            found = one.fit(model, kind, stand_in)
            if found is not None:
                spread = _spread_elsewhere((model, kind, stand_in), found, constants)
                return Chosen(found, Source.TRANSFERRED, spread)
    return None


def _nearest(chip: Chip, constants: Sequence[Constants]) -> list[Constants]:
    """The chip's own, the same architecture's, neighbours by age, then all chips together."""

    def distance(one: Constants) -> tuple[int, str]:
        if one.chip == chip.name:
            return (-1, "")
        if one.chip == ELSEWHERE:
            return (len(_BY_AGE), "")
        if one.architecture == chip.architecture:
            return (0, one.chip)
        if one.architecture in _BY_AGE and chip.architecture in _BY_AGE:
            apart = _BY_AGE.index(one.architecture) - _BY_AGE.index(chip.architecture)
            return (abs(apart), one.chip)
        return (len(_BY_AGE) + 1, one.chip)

    return sorted(constants, key=distance)


def _spread_elsewhere(
    key: tuple[str, str, str], found: Fit, constants: Sequence[Constants]
) -> dict[str, Spread]:
    """The spread on chips of an architecture left out; at least that of the fit itself.

    Where only one architecture was measured with these kernels or this format, the widest of the
    model's others stands in.
    """
    everywhere = next((one for one in constants if one.chip == ELSEWHERE), None)
    fits = [] if everywhere is None else [one for one in everywhere.fits if one.model == key[0]]
    exact = [one for one in fits if (one.kind, one.width) == key[1:] and one.spread_by_region]
    spreads = dict(found.spread_by_region)
    for fit in exact or fits:
        for region, spread in fit.spread_by_region.items():
            own = spreads.get(region, spread)
            spreads[region] = Spread(min(own.low, spread.low), max(own.high, spread.high))
    return spreads or dict.fromkeys(REGIONS, UNTESTED_SPREAD)
