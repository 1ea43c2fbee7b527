"""Chips, hosts, machines and remarks on them, as tables of at most 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from foretrace.cli.tables import plain_table, sentences_table
from foretrace.machine import Chip, Citation, Description, Figure, Host, Machine, Remark, Severity

_NONE = "-"
_SEVERITIES = (
    (Severity.IMPLAUSIBLE, "implausible"),
    (Severity.MISSING, "missing"),
    (Severity.UNSOURCED, "without a source"),
)


def print_list(chips: Sequence[Chip], hosts: Sequence[Host], machines: Sequence[Machine]) -> None:
    """Print what is described to stdout."""
    console = Console(highlight=False)
    for title, table in (
        ("chips (peaks are dense; links in one direction)", _chips(chips)),
        ("hosts (GB/s of one chip, one direction)", _hosts(hosts)),
        ("machines (GB/s of one chip, one direction, while all send)", _machines(machines)),
    ):
        console.print(title, style="bold")
        console.print(Padding(table, (0, 0, 1, 1), expand=False))
    console.print("`foretrace machine show NAME` has every number with its source")


def print_description(found: Description) -> None:
    """Print every number of a chip, host or machine to stdout."""
    console = Console(highlight=False)
    console.print(Text(f"{found.name}: {found.title}"), style="bold")
    sources: list[Citation] = []
    if isinstance(found, Machine):
        console.print(Padding(_tiers(found), (1, 0, 0, 1), expand=False))
        _print_figures(console, "the tiers", found.figures, sources)
        _print_figures(console, _part("host", found.host), found.host.figures, sources)
    if isinstance(found, Host):
        _print_figures(console, "numbers", found.figures, sources)
    if isinstance(found, Chip):
        _print_figures(console, "numbers", found.figures, sources)
    else:
        _print_figures(console, _part("chip", found.chip), found.chip.figures, sources)
    if isinstance(found, Chip) and found.device_names:
        console.print("\nprofilers call it", style="bold")
        console.print(Padding(Text(", ".join(found.device_names)), (0, 0, 0, 1)))
    console.print("\nsources", style="bold")
    table = plain_table("", "", text_columns=(1,))
    for index, source in enumerate(sources):
        table.add_row(f"[{index + 1}]", Text(f"{source.title}\n{source.url}"))
    console.print(Padding(table, (0, 0, 0, 1), expand=False))


def print_remarks(found: Description, remarks: Sequence[Remark]) -> None:
    """Print what a check found to stdout."""
    console = Console(highlight=False)
    counts = Counter(remark.severity for remark in remarks)
    words = [f"{counts[severity]} {word}" for severity, word in _SEVERITIES if counts[severity]]
    console.print(Text(f"{found.name}: {', '.join(words) or 'nothing to remark'}"), style="bold")
    for severity, word in _SEVERITIES:
        lines = [
            f"{remark.subject}, {remark.key}: {remark.text}"
            for remark in remarks
            if remark.severity is severity
        ]
        if lines:
            console.print(f"\n{word}", style="bold")
            console.print(sentences_table(lines))


def _part(word: str, found: Chip | Host) -> str:
    return f"its {word}, {found.name}: {found.title}"


def _print_figures(
    console: Console, title: str, figures: Sequence[Figure], sources: list[Citation]
) -> None:
    """One table; documents not seen before join `sources`, which numbers them."""
    if not figures:
        return
    console.print(Text(f"\n{title}"), style="bold")
    table = plain_table("", "", "", "", text_columns=(0, 2, 3))
    for figure in figures:
        if figure.source is not None and figure.source not in sources:
            sources.append(figure.source)
        mark = f"[{sources.index(figure.source) + 1}]" if figure.source is not None else ""
        assumed = f"assumed: {figure.assumed}" if figure.assumed else ""
        words = "; ".join(each for each in (assumed, figure.note) if each)
        if not mark and not assumed:
            words = "no source given"
        table.add_row(Text(figure.key), Text(figure.quantity.text), Text(mark), Text(words))
    console.print(Padding(table, (0, 0, 0, 1), expand=False))


def _chips(chips: Sequence[Chip]) -> Table:
    table = plain_table("", "memory", "GB/s", "fp32", "bf16", "fp8", "link", "W")
    for chip in chips:
        half = chip.peak_flops_per_ns("bf16") or chip.peak_flops_per_ns("fp16")
        table.add_row(
            chip.name,
            f"{chip.memory_bytes / 2**30:.0f} GiB",
            f"{chip.memory_bytes_per_ns:.0f}",
            _tera(chip.peak_flops_per_ns("fp32", on_matrix_units=False)),
            _tera(half),
            _tera(chip.peak_flops_per_ns("fp8")),
            _plain(chip.link_bytes_per_ns),
            _plain(chip.power_watts),
        )
    table.caption = "fp32, bf16 (fp16 where there is no bf16) and fp8 in TFLOP/s, link in GB/s"
    table.caption_justify = "left"
    return table


def _hosts(hosts: Sequence[Host]) -> Table:
    table = plain_table("", "chips", "scale-up", "network", "", text_columns=(0, 4))
    for host in hosts:
        table.add_row(
            host.name,
            f"{host.num_chips} x {host.chip.name}",
            _plain(host.scale_up_bytes_per_ns),
            _plain(host.network_bytes_per_ns),
            host.network,
        )
    return table


def _machines(machines: Sequence[Machine]) -> Table:
    table = plain_table("", "chips", "tiers", text_columns=(0, 2))
    for machine in machines:
        tiers = ", ".join(
            f"{tier.name} {tier.num_ranks} at {tier.shared_bytes_per_ns:.3g}"
            for tier in machine.tiers
        )
        table.add_row(machine.name, str(machine.num_ranks), tiers)
    return table


def _tiers(machine: Machine) -> Table:
    table = plain_table(
        "tier", "kind", "chips", "GB/s", "share", "us", "rails", text_columns=(0, 1)
    )
    for tier in machine.tiers:
        table.add_row(
            tier.name,
            " ".join(each for each in (tier.kind.value, tier.technology) if each),
            str(tier.num_ranks),
            f"{tier.bytes_per_ns:g}",
            f"{tier.shared_bytes_per_ns:.3g}",
            _NONE if tier.latency_ns is None else f"{tier.latency_ns / 1e3:g}",
            _NONE if tier.num_rails is None else str(tier.num_rails),
        )
    table.caption = "GB/s of one chip in one direction; share: while all send; us: one message"
    table.caption_justify = "left"
    return table


def _tera(flops_per_ns: float | None) -> str:
    return _NONE if flops_per_ns is None else f"{flops_per_ns / 1e3:.4g}"


def _plain(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4g}"
