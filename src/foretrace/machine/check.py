"""What a description lacks, and which of its numbers no such hardware can have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from foretrace.answer import Answer, Column, Plain, Sentences, Table, Told
from foretrace.machine.chip import (
    CHIP_FIELDS,
    LASTING_FIELDS,
    PEAK_FIELDS,
    PER_CLOCK_FIELDS,
    Chip,
    chip_named,
    load_chip,
)
from foretrace.machine.figures import PRESETS, Figure, FigureField, QuantityKind, quantity
from foretrace.machine.host import HOST_FIELDS, Host, load_host
from foretrace.machine.machine import Description, Machine, load_machine
from foretrace.machine.tiers import TIER_FIELDS

# A figure this many times the description's it extends is taken for a slip.
_SLIP = 2.0
_BITS_PER_BYTE = 8.0
_NEARLY = 0.02
# How much and how many a variant has is its maker's choice; how fast is not.
_CHOSEN = {QuantityKind.SIZE, QuantityKind.COUNT, QuantityKind.RATIO}
# Data sheets round peaks to two or three digits, and clocks to 5 MHz.
_PEAK_TOLERANCE = 0.03
# Of two formats the second has at least the first one's peak on every chip known.
_PEAK_ORDER = (("fp64", "fp32"), ("fp32", "tf32"), ("tf32", "fp16"), ("bf16", "fp8"))
_VECTOR_DTYPES = {"fp64", "fp64_matrix", "fp32", "fp32_matrix"}
_ROUNDING = 1e-9  # units are converted in floating point


class Severity(StrEnum):
    """How much a remark matters."""

    IMPLAUSIBLE = "implausible"
    MISSING = "missing"
    UNSOURCED = "unsourced"


_WORDS = {
    Severity.IMPLAUSIBLE: "implausible",
    Severity.MISSING: "missing",
    Severity.UNSOURCED: "without a source",
}
_REMARK = ("severity", "subject", "key", "text")


@dataclass(frozen=True)
class Remark(Plain):
    """One thing to look at."""

    severity: Severity
    subject: str  # "chip my-gpu"
    key: str
    text: str


@dataclass(frozen=True, repr=False)
class DescriptionCheck(Answer):
    """What there is to look at in a description, and in those of the user that it names."""

    json_also = ("is_plausible",)

    name: str
    remarks: tuple[Remark, ...]  # worst first

    @property
    def is_plausible(self) -> bool:
        """Whether hardware can have all its numbers; some may be missing or without a source."""
        return all(one.severity is not Severity.IMPLAUSIBLE for one in self.remarks)

    @property
    def headline(self) -> str:
        """How many remarks of each severity."""
        counts = Counter(one.severity for one in self.remarks)
        words = (f"{counts[each]} {_WORDS[each]}" for each in Severity if counts[each])
        return f"{self.name}: {', '.join(words) or 'nothing to remark'}"

    def parts(self) -> tuple[Told, ...]:
        """A list for each severity."""
        return tuple(
            Sentences.of(
                _WORDS[each],
                (f"{a.subject}, {a.key}: {a.text}" for a in self.remarks if a.severity is each),
            )
            for each in Severity
        )

    def tables(self) -> tuple[Table, ...]:
        """All remarks."""
        return (Table.of("remarks", self.remarks, *map(Column, _REMARK)),)


def check(found: Description, folders: Sequence[Path] = ()) -> DescriptionCheck:
    """What to look at in a description and in those of the user that it names.

    Args:
        found: a chip, a host with its chip, or a machine with both.
        folders: the user's own; where the descriptions that it extends are looked up.
    """
    order = list(Severity)
    found_out_of_order = _remarks(found, (*folders, found.path.parent))
    remarks = sorted(found_out_of_order, key=lambda each: order.index(each.severity))
    return DescriptionCheck(found.name, tuple(remarks))


def _remarks(found: Description, folders: Sequence[Path]) -> Iterator[Remark]:
    if isinstance(found, Chip):
        yield from _chip_remarks(found, folders)
        return
    if isinstance(found, Host):
        yield from _host_remarks(found, folders)
        inner: Description = found.chip
    else:
        yield from _machine_remarks(found, folders)
        inner = found.host
    if not _is_preset(inner):
        yield from _remarks(inner, folders)
    elif isinstance(inner, Host) and not _is_preset(inner.chip):
        yield from _remarks(inner.chip, folders)


def _is_preset(found: Description) -> bool:
    return found.path.is_relative_to(PRESETS)


def _chip_remarks(chip: Chip, folders: Sequence[Path]) -> Iterator[Remark]:
    subject = f"chip {chip.name}"
    fields = {
        **_by_key(CHIP_FIELDS),
        **_by_key(PEAK_FIELDS, "peak."),
        **_by_key(PER_CLOCK_FIELDS, "per_clock."),
        **_by_key(LASTING_FIELDS, "lasting."),
    }
    yield from _figure_remarks(subject, chip.figures, fields)
    base = load_chip(chip.parent, folders) if chip.parent else _same_device(chip)
    if base is not None and base.path != chip.path:
        yield from _slips(subject, chip.figures, base)
    for slower, faster in _PEAK_ORDER:
        low, high = chip.peak_by_dtype.get(slower), chip.peak_by_dtype.get(faster)
        if low is not None and high is not None and high < low:
            text = f"the peak in {faster} is below the one in {slower}: are they exchanged?"
            yield Remark(Severity.IMPLAUSIBLE, subject, f"peak.{faster}", text)
    yield from _clock_remarks(subject, chip)
    wanted = ("num_processors", "link_bandwidth", "host_bandwidth", "power", "peak.fp32")
    yield from _missing(subject, chip.figures, wanted)


def _same_device(chip: Chip) -> Chip | None:
    for name in chip.device_names:
        preset = chip_named(name, memory_bytes=chip.memory_bytes)
        if preset is not None:
            return preset
    return None


def _clock_remarks(subject: str, chip: Chip) -> Iterator[Remark]:
    for dtype, per_clock in chip.per_clock_by_dtype.items():
        clock = chip.cycles_per_ns if dtype in _VECTOR_DTYPES else chip.matrix_cycles_per_ns
        stated = chip.peak_by_dtype.get(dtype)
        if clock is None or stated is None or chip.num_processors is None:
            continue
        product = chip.num_processors * clock * per_clock
        if stated > product * (1 + _PEAK_TOLERANCE):
            text = (
                f"{stated / 1e3:g} TFLOP/s, but processors x clock x operations per clock are only "
                f"{product / 1e3:.4g}: one of the four is wrong"
            )
            yield Remark(Severity.IMPLAUSIBLE, subject, f"peak.{dtype}", text)


def _host_remarks(host: Host, folders: Sequence[Path]) -> Iterator[Remark]:
    subject = f"host {host.name}"
    yield from _figure_remarks(subject, host.figures, _by_key(HOST_FIELDS))
    if host.parent:
        yield from _slips(subject, host.figures, load_host(host.parent, folders))
    own, links = host.scale_up_bytes_per_ns, host.chip.link_bytes_per_ns
    if own is not None and links is not None and own > links * (1 + _NEARLY):
        text = f"{own:g} GB/s of one chip, whose links carry {links:g}: one direction is meant"
        yield Remark(Severity.IMPLAUSIBLE, subject, "scale_up_bandwidth", text)
    network, to_host = host.network_bytes_per_ns, host.chip.host_bytes_per_ns
    if network is not None and to_host is not None and network > to_host * (1 + _NEARLY):
        text = f"{network:g} GB/s for each chip, whose link to the host carries {to_host:g}"
        yield Remark(Severity.IMPLAUSIBLE, subject, "nic_bandwidth", text)
    yield from _missing(subject, host.figures, ("num_nics", "nic_bandwidth"))


def _machine_remarks(machine: Machine, folders: Sequence[Path]) -> Iterator[Remark]:
    subject = f"machine {machine.name}"
    fields: dict[str, FigureField] = {}
    for tier in machine.tiers:
        fields |= _by_key(TIER_FIELDS, f"tier {tier.name}.")
    yield from _figure_remarks(subject, machine.figures, fields)
    if machine.parent:
        yield from _slips(subject, machine.figures, load_machine(machine.parent, folders))
    for inner, outer in pairwise(machine.tiers):
        key = f"tier {outer.name}"
        if outer.shared_bytes_per_ns > inner.shared_bytes_per_ns * (1 + _NEARLY):
            text = f"more bandwidth for each chip than tier {inner.name!r} inside it"
            yield Remark(Severity.IMPLAUSIBLE, subject, f"{key}.bandwidth", text)
        if None not in (inner.latency_ns, outer.latency_ns) and (
            (outer.latency_ns or 0) < (inner.latency_ns or 0)
        ):
            text = f"less latency than tier {inner.name!r} inside it"
            yield Remark(Severity.IMPLAUSIBLE, subject, f"{key}.latency", text)
    first, num_chips = machine.tiers[0], machine.host.num_chips
    if first.num_ranks % num_chips and num_chips % first.num_ranks:
        text = f"{first.num_ranks} ranks are no whole part or multiple of a host's {num_chips}"
        yield Remark(Severity.IMPLAUSIBLE, subject, f"tier {first.name}.ranks", text)
    wanted = [f"tier {tier.name}.latency" for tier in machine.tiers]
    yield from _missing(subject, machine.figures, wanted)


def _by_key(fields: Sequence[FigureField], prefix: str = "") -> dict[str, FigureField]:
    return {f"{prefix}{field.key}": field for field in fields}


def _figure_remarks(
    subject: str, figures: Sequence[Figure], fields: dict[str, FigureField]
) -> Iterator[Remark]:
    for figure in figures:
        field = fields[figure.key]
        low, high = (quantity(bound, field.kind).value for bound in (field.low, field.high))
        if not low * (1 - _ROUNDING) <= figure.value <= high * (1 + _ROUNDING):
            text = f"{figure.quantity.text}, where hardware has {field.low} to {field.high}"
            yield Remark(Severity.IMPLAUSIBLE, subject, figure.key, text)
        if figure.source is None and not figure.assumed:
            text = f"{figure.quantity.text} has no source: add source = or assumed ="
            yield Remark(Severity.UNSOURCED, subject, figure.key, text)


def _slips(subject: str, figures: Sequence[Figure], base: Description) -> Iterator[Remark]:
    base_by_key = {figure.key: figure for figure in base.figures}
    for figure in figures:
        below = base_by_key.get(figure.key)
        if below is None or figure.quantity.kind in _CHOSEN:
            continue
        ratio = figure.value / below.value
        if 1 / _SLIP < ratio < _SLIP:
            continue
        text = (
            f"{figure.quantity.text} is {ratio:.3g} times the {below.quantity.text} "
            f"of {base.name}{_guess(ratio, figure.quantity.kind)}"
        )
        yield Remark(Severity.IMPLAUSIBLE, subject, figure.key, text)


def _guess(ratio: float, kind: QuantityKind) -> str:
    if kind is QuantityKind.BANDWIDTH:
        for factor in (_BITS_PER_BYTE, 1 / _BITS_PER_BYTE):
            if abs(ratio / factor - 1) < _NEARLY:
                return ": bits and bytes exchanged (Gb/s, GB/s)?"
        if abs(ratio / 2 - 1) < _NEARLY:
            return ": both directions counted?"
    if kind is QuantityKind.OPERATIONS and abs(ratio / 2 - 1) < _NEARLY:
        return ": the peak with sparsity? Dense ones are meant"
    return ""


def _missing(subject: str, figures: Sequence[Figure], wanted: Sequence[str]) -> Iterator[Remark]:
    have = {figure.key for figure in figures}
    for key in wanted:
        if key not in have:
            yield Remark(Severity.MISSING, subject, key, "not given: what needs it does without")
