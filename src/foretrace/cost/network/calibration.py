"""Measured collectives become constants, with the errors on group sizes left out of each fit.

Inside a scale-up domain, each size of group is left out in turn and predicted from the others.
Beyond it, constants are fitted to small groups, one taper to one larger size, and the largest
groups are predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from foretrace.base import CollectiveKind, Float64s, Int64s
from foretrace.cost.constants import Constants, Fit, Spread
from foretrace.cost.fitting import MeasuredRows, fitted, folds
from foretrace.cost.network.baseline import fitted_line, line_ns
from foretrace.cost.network.domain import CONSTANTS, domain_ns
from foretrace.cost.network.errors import RowsAndAnswers, error_rows
from foretrace.cost.network.network import fitted_network
from foretrace.cost.network.tables import MeasuredCollectives, read_collectives

OTHER_SIZES = "same system, other group sizes"
OTHER_MESSAGES = "same system, other message sizes"
_NUM_FOLDS = 5
_LEAST_ROWS = 20  # fewer are too few for ten constants


def calibrated_collectives(folder: Path, made: str) -> tuple[Constants, ...]:
    """Constants of each chip and each network with enough measurements.

    Args:
        folder: with `collectives*.parquet`.
        made: date to write into the result.

    Raises:
        ModelError: as `read_collectives`.
    """
    measured = read_collectives(folder)
    inside = [one for one in map(_on_one_host, measured) if one is not None]
    chips = sorted({one.chip.name for one in inside})
    found = [_of_chip([one for one in inside if one.chip.name == chip], made) for chip in chips]
    return (*(one for one in found if one.fits), *fitted_network(measured, made))


def _on_one_host(measured: MeasuredCollectives) -> MeasuredCollectives | None:
    rows = measured.num_hosts == 1
    return measured.taken(rows) if rows.any() else None


def _alike(measured: Iterable[MeasuredCollectives]) -> list[list[MeasuredCollectives]]:
    """What shares constants: one system's collective, added up in one place."""
    by_key: dict[tuple[str, str, str, str], list[MeasuredCollectives]] = {}
    for one in measured:
        key = (one.system, one.variant, one.collective, one.kind)
        by_key.setdefault(key, []).append(one)
    return [ones for _, ones in sorted(by_key.items())]


def _of_chip(measured: Sequence[MeasuredCollectives], made: str) -> Constants:
    """Constants of the hosts known best, and the errors of each host on its own groups."""
    best = {(one.system, one.collective) for one in _best_known(measured)}
    fits: list[Fit] = []
    answers: list[RowsAndAnswers] = []
    for alike in _alike(measured):
        left_out = _left_out(alike)
        answers += left_out
        num_rows = sum(len(one.measured_ns) for one in alike)
        is_best = (alike[0].system, alike[0].collective) in best
        if is_best and left_out and num_rows >= _LEAST_ROWS:
            fits.append(_fit(alike, left_out, num_rows=num_rows))
    chip = measured[0].chip
    return Constants(chip.name, chip.architecture, made, tuple(fits), error_rows(answers))


def _fit(
    alike: Sequence[MeasuredCollectives], left_out: Sequence[RowsAndAnswers], *, num_rows: int
) -> Fit:
    spread = {row.errors.region: row.errors for row in error_rows(left_out, by_label=False)}
    return Fit(
        model=alike[0].collective.in_tables,
        kind=alike[0].kind,
        width="any",
        source=alike[0].source,
        num_rows=num_rows,
        values=_domain_values(alike),
        line=fitted_line(alike),
        spread_by_region={
            region: Spread(errors.low, errors.high) for region, errors in spread.items()
        },
    )


def _best_known(measured: Sequence[MeasuredCollectives]) -> list[MeasuredCollectives]:
    """One chip's hosts differ in their links: its constants are those of the host known best.

    Transfers between pairs come from another host where this one has none.
    """
    pairs = [one for one in measured if one.collective is CollectiveKind.SEND_RECV]
    groups = [one for one in measured if one.collective is not CollectiveKind.SEND_RECV]
    return [*_of_system(groups), *_of_system(pairs)]


def _of_system(measured: Sequence[MeasuredCollectives]) -> list[MeasuredCollectives]:
    """The system with the most sizes of groups over all collectives, then with the most rows."""
    kinds: dict[str, set[tuple[str, int]]] = {}
    sizes: dict[str, int] = {}
    for one in measured:
        found = {(one.collective, size) for size in one.num_ranks.tolist()}
        kinds[one.system] = kinds.get(one.system, set()) | found
        sizes[one.system] = sizes.get(one.system, 0) + len(one.measured_ns)
    best = max(sizes, key=lambda name: (len(kinds[name]), sizes[name], name), default="")
    return [one for one in measured if one.system == best]


def _domain_values(measured: Sequence[MeasuredCollectives]) -> dict[str, float]:
    return fitted(CONSTANTS, [_rows(one) for one in measured])


def _rows(one: MeasuredCollectives) -> MeasuredRows:
    return MeasuredRows(
        lambda values: _predicted(one, values), one.measured_ns, np.ones(len(one.measured_ns))
    )


def _predicted(one: MeasuredCollectives, values: Mapping[str, float]) -> Float64s:
    sizes, ranks = one.num_bytes.astype(np.float64), one.num_ranks.astype(np.float64)
    return domain_ns(one.collective, sizes, ranks, chip=one.chip, values=values, mesh=one.mesh)


def _left_out(alike: Sequence[MeasuredCollectives]) -> list[RowsAndAnswers]:
    """Each group size as constants of the others predict it; of pairs, each fifth of the sizes.

    Nothing for a collective of groups that was measured at one size of group only.
    """
    is_pair = alike[0].collective is CollectiveKind.SEND_RECV
    parts = [_message_folds(one) if is_pair else one.num_ranks for one in alike]
    numbers = np.unique(np.concatenate(parts)).tolist()
    if len(numbers) == 1:
        return []
    predicted = [np.ones(len(one.measured_ns)) for one in alike]
    linear = [np.ones(len(one.measured_ns)) for one in alike]
    for number in numbers:
        is_out = [part == number for part in parts]
        kept = [one.taken(~rows) for one, rows in zip(alike, is_out, strict=True)]
        kept = [one for one in kept if len(one.measured_ns)]
        values, line = _domain_values(kept), fitted_line(kept)
        for at, (one, rows) in enumerate(zip(alike, is_out, strict=True)):
            predicted[at][rows] = _predicted(one.taken(rows), values)
            linear[at][rows] = line_ns(one.taken(rows), line)
    what = OTHER_MESSAGES if is_pair else OTHER_SIZES
    columns = zip(alike, predicted, linear, strict=True)
    return [
        RowsAndAnswers(one, by_model_ns, by_line_ns, what)
        for one, by_model_ns, by_line_ns in columns
    ]


def _message_folds(one: MeasuredCollectives) -> Int64s:
    _, size = np.unique(one.num_bytes, return_inverse=True)
    return folds(size.reshape(-1).astype(np.int64), _NUM_FOLDS)
