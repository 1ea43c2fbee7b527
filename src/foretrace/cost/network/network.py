"""Constants of a network between hosts, fitted to its small groups and tested on its largest.

A group of up to 16 hosts teaches start, hops and rates. One more number, what is left of the
bandwidth in larger groups (the taper), is taken at 64 hosts; larger groups are predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from foretrace.base import Bools, Float64s
from foretrace.cost.constants import Constants, Fit, LeftOut, Spread
from foretrace.cost.fitting import MeasuredRows, fitted
from foretrace.cost.network.baseline import fitted_line, line_ns
from foretrace.cost.network.domain import CONSTANTS as DOMAIN_CONSTANTS
from foretrace.cost.network.domain import domain_ns
from foretrace.cost.network.errors import LONG_BYTES, RowsAndAnswers, error_rows
from foretrace.cost.network.span import GroupSpan, span_of
from foretrace.cost.network.tables import MeasuredCollectives
from foretrace.cost.network.tiers import CONSTANTS, TAPER, TAPER_BEYOND, tiers_ns
from foretrace.machine import Machine, load_machine, machine_names

SMALL_HOSTS, TAPER_HOSTS = 16, 64
FROM_SMALL = f"up to {SMALL_HOSTS} hosts, taper at {TAPER_HOSTS}; larger predicted"
USUAL = "default"  # how a table calls the settings that a system has without any doing
_MACHINE_BY_SYSTEM = {"alps-gh200-slingshot11": "alps-gh200-10k"}
# Long messages are what a network is bought for; below, a library's switch from one way of
# sending to the next costs up to five times the best, which no smooth model follows.
_SHORT_WEIGHT = 0.25
_TAPERS = np.geomspace(1, 8, 301)
_LEAST_ROWS = 30


def machine_of(system: str) -> Machine | None:
    """The machine that a table's system is; none if no description says."""
    name = _MACHINE_BY_SYSTEM.get(system, system)
    return load_machine(name) if name in machine_names() else None


def fitted_network(measured: Sequence[MeasuredCollectives], made: str) -> Iterator[Constants]:
    """Constants of each system's network that has groups of several sizes."""
    for system in sorted({one.system for one in measured}):
        machine = machine_of(system)
        ones = [one for one in measured if one.system == system]
        if machine is None or not any((one.num_hosts > TAPER_HOSTS).any() for one in ones):
            continue
        fits: list[Fit] = []
        rows: list[LeftOut] = []
        for one in ones:
            if (one.num_hosts[one.num_hosts > 1]).size < _LEAST_ROWS:
                continue
            fit, left_out = _fit(one, machine)
            rows += left_out
            if one.variant.endswith(USUAL) or not one.variant:
                fits.append(fit)
        key = network_key(machine.tiers[1].technology)
        yield Constants(key, "", made, tuple(fits), tuple(rows))


def network_key(technology: str) -> str:
    """What a network's constants are kept under: "slingshot-11" for "Slingshot 11"."""
    return technology.casefold().replace(" ", "-")


def _fit(one: MeasuredCollectives, machine: Machine) -> tuple[Fit, Sequence[LeftOut]]:
    single = one.taken(one.num_hosts == 1)
    inside = fitted(DOMAIN_CONSTANTS, [_inside_rows(single)])
    small = one.taken((one.num_hosts > 1) & (one.num_hosts <= SMALL_HOSTS))
    weight = np.where(small.num_bytes >= LONG_BYTES, 1.0, _SHORT_WEIGHT)
    part = MeasuredRows(
        lambda values: network_ns(small, machine, inside=inside, values=values),
        small.measured_ns,
        weight,
    )
    values = fitted(CONSTANTS, [part])
    values |= {TAPER_BEYOND: SMALL_HOSTS}
    values |= {TAPER: _taper(one.taken(one.num_hosts == TAPER_HOSTS), machine, inside, values)}
    large = one.taken(one.num_hosts > TAPER_HOSTS)
    predicted_ns = network_ns(large, machine, inside=inside, values=values)
    bound_ns = bound_between_hosts_ns(large, machine)
    line = fitted_line([small])
    answers = [RowsAndAnswers(large, predicted_ns, line_ns(large, line), FROM_SMALL, bound_ns)]
    left_out = error_rows(answers)
    spread = {row.errors.region: Spread(row.errors.low, row.errors.high) for row in left_out}
    fit = Fit(
        model=one.collective.in_tables,
        kind=one.variant,
        width="any",
        source=one.source,
        num_rows=len(small.num_bytes),
        values=values,
        line=line,
        spread_by_region=spread,
    )
    return fit, left_out


def _inside_rows(single: MeasuredCollectives) -> MeasuredRows:
    return MeasuredRows(
        lambda values: domain_ns(
            single.collective,
            single.num_bytes.astype(np.float64),
            single.num_ranks.astype(np.float64),
            chip=single.chip,
            values=values,
            mesh=single.mesh,
        ),
        single.measured_ns,
        np.ones(len(single.measured_ns)),
    )


def _taper(
    one: MeasuredCollectives,
    machine: Machine,
    inside: Mapping[str, float],
    values: Mapping[str, float],
) -> float:
    """The loss of bandwidth that long messages of one size of group show, at the median."""
    one = one.taken(one.num_bytes >= LONG_BYTES)
    errors = [
        np.median(
            np.abs(
                np.log(
                    network_ns(one, machine, inside=inside, values={**values, TAPER: taper})
                    / one.measured_ns
                )
            )
        )
        for taper in _TAPERS.tolist()
    ]
    return float(_TAPERS[int(np.argmin(errors))])


def network_ns(
    rows: MeasuredCollectives,
    machine: Machine,
    *,
    inside: Mapping[str, float],
    values: Mapping[str, float],
) -> Float64s:
    """Duration of each row, whose ranks fill one host after another; float64[rows], in ns."""
    duration_ns = np.zeros(len(rows.measured_ns))
    for here, span, sizes in _by_span(rows, machine):
        ranks = np.full(len(sizes), float(span.num_inside))
        inside_ns = domain_ns(
            rows.collective, sizes, ranks, chip=machine.chip, values=inside, mesh=rows.mesh
        )
        duration_ns[here] = tiers_ns(
            rows.collective, sizes, span, inside_ns=inside_ns, values=values
        )
    return duration_ns


def bound_between_hosts_ns(rows: MeasuredCollectives, machine: Machine) -> Float64s:
    """Bus traffic over what the data sheet gives between hosts; float64[rows], in ns."""
    bound_ns = np.zeros(len(rows.measured_ns))
    for here, span, sizes in _by_span(rows, machine):
        share = rows.collective.bus_share(np.array([float(span.num_ranks)]))
        bound_ns[here] = sizes * share / span.ring_bytes_per_ns
    return bound_ns


def _by_span(
    rows: MeasuredCollectives, machine: Machine
) -> Iterable[tuple[Bools, GroupSpan, Float64s]]:
    for num_ranks in np.unique(rows.num_ranks).tolist():
        here = rows.num_ranks == num_ranks
        yield here, span_of(range(num_ranks), machine), rows.num_bytes[here].astype(np.float64)
