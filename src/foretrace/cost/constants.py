"""Fitted constants as they are kept: one TOML file per chip, made by `foretrace calibrate`.

A file holds, for each model, kind of kernel and number format, the constants' values and how far
measured times spread around predictions of rows left out of the fit; and, for a reader, the
errors on these rows. `elsewhere.toml` holds constants fitted to all chips together; its spread
comes from chips of an architecture left out of the fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from foretrace.base import (
    FORMAT_BY_NAME,
    SIXTEEN_BITS,
    DescriptionKey,
    MachineError,
    Table,
    Text,
    Whole,
    parsed_toml,
    read_keys,
)
from foretrace.cost.errors import Errors
from foretrace.machine import Chip

_LEFT_OUT = "[[left_out]]"  # such tables stand behind all others
ELSEWHERE = "elsewhere"  # in place of a chip: constants fitted to all of them
RECORDINGS = "recordings"  # source of constants that recordings taught
FOLDER = Path(__file__).parent / "constants"

_KEYS = (
    DescriptionKey("chip", Text, is_required=True),
    DescriptionKey("architecture", str, is_required=True),
    DescriptionKey("made", str, is_required=True),
    DescriptionKey("fit", tuple[dict[str, Any], ...], expected="a list of tables"),
    DescriptionKey("left_out", tuple[dict[str, Any], ...], expected="a list of tables"),
)
_FIT_KEYS = (
    *(DescriptionKey(name, str, is_required=True) for name in ("model", "kind", "width", "source")),
    DescriptionKey("num_rows", Whole, is_required=True),
    *(
        DescriptionKey(name, dict[str, float], is_required=True, expected="a table of numbers")
        for name in ("values", "line")
    ),
    DescriptionKey(
        "spread", dict[str, dict[str, Any]], is_required=True, expected="a table of low and high"
    ),
)
_SPREAD_KEYS = (
    DescriptionKey("low", float, is_required=True),
    DescriptionKey("high", float, is_required=True),
)
_LEFT_OUT_KEYS = (
    *(
        DescriptionKey(name, str, is_required=True)
        for name in ("family", "gpu", "dtype", "fitted_on")
    ),
    *(
        DescriptionKey(each.name, {"region": str, "n": int}.get(each.name, float), is_required=True)
        for each in fields(Errors)
    ),
)


@dataclass(frozen=True)
class Spread:
    """Measured over predicted time of rows left out: the ends of an 80% interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """Constants of one model, for one kind of kernel and width of numbers."""

    model: str  # "gemm", "attention", "attention backward", "movement", ...
    kind: str  # which kernels: "library", "flash", ...
    width: str  # "16bit" for both 16-bit formats, else the format
    source: str  # of the measurements
    num_rows: int
    values: Mapping[str, float]
    line: Mapping[str, float]  # of the linear baseline, fitted to the same rows
    spread_by_region: Mapping[str, Spread]
    is_of_steps: bool = False  # taught by the user's recordings: what steps add is in it


@dataclass(frozen=True)
class LeftOut:
    """Errors on measurements left out of the fit that predicted them."""

    family: str
    gpu: str
    dtype: str
    fitted_on: str  # "same chip" (other shapes), or which architectures
    errors: Errors

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        labels = {"family": self.family, "gpu": self.gpu, "dtype": self.dtype}
        return {**labels, "fitted_on": self.fitted_on, **self.errors.as_json()}


@dataclass(frozen=True)
class Constants:
    """All that is fitted for one chip."""

    chip: str  # name of its description; ELSEWHERE
    architecture: str  # "" for ELSEWHERE
    made: str  # date, "2026-11-21"
    fits: tuple[Fit, ...]
    left_out: tuple[LeftOut, ...]

    def fit(self, model: str, kind: str, width: str) -> Fit | None:
        """The constants for these kernels; none if they are not fitted."""
        wanted = (model, kind, width)
        return next((one for one in self.fits if (one.model, one.kind, one.width) == wanted), None)


def width_of(dtype: str) -> str:
    """Number formats that share constants: "16bit" for bf16 and fp16, else what units call it."""
    known = FORMAT_BY_NAME.get(dtype)
    return "16bit" if dtype in SIXTEEN_BITS else dtype if known is None else known.rated_as


@cache
def shipped_constants() -> tuple[Constants, ...]:
    """What this version ships, by chip's name, ELSEWHERE among them."""
    return _constants_in(FOLDER, "kernels")


def constants_for(chip: Chip) -> tuple[Constants, ...]:
    """Constants of kernels: those of the chip's folder of costs before those shipped."""
    return _known(chip.costs, chip.name, "kernels")


def own_constants(chip: Chip) -> Constants | None:
    """What of `constants_for` is the chip's own, where this version ships it; no other is read."""
    path = FOLDER / f"kernels-{chip.name}.toml"
    return _shipped_fit(path) if chip.costs is None and path.is_file() else None


@cache
def shipped_collectives() -> tuple[Constants, ...]:
    """What this version ships, of chips and of networks."""
    return _constants_in(FOLDER, "collectives")


def collectives_for(chip: Chip) -> tuple[Constants, ...]:
    """Constants of collectives: those of the chip's folder of costs before those shipped."""
    return _known(chip.costs, chip.name, "collectives")


def _constants_in(folder: Path, kind: str) -> tuple[Constants, ...]:
    return tuple(read_constants(path) for path in sorted(folder.glob(f"{kind}-*.toml")))


@cache
def _shipped_fits(kind: str) -> tuple[Constants, ...]:
    """What predicts, of all that this version ships: without the rows that only say how well."""
    return tuple(_shipped_fit(path) for path in sorted(FOLDER.glob(f"{kind}-*.toml")))


@cache
def _shipped_fit(path: Path) -> Constants:
    return read_constants(path, has_errors=False)


@cache
def _known(folder: Path | None, chip: str, kind: str) -> tuple[Constants, ...]:
    """A folder's constants before those shipped; what recordings taught is of their chip alone."""
    if folder is None:
        return _shipped_fits(kind)
    shipped = shipped_constants() if kind == "kernels" else shipped_collectives()
    own = (
        replace(
            one,
            fits=tuple(
                replace(fit, is_of_steps=fit.source == RECORDINGS)
                for fit in one.fits
                if one.chip == chip or fit.source != RECORDINGS
            ),
        )
        for one in _constants_in(folder, kind)
    )
    return joined(tuple(own), shipped)


def read_constants(path: Path, *, has_errors: bool = True) -> Constants:
    """Constants from a file that `foretrace calibrate` wrote.

    Args:
        path: of the file.
        has_errors: read its errors on rows that were left out too; they are most of it.

    Raises:
        MachineError: if it is no such file.
    """
    where = f"file of constants {str(path)!r}"
    try:
        document = parsed_toml(path, MachineError, until=None if has_errors else _LEFT_OUT)
        stated = read_keys(document, _KEYS, where, error=MachineError)
        return Constants(
            chip=stated["chip"],
            architecture=stated["architecture"],
            made=stated["made"],
            fits=tuple(_fit(one, f"a [[fit]] of {where}") for one in stated.get("fit", ())),
            left_out=tuple(
                _left_out(one, f"a [[left_out]] of {where}") for one in stated.get("left_out", ())
            ),
        )
    except MachineError as err:
        raise MachineError(f"{err}. Make the file with `foretrace calibrate`.") from err


def _fit(table: Table, where: str) -> Fit:
    stated = read_keys(table, _FIT_KEYS, where, error=MachineError)
    spreads = {
        region: Spread(**read_keys(one, _SPREAD_KEYS, f"spread of {where}", error=MachineError))
        for region, one in stated.pop("spread").items()
    }
    return Fit(**stated, spread_by_region=spreads)


def _left_out(table: Table, where: str) -> LeftOut:
    stated = read_keys(table, _LEFT_OUT_KEYS, where, error=MachineError)
    labels = {key: stated.pop(key) for key in ("family", "gpu", "dtype", "fitted_on")}
    return LeftOut(**labels, errors=Errors(**stated))


def write_constants(constants: Constants, path: Path) -> None:
    """Write a file that `read_constants` reads."""
    path.write_text("\n".join(_lines(constants)) + "\n", encoding="utf-8")


def _lines(constants: Constants) -> Iterable[str]:
    yield "# Made by `foretrace calibrate`; not edited by hand."
    yield from _pairs({"chip": constants.chip, "architecture": constants.architecture})
    yield from _pairs({"made": constants.made})
    for fit in constants.fits:
        yield ""
        yield "[[fit]]"
        names = ("model", "kind", "width", "source", "num_rows")
        yield from _pairs({name: getattr(fit, name) for name in names})
        yield f"values = {_inline(fit.values)}"
        yield f"line = {_inline(fit.line)}"
        spreads = {
            region: _inline({"low": spread.low, "high": spread.high})
            for region, spread in fit.spread_by_region.items()
        }
        yield "[fit.spread]"
        yield from (f"{region} = {text}" for region, text in spreads.items())
    for one in constants.left_out:
        yield ""
        yield _LEFT_OUT
        yield from _pairs(one.as_json())


def _pairs(values: Mapping[str, object]) -> Iterable[str]:
    return (f"{key} = {_text(value)}" for key, value in values.items())


def _inline(values: Mapping[str, float]) -> str:
    return "{ " + ", ".join(_pairs(values)) + " }"


def _text(value: object) -> str:
    """A TOML value; numbers to four digits, which is finer than any fit."""
    if isinstance(value, float):
        short = float(f"{value:.4g}")
        return repr(short)
    return json.dumps(value)


def joined(first: Sequence[Constants], second: Sequence[Constants]) -> tuple[Constants, ...]:
    """Constants of both by chip; where both have some for the same kernels, the first's."""
    by_chip = {one.chip: one for one in first}
    for one in second:
        known = by_chip.get(one.chip)
        if known is None:
            by_chip[one.chip] = one
            continue
        keys = {(fit.model, fit.kind, fit.width) for fit in known.fits}
        families = {(row.family, row.gpu, row.dtype) for row in known.left_out}
        fits = (fit for fit in one.fits if (fit.model, fit.kind, fit.width) not in keys)
        rows = (row for row in one.left_out if (row.family, row.gpu, row.dtype) not in families)
        by_chip[one.chip] = replace(
            known, fits=(*known.fits, *fits), left_out=(*known.left_out, *rows)
        )
    return tuple(by_chip[name] for name in sorted(by_chip))
