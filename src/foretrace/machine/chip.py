"""A chip: what it can compute, hold and move at best, by its data sheet.

All peaks are dense; half of what a data sheet states "with sparsity".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from foretrace.answer import Paragraph, Told
from foretrace.base import DescriptionKey, Document, MachineError, number_format, read_value
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
    prefixed,
    read_figures,
    read_sources,
    text_of,
    whole,
)

CHIP_FIELDS = (
    FigureField("memory", QuantityKind.SIZE, "1 GiB", "4 TiB", "device memory", is_required=True),
    FigureField(
        "memory_bandwidth",
        QuantityKind.BANDWIDTH,
        "20 GB/s",
        "30 TB/s",
        "device memory, reads and writes together",
        is_required=True,
    ),
    FigureField(
        "l2_cache", QuantityKind.SIZE, "256 KiB", "1 GiB", "level 2 cache, all of the chip"
    ),
    FigureField(
        "last_level_cache", QuantityKind.SIZE, "1 MiB", "4 GiB", "cache between level 2 and memory"
    ),
    FigureField(
        "shared_memory", QuantityKind.SIZE, "16 KiB", "256 MiB", "scratchpad of one processor"
    ),
    FigureField("num_processors", QuantityKind.COUNT, 1, 1024, "SMs, compute units, cores"),
    FigureField(
        "num_exponentials", QuantityKind.COUNT, 1, 1024, "of one processor in a clock, if not 16"
    ),
    FigureField(
        "boost_clock",
        QuantityKind.CLOCK,
        "300 MHz",
        "6 GHz",
        "clock of the vector units at the peak",
    ),
    FigureField(
        "matrix_clock",
        QuantityKind.CLOCK,
        "300 MHz",
        "6 GHz",
        "clock of the matrix units, if another",
    ),
    FigureField(
        "link_bandwidth",
        QuantityKind.BANDWIDTH,
        "1 GB/s",
        "5 TB/s",
        "all links to other chips together, one direction",
    ),
    FigureField("num_links", QuantityKind.COUNT, 1, 64, "links to other chips"),
    FigureField(
        "host_bandwidth", QuantityKind.BANDWIDTH, "1 GB/s", "1 TB/s", "to the host, one direction"
    ),
    FigureField("power", QuantityKind.POWER, "10 W", "3 kW", "power limit as delivered"),
)

# What a folder of the user's own measurements and constants holds: docs/cost/calibrate.md.
COST_FILES = ("kernels-*.toml", "collectives-*.toml", "gemm-*.parquet")

DTYPES = (
    "fp64",
    "fp64_matrix",
    "fp32",
    "fp32_matrix",
    "tf32",
    "fp16",
    "bf16",
    "fp8",
    "fp4",
    "int8",
)
PEAK_FIELDS = tuple(
    FigureField(
        dtype, QuantityKind.OPERATIONS, "0.01 TFLOP/s", "100 PFLOP/s", f"dense peak in {dtype}"
    )
    for dtype in DTYPES
)
LASTING_FIELDS = tuple(
    FigureField(
        dtype,
        QuantityKind.OPERATIONS,
        "0.01 TFLOP/s",
        "100 PFLOP/s",
        f"of large products in {dtype} under lasting load",
    )
    for dtype in DTYPES
)
PER_CLOCK_FIELDS = tuple(
    FigureField(
        dtype, QuantityKind.COUNT, 1, 65536, f"operations of one processor in a clock, {dtype}"
    )
    for dtype in DTYPES
)

_TEXT_KEYS = ("kind", "title", "vendor", "architecture", "device_names", "sources")
_KEYS = (*_TEXT_KEYS, "figures", "peak", "per_clock", "lasting")
_DEVICE_NAMES = DescriptionKey("device_names", tuple[str, ...])


# A device reports a few percent less memory than it has: what firmware and ECC keep.
# Seen: 1.1% (Kineto, A100 80 GB), 2.2% (RTX 2080 Ti).
_MEMORY_TOLERANCE = 0.08


@dataclass(frozen=True, repr=False)
class Chip(DataSheet):
    """One device as a program sees it; `None` where no number was published."""

    json_only = (
        *("name", "title", "vendor", "architecture", "device_names", "memory_bytes"),
        *("memory_bytes_per_ns", "peak_by_dtype", "figures"),
    )
    json_names: ClassVar = {"peak_by_dtype": "peak_flops_per_ns"}

    name: str  # of the description: "a100-sxm-80gb"
    title: str
    vendor: str
    architecture: str
    device_names: tuple[str, ...]  # what profilers and PyTorch call it
    memory_bytes: int
    memory_bytes_per_ns: float
    l2_bytes: int | None
    last_level_bytes: int | None
    shared_bytes: int | None  # of one processor
    num_processors: int | None
    num_exponentials: int | None  # of one processor in a clock; `None`: 16, as of most GPUs
    cycles_per_ns: float | None
    matrix_cycles_per_ns: float | None  # the matrix units' clock; equal unless stated
    link_bytes_per_ns: float | None  # one direction
    num_links: int | None
    host_bytes_per_ns: float | None  # one direction
    power_watts: float | None
    peak_by_dtype: Mapping[str, float]  # dense operations per ns
    per_clock_by_dtype: Mapping[str, int]  # operations of one processor in a clock
    figures: tuple[Figure, ...]  # all numbers with their sources
    parent: str  # the description it extends; "" if none
    path: Path
    # Operations per ns of large products after minutes of them, where that was measured.
    lasting_by_dtype: Mapping[str, float] = field(default_factory=dict)
    storage_bytes_per_ns: float | None = None  # its share of reads from its host's disks
    costs: Path | None = None  # folder of the user's own measurements and constants

    def parts(self) -> tuple[Told, ...]:
        """What profilers call it, and every number with its source."""
        names = Paragraph("profilers call it", ", ".join(self.device_names))
        return *super().parts(), *((names,) if self.device_names else ())

    def peak_flops_per_ns(self, dtype: str, *, on_matrix_units: bool = True) -> float | None:
        """Most operations per ns in a number format; `None` if unknown or not supported.

        Args:
            dtype: "bf16", or a name that PyTorch or its profiler gives: "c10::BFloat16".
            on_matrix_units: multiply-accumulate of matrices; else the vector units' peak, where
                formats narrower than 32 bit count as fp32, in which such kernels accumulate.
        """
        known = number_format(dtype)
        key = known.rated_as if known is not None else dtype
        if not on_matrix_units:
            return self.peak_by_dtype.get("fp64" if key == "fp64" else "fp32")
        return self.peak_by_dtype.get(f"{key}_matrix", self.peak_by_dtype.get(key))


def load_chip(name_or_path: str | Path, folders: Sequence[Path] = ()) -> Chip:
    """The chip of that name, or in that file.

    Args:
        name_or_path: "h100-sxm", or a TOML file.
        folders: the user's own; looked through before the presets. The first that holds
            measurements or constants says what the chip's kernels take.

    Raises:
        MachineError: if there is none, or the file is wrong.
    """
    found = _chip(document(name_or_path, DescriptionKind.CHIP, folders))
    return replace(found, costs=next(filter(tells_costs, folders), None))


def tells_costs(folder: Path) -> bool:
    """Whether a folder holds measurements or constants of kernels or collectives."""
    return any(next(folder.glob(pattern), None) is not None for pattern in COST_FILES)


def _may_be_called(wanted: str, name: str, folders: Sequence[Path]) -> bool:
    """Whether a description names the device, or takes over names that it does not show."""
    text = text_of(name, DescriptionKind.CHIP, folders).casefold()
    return wanted in text or "device_names" not in text or "\\" in text


def chip_names(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all chips, sorted."""
    return names(DescriptionKind.CHIP, folders)


def chip_named(
    name: str,
    *,
    memory_bytes: int | None = None,
    num_processors: int | None = None,
    folders: Sequence[Path] = (),
) -> Chip | None:
    """The chip that a profile calls `name`; `None` if it is unknown or more than one could be.

    Args:
        name: a description's name, or what a profiler or PyTorch calls the device.
        memory_bytes: what the device reports; tells variants apart, and a slice from a whole.
        num_processors: SMs or compute units that the device reports, likewise.
        folders: the user's own; looked through before the presets.
    """
    wanted = name.strip().casefold()
    chips = [
        load_chip(each, folders)
        for each in chip_names(folders)
        if each == wanted or _may_be_called(wanted, each, folders)
    ]
    exact = [chip for chip in chips if chip.name == wanted]
    called = [chip for chip in chips if wanted in {each.casefold() for each in chip.device_names}]
    fitting = [
        chip
        for chip in exact or called
        if _fits(chip, memory_bytes=memory_bytes, num_processors=num_processors)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _fits(chip: Chip, *, memory_bytes: int | None, num_processors: int | None) -> bool:
    if memory_bytes is not None:
        difference = abs(memory_bytes - chip.memory_bytes)
        if difference > _MEMORY_TOLERANCE * chip.memory_bytes:
            return False
    return num_processors is None or chip.num_processors in (None, num_processors)


def _chip(found: Document) -> Chip:
    check_keys(found.table, _KEYS, found.where)
    sources = read_sources(found.table.get("sources"), found.where)

    def figures(key: str, fields: Sequence[FigureField]) -> dict[str, Figure]:
        table = as_table(found.table.get(key), f"[{key}] of {found.where}")
        where = f"[{key}] of {found.where}"
        return read_figures(table, fields, sources=sources, where=where)

    peaks = figures("peak", PEAK_FIELDS)
    if not peaks:
        raise MachineError(f"{found.where} has no [peak]: add at least fp32, or extend a preset")
    return _assembled(
        found,
        figures("figures", CHIP_FIELDS),
        peaks,
        per_clock=figures("per_clock", PER_CLOCK_FIELDS),
        lasting=figures("lasting", LASTING_FIELDS),
    )


def _assembled(
    found: Document,
    own: Mapping[str, Figure],
    peaks: Mapping[str, Figure],
    *,
    per_clock: Mapping[str, Figure],
    lasting: Mapping[str, Figure],
) -> Chip:
    clock = number(own, "boost_clock")
    return Chip(
        name=found.name,
        title=found.text("title", found.name),
        vendor=found.text("vendor"),
        architecture=found.text("architecture"),
        device_names=read_value(
            found.table.get("device_names", ()), _DEVICE_NAMES, found.where, error=MachineError
        ),
        memory_bytes=round(own["memory"].value),
        memory_bytes_per_ns=own["memory_bandwidth"].value,
        l2_bytes=whole(own, "l2_cache"),
        last_level_bytes=whole(own, "last_level_cache"),
        shared_bytes=whole(own, "shared_memory"),
        num_processors=whole(own, "num_processors"),
        num_exponentials=whole(own, "num_exponentials"),
        cycles_per_ns=clock,
        matrix_cycles_per_ns=number(own, "matrix_clock") or clock,
        link_bytes_per_ns=number(own, "link_bandwidth"),
        num_links=whole(own, "num_links"),
        host_bytes_per_ns=number(own, "host_bandwidth"),
        power_watts=number(own, "power"),
        peak_by_dtype={key: figure.value for key, figure in peaks.items()},
        per_clock_by_dtype={key: round(figure.value) for key, figure in per_clock.items()},
        lasting_by_dtype={key: figure.value for key, figure in lasting.items()},
        figures=(
            *own.values(),
            *prefixed("peak", peaks),
            *prefixed("per_clock", per_clock),
            *prefixed("lasting", lasting),
        ),
        parent=found.parent,
        path=found.path,
    )
