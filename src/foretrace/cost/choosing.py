"""Which constants answer for a chip: its own, its architecture's, another's, or all chips'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from foretrace.base import MachineError
from foretrace.cost.attention import PROFILED
from foretrace.cost.constants import ELSEWHERE, Constants, Fit, Spread, width_of
from foretrace.cost.errors import REGIONS
from foretrace.cost.gemm import BLOCKWISE
from foretrace.cost.model import Source
from foretrace.machine import Chip, load_chip

# NVIDIA's architectures by age: a chip without measurements resembles its neighbours most.
_BY_AGE = ("Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell", "Blackwell Ultra")
# A chip's own constants from fewer rows than this give way to those of a twin: the same chip with
# another memory. Other chips take them last. Some 200 products along one line of shapes put an A100
# of 40 GB a third below one of 80 GB, which has the same processors, clock and power limit.
_FEW_ROWS = 250
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

_PRODUCTS = "gemm"
# A processor keeps a few dozen KB on their way from memory, so that the fewer bytes it has to load
# in a ns, the more of the bandwidth is used: recordings of V100 and A100 of 40 GB, with 11 and 14,
# reach 0.92 and 0.94 of the data sheet, those of A100 of 80 GB and H100, with 19 and 25, reach 0.85
# and 0.88. Cards with graphics memory have 5 to 9, and no products of theirs that wait for memory
# were measured. Experts' products load weights alike.
_OF_WEIGHTS = (_PRODUCTS, "experts")
#
# The level 2 cache hands over so many bytes a cycle of a processor, whatever the memory is. What
# libraries multiply, and experts that Triton compiles, are as fast as shared memory feeds them, as
# wide on all chips: with 2,048 operations a cycle (A100) at 1.0 of the peak inside a tile, with
# 3,786 (Hopper) at 0.85 to 0.87, with 7,678 (B200) at 0.73. A card's processor has a half or a
# quarter of an A100's. Attention is fed alike, and reaches 0.85 of the peak at most where a Hopper
# feeds it: by an A100's 0.51 to 0.69 prompts took up to 2.1 times as long as an RTX 4090 and an RTX
# PRO 6000 need (casys-kaist/LLMServingSim 5daddb21, their profiles of attention).
_FEW_BYTES, _STREAMED = 10.0, 0.92
_MOST_OF_RATE = {"tile_rate": 1.0, "matrix_rate": 0.85}
_OF_VECTORS = ("fp32", "fp64")  # formats that vector units multiply
# What makes operands of 8 bits, and what rotates and casts beside attention, is bound by
# processors, not by memory: an H200 with 1.43 times an H100's bandwidth and the same processors
# moves as many bytes in a cycle of one (for operands 5.4 and 4.7 with one scale, 6.9 and 7.1 with
# scales of blocks, which a B200 does at 6.3; beside FlashAttention 3 in 16 bits 11.9 and 11.1), of
# the public tables of serving libraries. Other processors than these do so much only with scales
# of blocks.
_BY_CYCLE = ("quantise_rate", "beside")
_BY_TRITON = "served"
# Cards of Blackwell multiply as Ampere's and Ada's processors do: the instructions with which those
# of its data centres fill theirs are not theirs (NVIDIA, CUTLASS 4, media/docs/cpp/
# blackwell_functionality.md: tcgen05 on SM100, mma.sync on SM120).
_OF_CARDS = {"Blackwell": "Ada"}
_ATTENTION, _DECODE = "attention", "decode"  # what models of theirs begin with

# Where nothing tells how far a model is off: from half to twice, wider than any model tested.
UNTESTED_SPREAD = Spread(0.5, 2.0)


@dataclass(frozen=True)
class Chosen:
    """Constants, how they were come by, and the spread that goes with that."""

    fit: Fit
    source: Source  # LEARNT, FITTED or TRANSFERRED
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
        return _own(_twin(found, chip, constants) or found)
    for stand_in in (width, *_STAND_INS.get(width, ())):
        fits = [
            (one, fit)
            for one in constants
            if (fit := one.fit(model, kind, stand_in)) is not None and not fit.is_of_steps
        ]
        if fits:
            nearest = _fed(*_nearest(chip, fits), chip)
            spread = _spread_elsewhere((model, kind, stand_in), nearest, constants)
            return Chosen(nearest, Source.TRANSFERRED, spread)
    return None


def chosen_of_own(key: tuple[str, str, str], own: Constants) -> Chosen | None:
    """The same of a chip's own constants; none where others' are asked for, in place or beside."""
    model, kind, dtype = key
    found = own.fit(model, kind, width_of(dtype))
    return None if found is None or _may_have_twin(found) else _own(found)


def _own(fit: Fit) -> Chosen:
    source = Source.LEARNT if fit.is_of_steps else Source.FITTED
    return Chosen(fit, source, dict(fit.spread_by_region))


def _nearest(chip: Chip, fits: Sequence[tuple[Constants, Fit]]) -> tuple[Constants, Fit]:
    """The fit of the nearest chip; of those equally near, of the benchmark that most chips share.

    A chip without a table is compared with others by what it does on them all; a table of one
    chip alone has habits of its own. Then the one with the most rows counts. What cards with
    graphics memory do comes last for other chips: power holds them back, which no constant knows.
    """
    shared = Counter(fit.source for _, fit in fits)

    def order(pair: tuple[Constants, Fit]) -> tuple[bool, bool, int, bool, int, int, str]:
        one, fit = pair
        is_held_back = not _is_card(chip) and _is_of_card(one.chip)
        is_line = fit.model == _PRODUCTS and fit.num_rows < _FEW_ROWS
        architecture, attends = chip.architecture, fit.model.startswith((_ATTENTION, _DECODE))
        if (attends or fit.model == _PRODUCTS) and _is_card(chip):
            architecture = _OF_CARDS.get(architecture, architecture)
        # Kernels of attention are built for the oldest chip that runs them; FlashAttention 2 is
        # one kernel on all.
        is_built = attends and fit.kind != PROFILED
        is_newer = is_built and _is_newer(one.architecture, architecture)
        near = _distance(chip, one, architecture), is_newer, -shared[fit.source], -fit.num_rows
        return is_held_back, is_line, *near, one.chip

    return min(fits, key=order)


def _fed(source: Constants, fit: Fit, chip: Chip) -> Fit:
    """Another chip's constants, with what memory, cache and processors of a card hand over."""
    other = None if source.chip == ELSEWHERE else _described(source.chip)
    if fit.model == _PRODUCTS and fit.width in _OF_VECTORS and other is not None:
        fit = _fed_by_cycle(fit, other, chip)
    is_alike = chip.architecture == source.architecture or fit.kind.startswith(BLOCKWISE)
    if is_alike and other is not None:
        fit = _moved_by_cycle(fit, other, chip)
    if not _is_card(chip):
        return fit
    values = dict(fit.values)
    if fit.model in _OF_WEIGHTS and "memory_rate" in values:
        values["memory_rate"] = max(values["memory_rate"], _STREAMED)
    own_cycles, cycles = _cycles(chip), None if other is None else _cycles(other)
    if other is not None and own_cycles and cycles:
        if "cache_rate" in values and fit.model == "movement":
            each = other.memory_bytes_per_ns / cycles, chip.memory_bytes_per_ns / own_cycles
            values["cache_rate"] *= max(1.0, each[0] / each[1])
        peaks = other.peak_flops_per_ns("bf16"), chip.peak_flops_per_ns("bf16")
        is_by_triton = fit.model == "experts" and fit.kind.startswith(_BY_TRITON)
        rate = "tile_rate" if is_by_triton or fit.model == _PRODUCTS else ""
        rate = "matrix_rate" if fit.model.startswith(_ATTENTION) else rate
        if rate in values and peaks[0] and peaks[1]:
            fed = max(1.0, peaks[0] / cycles / (peaks[1] / own_cycles))
            values[rate] = min(max(_MOST_OF_RATE[rate], values[rate]), values[rate] * fed)
    return replace(fit, values=values)


def _fed_by_cycle(fit: Fit, other: Chip, chip: Chip) -> Fit:
    """Products of vector units: their operands come as fast in a cycle as on the other chip.

    Their rate is told per 16-bit peak, which grew up to sixteenfold in a cycle since Pascal while
    vector units and the loads that feed them did not (NVIDIA's whitepapers, GP100 to GH100).
    """
    cycles, own_cycles = _cycles(other), _cycles(chip)
    peak, own_peak = (
        one.peak_flops_per_ns("bf16") or one.peak_flops_per_ns(fit.width) for one in (other, chip)
    )
    if not (cycles and own_cycles and peak and own_peak and "operand_rate" in fit.values):
        return fit
    rate = fit.values["operand_rate"] * (peak / cycles) / (own_peak / own_cycles)
    return replace(fit, values={**fit.values, "operand_rate": rate})


def _moved_by_cycle(fit: Fit, other: Chip, chip: Chip) -> Fit:
    """Bytes beside the kernels' own move as fast in a cycle, as far as memory lets them."""
    cycles, own_cycles = _cycles(other), _cycles(chip)
    if not (cycles and own_cycles):
        return fit
    share = (chip.memory_bytes_per_ns / own_cycles) / (other.memory_bytes_per_ns / cycles)
    taken = {name: fit.values[name] for name in _BY_CYCLE if name in fit.values}
    moved = {name: max(min(one, 1.0), one * share) for name, one in taken.items()}
    return replace(fit, values={**fit.values, **moved})


def _is_card(chip: Chip) -> bool:
    """Whether a chip has graphics memory, by what of its bandwidth a processor has."""
    return chip.memory_bytes_per_ns < _FEW_BYTES * (chip.num_processors or 0)


@cache
def _is_of_card(name: str) -> bool:
    """The same of a chip by its name; whatever nobody described is none."""
    described = _described(name)
    return described is not None and _is_card(described)


@cache
def _described(name: str) -> Chip | None:
    """A chip by its name; none where nobody described it."""
    try:
        return load_chip(name)
    except MachineError:
        return None


def _cycles(chip: Chip) -> float:
    """Cycles of all processors in a ns; 0: not described."""
    return (chip.num_processors or 0) * (chip.cycles_per_ns or 0.0)


def _twin(own: Fit, chip: Chip, constants: Sequence[Constants]) -> Fit | None:
    """Constants of the same chip with another memory, where the chip's own rest on few rows."""
    if not _may_have_twin(own):
        return None
    silicon, _, _ = chip.name.rpartition("-")
    twins = [
        fit
        for one in constants
        if one.chip != chip.name
        and one.architecture == chip.architecture
        and one.chip.rpartition("-")[0] == silicon
        and (fit := one.fit(own.model, own.kind, own.width)) is not None
        and fit.num_rows >= _FEW_ROWS
    ]
    return max(twins, key=lambda fit: fit.num_rows, default=None)


def _may_have_twin(own: Fit) -> bool:
    """Whether a fit rests on few rows of products, so that a twin's may take its place."""
    return own.model == _PRODUCTS and own.num_rows < _FEW_ROWS and not own.is_of_steps


def _distance(chip: Chip, one: Constants, architecture: str) -> int:
    """The chip's own, the same architecture's, neighbours by age, then all chips together."""
    if one.chip == chip.name:
        return -1
    if one.chip == ELSEWHERE:
        return len(_BY_AGE)
    if one.architecture == architecture:
        return 0
    if one.architecture in _BY_AGE and architecture in _BY_AGE:
        return abs(_BY_AGE.index(one.architecture) - _BY_AGE.index(architecture))
    return len(_BY_AGE) + 1


def _is_newer(one: str, other: str) -> bool:
    """Whether an architecture came after another, where both are known by age."""
    return one in _BY_AGE and other in _BY_AGE and _BY_AGE.index(one) > _BY_AGE.index(other)


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
