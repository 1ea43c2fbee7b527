"""A host: chips that share a board, their links to each other and to the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from foretrace.base import Document, MachineError
from foretrace.machine.chip import Chip, load_chip
from foretrace.machine.figures import (
    DataSheet,
    DescriptionKind,
    Figure,
    FigureField,
    QuantityKind,
    as_table,
    check_keys,
    document,
    names,
    number,
    read_figures,
    read_sources,
    whole,
)

HOST_FIELDS = (
    FigureField(
        "num_chips", QuantityKind.COUNT, 1, 64, "chips that a program sees", is_required=True
    ),
    FigureField(
        "scale_up_bandwidth",
        QuantityKind.BANDWIDTH,
        "1 GB/s",
        "5 TB/s",
        "of one chip to the others of its domain, one direction",
    ),
    FigureField("num_nics", QuantityKind.COUNT, 1, 64, "network cards for the chips' traffic"),
    FigureField(
        "nic_bandwidth", QuantityKind.BANDWIDTH, "1 Gb/s", "1.6 Tb/s", "of one card, one direction"
    ),
    FigureField(
        "num_pcie_switches",
        QuantityKind.COUNT,
        1,
        64,
        "PCIe switches, each with as many chips, and cards, as all others",
    ),
    FigureField(
        "pcie_switch_bandwidth",
        QuantityKind.BANDWIDTH,
        "1 GB/s",
        "1 TB/s",
        "of a switch to its CPU, one direction; left out: as a chip's to its host",
    ),
    FigureField("num_cpus", QuantityKind.COUNT, 1, 16, "sockets"),
    FigureField("num_cores_per_cpu", QuantityKind.COUNT, 1, 512, "cores of one socket"),
    FigureField("cpu_memory", QuantityKind.SIZE, "1 GiB", "32 TiB", "memory of all sockets"),
    FigureField("storage", QuantityKind.SIZE, "100 GB", "4 PB", "of all fast disks"),
    FigureField(
        "storage_bandwidth", QuantityKind.BANDWIDTH, "0.1 GB/s", "1 TB/s", "reads of all of them"
    ),
    FigureField("power", QuantityKind.POWER, "50 W", "200 kW", "at most, of the whole host"),
    FigureField(
        "launch_times",
        QuantityKind.RATIO,
        0.2,
        20,
        "times as long as usual that a program takes from one launch to the next",
    ),
)

_KEYS = ("kind", "title", "chip", "cpu", "topology", "network", "sources", "figures")


@dataclass(frozen=True, repr=False)
class Host(DataSheet):
    """A server, or the tray that is one; `None` where no number was published."""

    json_only = (
        *("name", "title", "chip.name", "num_chips", "topology", "network"),
        *("scale_up_bytes_per_ns", "network_bytes_per_ns", "cpu", "figures"),
    )
    json_names: ClassVar = {"chip.name": "chip"}

    name: str
    title: str
    chip: Chip
    num_chips: int
    topology: str  # "switch", "all to all", "torus", ...; how the chips are linked
    network: str  # "InfiniBand", "RoCE", ...; "" if it has none
    scale_up_bytes_per_ns: float | None  # one chip, one direction
    num_nics: int | None
    nic_bytes_per_ns: float | None  # one card, one direction
    num_pcie_switches: int | None  # chips and cards are behind, in turn
    pcie_switch_bytes_per_ns: float | None  # of one to its CPU, one direction
    cpu: str
    num_cpus: int | None
    num_cores_per_cpu: int | None
    cpu_memory_bytes: int | None
    storage_bytes: int | None
    power_watts: float | None
    launch_times: float | None  # times as long as usual from launch to launch
    figures: tuple[Figure, ...]
    parent: str
    path: Path

    @property
    def statements(self) -> tuple[tuple[str, tuple[Figure, ...]], ...]:
        """Its own numbers and its chip's."""
        return (("numbers", self.figures), (f"its chip, {self.chip.headline}", self.chip.figures))

    @property
    def network_bytes_per_ns(self) -> float | None:
        """One chip's share of all network cards, one direction."""
        if self.num_nics is None or self.nic_bytes_per_ns is None:
            return None
        return self.num_nics * self.nic_bytes_per_ns / self.num_chips


def load_host(name_or_path: str | Path, folders: Sequence[Path] = ()) -> Host:
    """The host of that name, or in that file, with its chip.

    Args:
        name_or_path: "dgx-h100", or a TOML file.
        folders: the user's own; looked through before the presets.

    Raises:
        MachineError: if there is none, or a file is wrong.
    """
    return _host(document(name_or_path, DescriptionKind.HOST, folders), folders)


def host_names(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all hosts, sorted."""
    return names(DescriptionKind.HOST, folders)


def _switches(figures: Mapping[str, Figure], where: str) -> int | None:
    found, num_chips = whole(figures, "num_pcie_switches"), round(figures["num_chips"].value)
    if found is not None and num_chips % found:
        raise MachineError(
            f"{where} has {num_chips} chips behind {found} PCIe switches, each of which is to have "
            "as many as all others: leave num_pcie_switches out where they differ"
        )
    return found


def _host(found: Document, folders: Sequence[Path]) -> Host:
    check_keys(found.table, _KEYS, found.where)
    chip = found.text("chip")
    if not chip:
        raise MachineError(f'{found.where} names no chip: write chip = "h100-sxm", or its file')
    where = f"[figures] of {found.where}"
    figures = read_figures(
        as_table(found.table.get("figures"), where),
        HOST_FIELDS,
        sources=read_sources(found.table.get("sources"), found.where),
        where=where,
    )
    own_chip = load_chip(chip, (*folders, found.path.parent))
    storage = number(figures, "storage_bandwidth")
    if storage is not None:
        share = storage / round(figures["num_chips"].value)
        own_chip = replace(own_chip, storage_bytes_per_ns=share)
    return Host(
        name=found.name,
        title=found.text("title", found.name),
        chip=own_chip,
        num_chips=round(figures["num_chips"].value),
        topology=found.text("topology"),
        network=found.text("network"),
        scale_up_bytes_per_ns=number(figures, "scale_up_bandwidth") or own_chip.link_bytes_per_ns,
        num_nics=whole(figures, "num_nics"),
        nic_bytes_per_ns=number(figures, "nic_bandwidth"),
        num_pcie_switches=_switches(figures, found.where),
        pcie_switch_bytes_per_ns=number(figures, "pcie_switch_bandwidth")
        or own_chip.host_bytes_per_ns,
        cpu=found.text("cpu"),
        num_cpus=whole(figures, "num_cpus"),
        num_cores_per_cpu=whole(figures, "num_cores_per_cpu"),
        cpu_memory_bytes=whole(figures, "cpu_memory"),
        storage_bytes=whole(figures, "storage"),
        power_watts=number(figures, "power"),
        launch_times=number(figures, "launch_times"),
        figures=tuple(figures.values()),
        parent=found.parent,
        path=found.path,
    )
