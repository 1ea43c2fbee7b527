"""`with_figures`: a machine with other figures, one key each, as somebody states them.

    network.pod.bandwidth = "400 Gb/s"      a tier by its name, or its kind if no other is of it
    host.nic_bandwidth = "800 Gb/s"         tiers that take their bandwidth from the host follow
    chip.memory_bandwidth = "4.8 TB/s"
    chip.peak.bf16 = "989 TFLOP/s"

Keys and units are those of the files. What shapes a machine (chips in a host, ranks in a tier) is
not among them: that is another machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from foretrace.base import MachineError
from foretrace.machine.chip import CHIP_FIELDS, PEAK_FIELDS, Chip
from foretrace.machine.figures import Figure, FigureField, quantity
from foretrace.machine.host import HOST_FIELDS, Host
from foretrace.machine.machine import Machine
from foretrace.machine.tiers import TIER_FIELDS, Tier, TierKind

TABLES = ("network", "host", "chip")
_GBITS_PER_S = 8  # one byte per ns
_SHAPE = ("ranks", "num_chips", "distance", "jitter")
# Keys of files that are called otherwise in Python; whole numbers are rounded.
_TIER = {
    "bandwidth": "bytes_per_ns",
    "oversubscription": "oversubscription",
    "latency": "latency_ns",
    "rails": "num_rails",
    "link_price": "link_price",
}
_HOST = {
    "scale_up_bandwidth": "scale_up_bytes_per_ns",
    "num_nics": "num_nics",
    "nic_bandwidth": "nic_bytes_per_ns",
    "num_cpus": "num_cpus",
    "num_cores_per_cpu": "num_cores_per_cpu",
    "cpu_memory": "cpu_memory_bytes",
    "storage": "storage_bytes",
    "power": "power_watts",
}
_CHIP = {
    "memory": "memory_bytes",
    "memory_bandwidth": "memory_bytes_per_ns",
    "l2_cache": "l2_bytes",
    "last_level_cache": "last_level_bytes",
    "shared_memory": "shared_bytes",
    "num_processors": "num_processors",
    "num_exponentials": "num_exponentials",
    "boost_clock": "cycles_per_ns",
    "matrix_clock": "matrix_cycles_per_ns",
    "link_bandwidth": "link_bytes_per_ns",
    "num_links": "num_links",
    "host_bandwidth": "host_bytes_per_ns",
    "power": "power_watts",
}
_WHOLE = (
    *("num_rails", "num_nics", "num_cpus", "num_cores_per_cpu", "cpu_memory_bytes"),
    "storage_bytes",
    *("memory_bytes", "l2_bytes", "last_level_bytes", "shared_bytes"),
    *("num_processors", "num_exponentials", "num_links"),
)


def with_figures(machine: Machine, stated: Mapping[str, object]) -> Machine:
    """The machine with these figures instead of its own; their source is whoever stated them.

    Args:
        machine: any.
        stated: quantities as files have them ("400 Gb/s"), by key.

    Raises:
        MachineError: for a key that the machine has not, or a value of another kind.
    """
    for key, value in stated.items():
        table, _, rest = key.partition(".")
        if table == "network":
            machine = _with_tier(machine, rest, value)
        elif table == "host":
            machine = _with_host(machine, rest, value)
        elif table == "chip":
            chip = _with_chip(machine.chip, rest, value)
            machine = _followed(replace(machine, host=replace(machine.host, chip=chip)))
        else:
            near = get_close_matches(table, TABLES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise MachineError(
                f"{key!r} is no figure of machine {machine.name!r}: it begins with "
                f"{', '.join(f'{one}.' for one in TABLES)}, as in network."
                f"{machine.tiers[-1].name}.bandwidth{hint}"
            )
    return machine


def figure_text(machine: Machine, key: str) -> str:
    """A figure as it was written, "unknown" where the machine does not give it.

    Raises:
        MachineError: for a tier that the machine has not.
    """
    table, _, rest = key.partition(".")
    if table == "network":
        tier, field = _tier_and_field(machine, rest)
        wanted, where = f"tier {tier.name}.{field}", machine.figures
        of_host = f"{tier.bytes_per_ns * _GBITS_PER_S:g} Gb/s" if field == "bandwidth" else ""
    else:
        wanted, of_host = rest, ""
        where = machine.host.figures if table == "host" else machine.chip.figures
    found = next((one.quantity.text for one in where if one.key == wanted), of_host)
    return found or "unknown"


def _tier_and_field(machine: Machine, rest: str) -> tuple[Tier, str]:
    """The tier of that name, or the only one of that kind; and what is stated of it."""
    name, _, field = rest.rpartition(".")
    plain = name.replace("_", " ").replace("-", " ").casefold()
    named = [one for one in machine.tiers if one.name.replace("-", " ").casefold() == plain]
    alike = [one for one in machine.tiers if one.kind.value.replace("-", " ") == plain]
    if len(named) == 1 or (not named and len(alike) == 1):
        return (named or alike)[0], field
    names = [tier.name for tier in machine.tiers]
    near = get_close_matches(name or rest, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    shown = ", ".join(f"{tier.name!r} ({tier.kind.value})" for tier in machine.tiers)
    raise MachineError(
        f"machine {machine.name!r} has no tier {name or rest!r}, or more than one of that kind: "
        f"its tiers are {shown}{hint}; a key is network.{names[-1]}.bandwidth"
    )


def _with_tier(machine: Machine, rest: str, value: object) -> Machine:
    named, field = _tier_and_field(machine, rest)
    name = named.name
    figure = _figure(field, value, TIER_FIELDS, where=f"network.{name}")
    if field == "oversubscription" and figure.value < 1:
        raise MachineError(
            f"network.{name}.oversubscription is {figure.quantity.text!r}, less than 1: write "
            '"7:1" where a seventh of the bandwidth is left'
        )
    tiers = tuple(
        replace(tier, **_attribute(_TIER[field], figure)) if tier.name == name else tier
        for tier in machine.tiers
    )
    figures = _with_figure(machine.figures, replace(figure, key=f"tier {name}.{field}"))
    return replace(machine, tiers=tiers, figures=figures)


def _with_host(machine: Machine, rest: str, value: object) -> Machine:
    figure = _figure(rest, value, HOST_FIELDS, where="host")
    host = machine.host
    if rest == "storage_bandwidth":
        share = figure.value / host.num_chips
        changed: dict[str, Any] = {"chip": replace(host.chip, storage_bytes_per_ns=share)}
    else:
        changed = _attribute(_HOST[rest], figure)
    host = replace(host, **changed, figures=_with_figure(host.figures, figure))
    return _followed(replace(machine, host=host))


def _with_chip(chip: Chip, rest: str, value: object) -> Chip:
    table, _, dtype = rest.partition(".")
    if table == "peak" and dtype:
        figure = _figure(dtype, value, PEAK_FIELDS, where="chip.peak")
        peaks = {**chip.peak_by_dtype, dtype: figure.value}
        figures = _with_figure(chip.figures, replace(figure, key=f"peak.{dtype}"))
        return replace(chip, peak_by_dtype=peaks, figures=figures)
    figure = _figure(rest, value, CHIP_FIELDS, where="chip")
    changed = replace(
        chip, **_attribute(_CHIP[rest], figure), figures=_with_figure(chip.figures, figure)
    )
    has_matrix_clock = any(one.key == "matrix_clock" for one in chip.figures)
    if rest == "boost_clock" and not has_matrix_clock:
        return replace(changed, matrix_cycles_per_ns=changed.cycles_per_ns)
    return changed


def _followed(machine: Machine) -> Machine:
    """Tiers without a bandwidth of their own have the host's."""
    host = machine.host
    if not any(one.key == "scale_up_bandwidth" for one in host.figures):
        link = host.chip.link_bytes_per_ns
        host = replace(host, scale_up_bytes_per_ns=link or host.scale_up_bytes_per_ns)
    own = {one.key for one in machine.figures}
    tiers = tuple(
        tier if f"tier {tier.name}.bandwidth" in own else _of_host(tier, host)
        for tier in machine.tiers
    )
    return replace(machine, host=host, tiers=tiers)


def _of_host(tier: Tier, host: Host) -> Tier:
    is_scale_up = tier.kind is TierKind.SCALE_UP
    found = host.scale_up_bytes_per_ns if is_scale_up else host.network_bytes_per_ns
    return tier if found is None else replace(tier, bytes_per_ns=found)


def _figure(key: str, value: object, fields: Sequence[FigureField], *, where: str) -> Figure:
    """A figure whose source is whoever states it.

    Raises:
        MachineError: if there is none of that key, or the value is no such quantity.
    """
    known = {field.key: field for field in fields if field.key not in _SHAPE}
    if key not in known:
        near = get_close_matches(key, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        shape = " (what shapes a machine needs a file of its own)" if key in _SHAPE else ""
        raise MachineError(
            f"{where} has no figure {key!r} to state{shape}: there are {', '.join(known)}{hint}"
        )
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MachineError(f"{where}.{key} is {value!r}, where a number with its unit is expected")
    try:
        found = quantity(_as_written(value, known[key]), known[key].kind)
    except MachineError as err:
        raise MachineError(f"{where}.{key}: {err}") from None
    return Figure(key, found, source=None, assumed="", note="stated")


def _as_written(value: str | float, field: FigureField) -> str | float:
    """A count that a command line hands over as text is a number."""
    if isinstance(value, str) and value.isdecimal() and field.kind.value == "count":
        return int(value)
    if isinstance(value, float) and value.is_integer() and field.kind.value == "count":
        return int(value)
    return value


def _attribute(name: str, figure: Figure) -> dict[str, Any]:
    """One field of a chip, a host or a tier, for `replace`."""
    return {name: round(figure.value) if name in _WHOLE else figure.value}


def _with_figure(figures: tuple[Figure, ...], figure: Figure) -> tuple[Figure, ...]:
    if any(one.key == figure.key for one in figures):
        return tuple(figure if one.key == figure.key else one for one in figures)
    return (*figures, figure)
