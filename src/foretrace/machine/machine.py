"""A machine: hosts joined by tiers of network; `described` finds machine, host or chip by name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

import numpy as np

from foretrace.answer import Answer, Column, Table, Told, Unit, count_text
from foretrace.base import MOST_RANKS, Document, Int64s, MachineError
from foretrace.machine.chip import Chip, chip_names, load_chip
from foretrace.machine.figures import (
    DataSheet,
    DescriptionKind,
    Figure,
    as_table,
    check_keys,
    document,
    names,
    read_sources,
)
from foretrace.machine.host import Host, host_names, load_host
from foretrace.machine.tiers import (
    Tier,
    TierKind,
    check_nesting,
    instance_sizes,
    read_tier,
    tiers_spanned,
)

_KEYS = ("kind", "title", "host", "sources", "tiers")
_LEAST_PART = 3  # letters of what a chip is called for short


@dataclass(frozen=True, repr=False)
class Machine(DataSheet):
    """Hosts of one kind and the network between them."""

    json_only = ("name", "title", "host", "chip", "num_ranks", "tiers", "figures")

    name: str
    title: str
    host: Host
    tiers: tuple[Tier, ...]  # innermost first; the outermost holds the whole machine
    figures: tuple[Figure, ...]  # of the tiers; the host and the chip have their own
    parent: str
    path: Path
    # Chips of each instance of the last tier but one, where they differ: buildings of a region.
    # Places are counted as if each were as large as the tier says, and the last of some are empty.
    sizes: tuple[int, ...] = ()
    # Whether whoever sends finds links empty: of a card that chips share, one has all of it.
    is_empty: bool = False

    def unshared(self) -> Machine:
        """The machine on which whoever sends finds every link empty: its costs are those alone."""
        tiers = tuple(replace(tier, oversubscription=1.0) for tier in self.tiers)
        return replace(self, tiers=tiers, is_empty=True)

    @property
    def statements(self) -> tuple[tuple[str, tuple[Figure, ...]], ...]:
        """Numbers of its tiers, its host and its chip."""
        host = (f"its host, {self.host.headline}", self.host.figures)
        return (("the tiers", self.figures), host, self.host.statements[1])

    def parts(self) -> tuple[Told, ...]:
        """Its tiers, and every number with its source."""
        return self._tiers(), *super().parts()

    def _tiers(self) -> Table:
        return Table.of(
            "tiers",
            self.tiers,
            Column("name", "tier", Unit.WORD),
            Column("kind", value=lambda tier: f"{tier.kind.value} {tier.technology}".strip()),
            Column("num_ranks", "chips", value=self._num_ranks_of),
            Column("bytes_per_ns", "GB/s", Unit.GIGABYTES_PER_S),
            Column("shared_bytes_per_ns", "share", Unit.GIGABYTES_PER_S),
            Column("latency_ns", "one message", Unit.NS),
            Column("num_rails"),
            *self._optional_columns(),
            title="tiers: GB/s of one chip in one direction; share: while all send",
        )

    def _optional_columns(self) -> Iterator[Column]:
        """What few machines state."""
        if any(tier.jitter_ns is not None for tier in self.tiers):
            yield Column("jitter_ns", "jitter", Unit.NS)
            yield Column("jitter_law", "law", Unit.WORD, lambda tier: tier.law_text)
        if self.links_per_chip_hour is not None:
            yield Column("links_per_chip_hour", "links of a chip-hour", Unit.NUMBER)

    def _num_ranks_of(self, tier: Tier) -> int:
        return self.num_ranks if tier is self.tiers[-1] else tier.num_ranks

    @property
    def chip(self) -> Chip:
        """What computes."""
        return self.host.chip

    @property
    def links_per_chip_hour(self) -> float | None:
        """What the links behind one chip cost in an hour; `None`: no tier states a price."""
        found = [price for tier in self.tiers if (price := tier.links_per_chip_hour) is not None]
        return sum(found) if found else None

    @property
    def is_one_host(self) -> bool:
        """Whether it is a host by itself."""
        return self.num_ranks <= self.host.num_chips

    @property
    def can_grow(self) -> bool:
        """Whether it is hosts joined by nothing but their own cards, of which there may be more."""
        return self.path == self.host.path and self.host.network_bytes_per_ns is not None

    @property
    def num_ranks(self) -> int:
        """Chips of the whole machine."""
        return sum(self.sizes) or self.tiers[-1].num_ranks

    def places(self, ranks: Int64s) -> Int64s:
        """Where ranks stand, of any shape: one after the other, but where places are empty."""
        if not self.sizes:
            return ranks
        ends = np.cumsum(self.sizes)
        at = np.searchsorted(ends, ranks, side="right")
        starts = np.append(0, ends)  # who lies outside stays outside
        found: Int64s = ranks - starts[at] + at * self.tiers[-2].num_ranks
        return found

    def tiers_spanned(
        self, ranks: Sequence[int], placement: Sequence[int] | None = None
    ) -> tuple[Tier, ...]:
        """The tiers that some pair of these ranks has between it, innermost first.

        Args:
            ranks: members of a group.
            placement: the place in the machine of every rank; rank r is at place r if left out.

        Raises:
            ValueError: for a rank without a place, or a place outside the machine.
        """
        if placement is None and self.sizes:
            ranks = self.places(np.asarray(ranks, np.int64)).tolist()
        return tiers_spanned(self.tiers, ranks, placement)

    def tier_of_group(
        self, ranks: Sequence[int], placement: Sequence[int] | None = None
    ) -> Tier | None:
        """The outermost tier that the group spans; `None` for a group of one.

        Raises:
            ValueError: as `tiers_spanned`.
        """
        spanned = self.tiers_spanned(ranks, placement)
        return spanned[-1] if spanned else None

    def group_bytes_per_ns(
        self, ranks: Sequence[int], placement: Sequence[int] | None = None
    ) -> float:
        """What each member gets in one direction across the narrowest tier the group spans.

        All ranks of the machine are taken to send at once, as data parallel groups do; where few
        do, an oversubscribed tier gives them more than this.

        Raises:
            ValueError: for a group of one, and as `tiers_spanned`.
        """
        spanned = self.tiers_spanned(ranks, placement)
        if not spanned:
            raise ValueError("a group of one rank sends nothing")
        return min(tier.shared_bytes_per_ns for tier in spanned)


def load_machine(name_or_path: str | Path, folders: Sequence[Path] = ()) -> Machine:
    """The machine of that name, or in that file; a host's name gives that host alone.

    Args:
        name_or_path: "llama3-24k", "dgx-h100", or a TOML file.
        folders: the user's own; looked through before the presets.

    Raises:
        MachineError: if there is none, or a file is wrong.
    """
    known, hosts = names(DescriptionKind.MACHINE, folders), host_names(folders)
    if str(name_or_path) not in known and str(name_or_path) in hosts:
        return _alone(load_host(name_or_path, folders))
    is_name = isinstance(name_or_path, str) and not Path(name_or_path).is_file()
    if is_name and name_or_path not in known and (chips := _chips_called(name_or_path, folders)):
        raise MachineError(_chip_is_no_machine(str(name_or_path), chips, folders))
    return _machine(document(name_or_path, DescriptionKind.MACHINE, folders, also=hosts), folders)


def _chips_called(text: str | Path, folders: Sequence[Path]) -> tuple[str, ...]:
    """The chip of that name, or those that a part of whose name begins so: "h100", "mi300"."""
    wanted, known = str(text).casefold(), chip_names(folders)
    if wanted in known:
        return (wanted,)
    if len(wanted) < _LEAST_PART:
        return ()
    parts = {name: name.split("-") for name in known}
    return tuple(name for name in known if any(part.startswith(wanted) for part in parts[name]))


def _chip_is_no_machine(text: str, chips: Sequence[str], folders: Sequence[Path]) -> str:
    """What to name in place of a chip; the hosts that are called most like it first."""
    hosts = [name for name in host_names(folders) if load_host(name, folders).chip.name in chips]
    hosts.sort(key=lambda name: -SequenceMatcher(None, text.casefold(), name).ratio())
    hint = (
        f"name a host or machine of it: {', '.join(hosts)}"
        if hosts
        else f'write a host with chip = "{chips[0]}" and name its file'
    )
    return f"{text!r} is a chip, and what ranks run on is a host or a machine: {hint}"


def machine_names(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all machines, sorted; hosts, which `load_machine` takes too, are not among them."""
    return names(DescriptionKind.MACHINE, folders)


def _alone(host: Host) -> Machine:
    if host.scale_up_bytes_per_ns is None:
        raise MachineError(
            f"host {host.name!r} has no scale_up_bandwidth, so it is no machine of its own: "
            "write one with tiers"
        )
    tier = Tier(
        name="host",
        kind=TierKind.SCALE_UP,
        technology="",
        num_ranks=host.num_chips,
        bytes_per_ns=host.scale_up_bytes_per_ns,
        oversubscription=1.0,
        latency_ns=None,
        num_rails=None,
    )
    return Machine(
        host.name, host.title, host, tiers=(tier,), figures=(), parent="", path=host.path
    )


def with_hosts(machine: Machine, num_ranks: int) -> Machine:
    """The machine with as many chips, where it is a host that others like it can be joined to.

    They are joined by their own cards, and every host reaches all of the others at full bandwidth.

    Raises:
        MachineError: if it has fewer chips, and its network is stated or not known.
    """
    if num_ranks <= machine.num_ranks:
        return machine
    if not machine.can_grow or num_ranks > MOST_RANKS:
        raise MachineError(
            f"the plan needs {num_ranks:,} chips, and machine {machine.name!r} has "
            f"{machine.num_ranks:,}: take a larger machine or fewer ranks"
        )
    host = machine.host
    num_hosts = -(-num_ranks // host.num_chips)
    between = Tier(
        name="hosts",
        kind=TierKind.POD,
        technology=host.network,
        num_ranks=num_hosts * host.num_chips,
        bytes_per_ns=host.network_bytes_per_ns or 0.0,
        oversubscription=1.0,
        latency_ns=None,
        num_rails=host.num_chips if host.num_nics == host.num_chips else None,
    )
    name = f"{num_hosts} x {host.name}"
    return replace(machine, name=name, tiers=(machine.tiers[0], between))


def _machine(found: Document, folders: Sequence[Path]) -> Machine:
    check_keys(found.table, _KEYS, found.where)
    host_name = found.text("host")
    if not host_name:
        raise MachineError(f'{found.where} names no host: write host = "dgx-h100", or its file')
    host = load_host(host_name, (*folders, found.path.parent))
    sources = read_sources(found.table.get("sources"), found.where)
    entries = found.table.get("tiers")
    if not isinstance(entries, list) or not entries:
        raise MachineError(f"{found.where} has no [[tiers]]: write one for each network level")
    read = [read_tier(entry, host, sources=sources, where=found.where) for entry in entries]
    tiers = tuple(tier for tier, _ in read)
    if tiers[0].jitter_ns is not None:
        raise MachineError(
            f"tier {tiers[0].name!r} of {found.where} is the innermost and has jitter: collectives "
            "inside it take what was measured of them; state it of tiers further out"
        )
    sizes = instance_sizes(as_table(entries[-1], found.where).get("sizes"), tiers, found.where)
    if sizes:
        tiers = (*tiers[:-1], replace(tiers[-1], num_ranks=len(sizes) * tiers[-2].num_ranks))
    check_nesting(tiers, found.where)
    return Machine(
        name=found.name,
        title=found.text("title", found.name),
        host=host,
        tiers=tiers,
        figures=tuple(figure for _, figures in read for figure in figures),
        parent=found.parent,
        path=found.path,
        sizes=sizes,
    )


Description = Chip | Host | Machine


@dataclass(frozen=True, repr=False)
class Hardware(Answer):
    """Everything that is described."""

    note = "`foretrace machine show NAME` has every number with its source"

    chips: tuple[Chip, ...]
    hosts: tuple[Host, ...]
    machines: tuple[Machine, ...]

    @property
    def headline(self) -> str:
        """How much of each kind."""
        chips, hosts = count_text(len(self.chips), "chip"), count_text(len(self.hosts), "host")
        return f"{chips}, {hosts}, {count_text(len(self.machines), 'machine')}"

    def parts(self) -> tuple[Told, ...]:
        """A table of each kind."""
        return self._chips(), self._hosts(), self._machines()

    def _chips(self) -> Table:
        return Table.of(
            "chips",
            self.chips,
            Column("name", "chip", Unit.WORD),
            Column("memory_bytes", "memory"),
            Column("memory_bytes_per_ns", "GB/s", Unit.GIGABYTES_PER_S),
            Column("fp32_flops_per_ns", "fp32", Unit.TERAFLOPS_PER_S, _vector_peak),
            Column("bf16_flops_per_ns", "bf16", Unit.TERAFLOPS_PER_S, _half_peak),
            Column(
                "fp8_flops_per_ns",
                "fp8",
                Unit.TERAFLOPS_PER_S,
                lambda chip: chip.peak_flops_per_ns("fp8"),
            ),
            Column("link_bytes_per_ns", "link", Unit.GIGABYTES_PER_S),
            Column("power_watts", "W", Unit.NUMBER),
            title="chips: dense peaks in TFLOP/s, of fp16 where there is no bf16; link in GB/s, "
            "one direction",
        )

    def _hosts(self) -> Table:
        return Table.of(
            "hosts",
            self.hosts,
            Column("name", "host", Unit.WORD),
            Column(
                "chips", unit=Unit.WORD, value=lambda host: f"{host.num_chips} x {host.chip.name}"
            ),
            Column("scale_up_bytes_per_ns", "scale-up", Unit.GIGABYTES_PER_S),
            Column("network_bytes_per_ns", "network", Unit.GIGABYTES_PER_S),
            Column("network", "of", Unit.WORD),
            title="hosts: GB/s of one chip, one direction",
        )

    def _machines(self) -> Table:
        return Table.of(
            "machines",
            self.machines,
            Column("name", "machine", Unit.WORD),
            Column("num_ranks", "chips"),
            Column("tiers", value=_tiers_text),
            title="machines: GB/s of one chip, one direction, while all send",
        )


def _vector_peak(chip: Chip) -> float | None:
    return chip.peak_flops_per_ns("fp32", on_matrix_units=False)


def _half_peak(chip: Chip) -> float | None:
    return chip.peak_flops_per_ns("bf16") or chip.peak_flops_per_ns("fp16")


def _tiers_text(machine: Machine) -> str:
    tiers = (
        f"{tier.name} {machine.num_ranks if tier is machine.tiers[-1] else tier.num_ranks} at "
        f"{tier.shared_bytes_per_ns:.3g}"
        for tier in machine.tiers
    )
    return ", ".join(tiers)


def hardware(folders: Sequence[Path] = ()) -> Hardware:
    """Every chip, host and machine that is described.

    Args:
        folders: the user's own; looked through before the presets.

    Raises:
        MachineError: if a file is wrong.
    """
    return Hardware(
        tuple(load_chip(name, folders) for name in chip_names(folders)),
        tuple(load_host(name, folders) for name in host_names(folders)),
        tuple(load_machine(name, folders) for name in machine_names(folders)),
    )


def described(name_or_path: str | Path, folders: Sequence[Path] = ()) -> Description:
    """The chip, host or machine of that name, or in that file.

    Args:
        name_or_path: "h100-sxm", "dgx-h100", "llama3-24k", or a TOML file.
        folders: the user's own; looked through before the presets.

    Raises:
        MachineError: if there is none, or a file is wrong.
    """
    text = str(name_or_path)
    if text in chip_names(folders):
        return load_chip(text, folders)
    if text in host_names(folders):
        return load_host(text, folders)
    if text in machine_names(folders):
        return load_machine(text, folders)
    path = Path(name_or_path)
    if not path.is_file():
        known = (*chip_names(folders), *host_names(folders), *machine_names(folders))
        near = get_close_matches(text, known, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`foretrace machine list` names all"
        raise MachineError(f"no chip, host or machine is called {text!r}, nor any file: {hint}")
    kind = _kind(path)
    if kind is DescriptionKind.CHIP:
        return load_chip(path, folders)
    return load_host(path, folders) if kind is DescriptionKind.HOST else load_machine(path, folders)


def _kind(path: Path) -> DescriptionKind:
    try:
        stated = tomllib.loads(path.read_text(encoding="utf-8")).get("kind")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise MachineError(f"{str(path)!r} is not a TOML file: {err}") from err
    kinds = [kind.value for kind in DescriptionKind]
    if stated not in kinds:
        found = "no kind" if stated is None else f"the kind {stated!r}"
        raise MachineError(
            f'{str(path)!r} has {found}: begin it with kind = "..." and one of {", ".join(kinds)}'
        )
    return DescriptionKind(stated)
