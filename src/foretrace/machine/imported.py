"""`import_description`: what other tools say of hardware becomes a host's or a machine's file.

NCCL's topology (XML, `NCCL_TOPO_DUMP_FILE`) and `nvidia-smi topo -m` describe a host; ASTRA-sim's
network (YAML, or JSON of version 1), InfraGraph (YAML, JSON) and a table of links (CSV: from, to,
gigabytes per second, ns) the network of a machine. What is not said there, the chip or the host,
is named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree as ET

from foretrace.answer import Answer, Sentences, Told
from foretrace.base import MachineError
from foretrace.machine.link_table import (
    NetworkTier,
    read_infragraph,
    read_link_table,
    tiers_of_links,
    yaml_or_json,
)

_KINDS = ("scale-up", "rack", "pod", "building", "region")
_NVSWITCH = "0x068000"  # PCI class of an NVSWitch, as NCCL writes where an NVLink leads
_ENTRY = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")  # of nvidia-smi topo -m
_BELOW_CPU = ("PIX", "PXB")
_BRIDGE = "0x0604"  # PCI class
_LONG_CODED = 8.0  # GT/s, PCIe 3
_GIBIBYTE = 2**30 / 1e9  # upstream ASTRA-sim counts a GB as 2**30 bytes


@dataclass(frozen=True, repr=False)
class ImportedDescription(Answer):
    """A description made of another tool's file."""

    kind: str  # "host" or "machine"
    title: str
    text: str  # TOML

    @property
    def headline(self) -> str:
        """What it is."""
        return f"a {self.kind}: {self.title}"

    def parts(self) -> tuple[Told, ...]:
        """The file."""
        return (Sentences("toml", tuple(("", line) for line in self.text.splitlines())),)


def import_description(
    path: str | Path, *, chip: str | None = None, host: str | None = None
) -> ImportedDescription:
    """A host's or a machine's description, as TOML.

    Args:
        path: of the file; what it is follows from what stands in it.
        chip: name of the chips of a host, "h100-sxm".
        host: name of the hosts of a machine, "dgx-h100".

    Raises:
        MachineError: if the file is none of these, says what cannot be, or lacks a name.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        reason = str(getattr(err, "strerror", None) or err).lower()
        raise MachineError(f"{str(path)!r} cannot be read: {reason}") from err
    where = repr(str(path))
    if "<system" in text[:2000]:
        return _of_nccl(text, where, _named(chip, "chip", where))
    if re.search(r"^\s*(\S*\s+)?GPU0\b", text, re.MULTILINE) and "," not in text.split("\n", 1)[0]:
        return _of_nvidia_smi(text, where, _named(chip, "chip", where))
    if "npus_count" in text or "units-count" in text:
        tiers = _tiers_of_astra(text, where)
    elif "instances" in text and "devices" in text:
        tiers = tiers_of_links(read_infragraph(text, where), where)
    elif "," in text.split("\n", 1)[0]:
        tiers = tiers_of_links(read_link_table(text, where), where)
    else:
        raise MachineError(
            f"{where} is no description that is known: expected NCCL's topology (XML), the text of "
            "`nvidia-smi topo -m`, ASTRA-sim's network or InfraGraph (YAML, JSON), or a table of "
            "links (CSV: from,to,gb_per_s,latency_ns)"
        )
    return _machine(tiers, _named(host, "host", where))


def _named(name: str | None, what: str, where: str) -> str:
    if name is None:
        raise MachineError(f"{where} does not say which {what} it has: name it (--{what})")
    return name


def _host(chip: str, title: str, *, topology: str, figures: Mapping[str, object]) -> str:
    lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"
             for key, value in figures.items()]  # fmt: skip
    head = f'kind = "host"\ntitle = "{title}"\nchip = "{chip}"\ntopology = "{topology}"\n'
    return head + "\n[figures]\n" + "\n".join(lines) + "\n"


def _of_nccl(text: str, where: str, chip: str) -> ImportedDescription:
    if "<!" in text.replace("<!--", ""):
        raise MachineError(f"{where} defines names of its own (<!...>), which no topology does")
    try:
        root = ET.fromstring(text)  # noqa: S314  refused above if it defines anything
    except ET.ParseError as err:
        raise MachineError(f"{where} is not XML: {err}") from err
    chips = list(root.iter("gpu"))
    if not chips:
        raise MachineError(f"{where} names no GPU: expected <gpu> elements of NCCL's topology")
    targets = [link.get("tclass", "") for one in chips for link in one.iter("nvlink")]
    speeds = {one.get("name", ""): one.get("speed", "0") for one in root.iter("net")}
    slow = [name for name, speed in speeds.items() if not speed.isdecimal() or int(speed) == 0]
    if slow:
        raise MachineError(f"network card {slow[0]!r} of {where} has no speed: expected Mb/s")
    is_switch = bool(targets) and set(targets) == {_NVSWITCH}
    topology = "switch" if is_switch else "all to all" if targets else "PCIe"
    figures: dict[str, object] = {"num_chips": len(chips)}
    if speeds:
        least = min(int(speed) for speed in speeds.values())
        figures |= {"num_nics": len(speeds), "nic_bandwidth": f"{least / 1000:g} Gb/s"}
    figures |= _bridges(root)
    title = f"{len(chips)} chips of NCCL's topology"
    return ImportedDescription(
        "host", title, _host(chip, title, topology=topology, figures=figures)
    )


def _bridges(root: ET.Element) -> dict[str, object]:
    """PCIe switches below the CPUs, where as many chips are behind each, and their links."""
    bridges = [
        one
        for cpu in root.iter("cpu")
        for one in cpu.findall("pci")
        if one.get("class", "").startswith(_BRIDGE) and next(one.iter("gpu"), None) is not None
    ]
    held = sum(len([*one.iter("gpu")]) for one in bridges)
    found = _switches(
        [len([*one.iter("gpu")]) for one in bridges],
        has_all=held == len([*root.iter("gpu")]),
    )
    widths = [_lanes_bytes_per_ns(one) for one in bridges]
    if found and all(widths):
        found["pcie_switch_bandwidth"] = f"{min(widths):.4g} GB/s"
    return found


def _switches(num_chips: Sequence[int], *, has_all: bool) -> dict[str, object]:
    """How many switches there are, if each has as many chips as all others."""
    is_even = bool(num_chips) and has_all and len(set(num_chips)) == 1
    return {"num_pcie_switches": len(num_chips)} if is_even else {}


def _lanes_bytes_per_ns(bridge: ET.Element) -> float:
    """One direction; 0: not said, as in virtual machines."""
    rate = re.match(r"\d+(?:\.\d+)?(?= ?GT/s)", bridge.get("link_speed", ""))
    lanes = bridge.get("link_width", "")
    if rate is None or not lanes.isdecimal():
        return 0.0
    # Below 8 GT/s a byte takes ten bits, from there on 128 bits take 130.
    speed = float(rate[0])
    return speed * int(lanes) / (10.0 if speed < _LONG_CODED else 8 * 130 / 128)


def _of_nvidia_smi(text: str, where: str, chip: str) -> ImportedDescription:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    names = next((line for line in lines if "GPU0" in line), None)
    if names is None:
        raise MachineError(
            f"{where} names no GPU0 in a column of its own: expected GPU0, GPU1, ..."
        )
    columns = [name for name in names if re.fullmatch(r"(GPU|NIC|mlx5_)\d+", name)]
    rows = {
        line[0]: list(takewhile(_ENTRY.fullmatch, line[1:])) for line in lines if line[0] in columns
    }
    chips = [name for name in columns if name.startswith("GPU")]
    cut = [name for name in chips if len(rows.get(name, ())) < len(columns)]
    if cut:
        raise MachineError(
            f"{where} is cut: {cut[0]} has {len(rows.get(cut[0], ()))} of {len(columns)} entries"
        )
    links = {rows[one][columns.index(other)] for one in chips for other in chips if one != other}
    by_link = {link for link in links if link.startswith("NV")}
    if by_link and by_link != links:
        raise MachineError(
            f"{where} joins some GPUs by NVLink and others not ({', '.join(sorted(links))}), and a "
            "host's chips are all joined alike: describe it by a table of links"
        )
    num_cards = len(columns) - len(chips)
    figures: dict[str, object] = {"num_chips": len(chips)}
    if num_cards:
        figures["num_nics"] = num_cards
    figures |= _joined(chips, columns, rows)
    title = f"{len(chips)} chips of nvidia-smi topo"
    topology = "switch" if by_link else "PCIe"
    return ImportedDescription(
        "host", title, _host(chip, title, topology=topology, figures=figures)
    )


def _joined(
    chips: Sequence[str], columns: Sequence[str], rows: Mapping[str, Sequence[str]]
) -> dict[str, object]:
    """PCIe switches, from who reaches whom without passing a CPU."""
    groups = {name: {name} for name in columns}
    for name, entries in rows.items():
        for other, entry in zip(columns, entries, strict=False):
            if entry in _BELOW_CPU and groups[name] is not groups[other]:
                groups[name] |= groups[other]
                groups |= dict.fromkeys(groups[name], groups[name])
    behind = {id(one): one for one in groups.values() if len(one) > 1}.values()
    counts = [sum(name in one for name in chips) for one in behind]
    return _switches([one for one in counts if one], has_all=sum(counts) == len(chips))


def _tiers_of_astra(text: str, where: str) -> list[NetworkTier]:
    table = yaml_or_json(text, where)
    if not isinstance(table, Mapping):
        raise MachineError(f"{where} holds {type(table).__name__}, where keys are expected")
    keys = ("topology", "npus_count", "bandwidth", "latency")
    if "units-count" in table:
        keys = ("topologies-per-dim", "units-count", "link-bandwidth", "link-latency")
    columns = [table.get(key) for key in keys]
    lengths = [len(one) if isinstance(one, list) else -1 for one in columns]
    if min(lengths) < 1 or len(set(lengths)) > 1:
        raise MachineError(f"{where} must list as many of {', '.join(keys)}, got {lengths}")
    shapes, counts, rates, delays = (one if isinstance(one, list) else [] for one in columns)
    times = table.get("links-count", [1] * len(counts)) if "units-count" in table else None
    if times is not None and not (
        isinstance(times, list)
        and len(times) == len(counts)
        and all(isinstance(one, int | float) and 0 < one < math.inf for one in times)
    ):
        raise MachineError(f"{where} has links-count {times!r}: expected a number above 0 for each")
    found, num_ranks = [], 1
    for at, shape in enumerate(shapes):
        numbers = [counts[at], rates[at], delays[at]]
        if not all(isinstance(one, int | float) and 0 <= one < math.inf for one in numbers):
            raise MachineError(
                f"dimension {at + 1} of {where} has {counts[at]!r} members, {rates[at]!r} GB/s and "
                f"{delays[at]!r} ns: expected are numbers, 0 or more"
            )
        if not all(one > 0 for one in numbers[:2]):
            raise MachineError(
                f"dimension {at + 1} of {where} has {counts[at]!r} members at {rates[at]!r} GB/s: "
                "both must be above 0"
            )
        num_ranks *= int(counts[at])
        each = float(rates[at]) * _GIBIBYTE
        num_links = float(times[at]) if times else _links_of(str(shape), int(counts[at]), where)
        found.append(NetworkTier(num_ranks, each * num_links, 1.0, float(delays[at])))
    return [one for one, count in zip(found, counts, strict=True) if int(count) > 1]


def _links_of(shape: str, count: int, where: str) -> float:
    """Links that a member sends over at once."""
    by_shape = {"switch": 1, "ring": min(2, count - 1), "fullyconnected": count - 1}
    links = by_shape.get(shape.casefold())
    if links is None:
        raise MachineError(
            f"{where} has a dimension {shape!r}: expected Ring, FullyConnected or Switch"
        )
    return float(links)


def _machine(tiers: Sequence[NetworkTier], host: str) -> ImportedDescription:
    if len(tiers) > len(_KINDS):
        raise MachineError(
            f"a network of {len(tiers)} tiers has more than the {len(_KINDS)} that have names"
        )
    title = f"{tiers[-1].num_ranks} chips of an imported network"
    lines = ['kind = "machine"', f'title = "{title}"', f'host = "{host}"']
    for kind, tier in zip(_KINDS, tiers, strict=False):
        lines += ["", "[[tiers]]", f'name = "{kind}"', f'kind = "{kind}"']
        lines += [f"ranks = {tier.num_ranks}", f'bandwidth = "{tier.bytes_per_ns:.6g} GB/s"']
        if tier.oversubscription > 1:
            lines.append(f'oversubscription = "{tier.oversubscription:.6g}:1"')
        if tier.latency_ns > 0:
            lines.append(f'latency = "{tier.latency_ns:g} ns"')
    return ImportedDescription("machine", title, "\n".join(lines) + "\n")
