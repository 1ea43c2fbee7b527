"""Shipped constants held against any table of measured collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretrace.cost.constants import Constants, LeftOut, shipped_collectives
from foretrace.cost.network.baseline import line_ns
from foretrace.cost.network.costs import (
    ChosenCollective,
    chosen_between,
    chosen_inside,
)
from foretrace.cost.network.domain import domain_ns
from foretrace.cost.network.errors import RowsAndAnswers, error_rows
from foretrace.cost.network.network import bound_between_hosts_ns, machine_of, network_ns
from foretrace.cost.network.span import span_of
from foretrace.cost.network.tables import MeasuredCollectives, read_collectives


def collective_errors(
    folder: Path, constants: Sequence[Constants] | None = None
) -> tuple[LeftOut, ...]:
    """Errors of shipped constants, one row per family, system, number format and region.

    Rows between hosts of a system whose machine is not described are left out: the table does
    not say how fast their network is.

    Args:
        folder: with `collectives*.parquet`; none of them: no rows.
        constants: in place of those shipped.

    Raises:
        ModelError: as `read_collectives`.
    """
    known = shipped_collectives() if constants is None else constants
    answers = [
        answer for one in read_collectives(folder) for answer in _answers(one, constants=known)
    ]
    return error_rows(answers)


def _answers(
    one: MeasuredCollectives, *, constants: Sequence[Constants]
) -> Iterator[RowsAndAnswers]:
    inside = chosen_inside(one.collective, one.kind, one.chip, constants=constants)
    on_one_host = one.num_hosts == 1
    if on_one_host.any():
        rows = one.taken(on_one_host)
        # a row of its own, beside the same system's between hosts
        name = one.system if on_one_host.all() else f"{one.system}, one host"
        yield _inside(replace(rows, system=name), inside)
    machine = machine_of(one.system)
    if machine is None or on_one_host.all():
        return
    rows = one.taken(~on_one_host)
    span = span_of(range(int(rows.num_ranks[0])), machine)
    chosen = chosen_between(span, constants=constants, variant=one.variant)
    values = chosen.fit.values
    predicted_ns = network_ns(rows, machine, inside=inside.fit.values, values=values)
    bound_ns = bound_between_hosts_ns(rows, machine)
    line = line_ns(rows, chosen.fit.line)
    yield RowsAndAnswers(rows, predicted_ns, line, _fitted_on(chosen), bound_ns)


def _inside(rows: MeasuredCollectives, chosen: ChosenCollective) -> RowsAndAnswers:
    sizes, ranks = rows.num_bytes.astype(np.float64), rows.num_ranks.astype(np.float64)
    values = chosen.fit.values
    predicted_ns = domain_ns(
        rows.collective, sizes, ranks, chip=rows.chip, values=values, mesh=rows.mesh
    )
    return RowsAndAnswers(rows, predicted_ns, line_ns(rows, chosen.fit.line), _fitted_on(chosen))


def _fitted_on(chosen: ChosenCollective) -> str:
    return (
        f"{chosen.fit.source}: {chosen.fit.model} {chosen.fit.kind}, {chosen.source.name.lower()}"
    )
