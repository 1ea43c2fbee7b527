"""Measured collectives: files `collectives*.parquet` of a folder, and logs of nccl-tests.

One row is one collective's time: system, gpu, num_gpus, num_nodes, collective, message_bytes,
dtype, time_ns, software, notes. A system is one kind of host with one kind of network; rows of
one system that another library, transport or setting made are told apart by `variant`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import (
    SIXTEEN_BITS,
    Bools,
    CollectiveKind,
    Float64s,
    Int64s,
    ModelError,
    number_format,
)
from foretrace.cost.columns import checked_columns, read_columns
from foretrace.cost.labels import OF_COLLECTIVES, chip_labelled
from foretrace.cost.network.domain import collective_named
from foretrace.cost.network.logs import MARK, read_log
from foretrace.machine import Chip, Host, load_host

if TYPE_CHECKING:
    import polars as pl

_LABELS = ("system", "gpu", "collective", "dtype")
_COUNTS = ("num_gpus", "num_nodes", "message_bytes")
_LOG_SUFFIXES = (".log", ".txt", ".out")
# Systems whose chips are joined otherwise than by switches.
_HOST_BY_SYSTEM = {"perlmutter-node": "perlmutter", "alps-gh200-slingshot11": "alps-gh200"}
IN_SWITCH, BY_RANKS = "in switch", "by ranks"
# Switches of these generations add up numbers on their way (NVLink SHARP).
_ADDING_ARCHITECTURES = frozenset(("Hopper", "Blackwell"))
_ADDED_DTYPES = frozenset((*SIXTEEN_BITS, "fp32"))


@dataclass(frozen=True)
class MeasuredCollectives:
    """Measurements of one collective on one system, by one variant of its software."""

    system: str
    variant: str  # "" unless the network's transport or settings are told apart
    chip: Chip
    collective: CollectiveKind
    kind: str  # who adds up: IN_SWITCH, BY_RANKS
    dtype: str
    num_ranks: Int64s  # int64[rows]
    num_hosts: Int64s  # int64[rows]
    num_bytes: Int64s  # int64[rows]
    measured_ns: Float64s  # float64[rows]
    source: str
    mesh: int = 0  # chips of the host if they are joined without a switch

    def taken(self, rows: Bools) -> MeasuredCollectives:
        """Some of the rows."""
        return replace(
            self,
            num_ranks=self.num_ranks[rows],
            num_hosts=self.num_hosts[rows],
            num_bytes=self.num_bytes[rows],
            measured_ns=self.measured_ns[rows],
        )


def who_adds(collective: CollectiveKind, dtype: str, chip: Chip) -> str:
    """Whether switches or ranks add up: switches know floating point only, cards on PCIe none."""
    known = number_format(dtype)
    is_added = known is not None and known.name in _ADDED_DTYPES
    adds = collective in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER) and is_added
    has_switch = chip.architecture in _ADDING_ARCHITECTURES and chip.link_bytes_per_ns is not None
    return IN_SWITCH if adds and has_switch else BY_RANKS


def mesh_of(host: Host) -> int:
    """The host's chips if each has links of its own to each other; 0 if switches join them."""
    return host.num_chips if host.topology == "all to all" else 0


def read_collectives(folder: Path) -> tuple[MeasuredCollectives, ...]:
    """All measurements of collectives in a folder; repeats of a point become their median.

    Args:
        folder: with files `collectives*.parquet`, logs of nccl-tests (.log, .txt, .out), or both.

    Raises:
        ModelError: if a column is missing, a log is not whole, or a GPU or collective is unknown.
    """
    import polars as pl  # on demand: it takes longer to import than most commands take

    frames = [
        _frame(read_columns(path, texts=_LABELS, counts=_COUNTS))
        for path in sorted(folder.glob("collectives*.parquet"))
    ]
    logs = [path for path in sorted(folder.iterdir()) if _is_log(path)]
    rows = [row for path in logs for row in read_log(path)]
    if rows:
        table = checked_columns(pl.DataFrame(rows), folder, texts=_LABELS, counts=_COUNTS)
        frames.append(_frame(table))
    return tuple(found for frame in frames for found in _measured(frame))


def has_collectives(folder: Path) -> bool:
    """Whether a folder has anything that `read_collectives` reads."""
    return any(folder.glob("collectives*.parquet")) or any(map(_is_log, folder.iterdir()))


def _is_log(path: Path) -> bool:
    if path.suffix not in _LOG_SUFFIXES or not path.is_file():
        return False
    return MARK in path.read_text(encoding="utf-8", errors="replace")


def _frame(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl  # on demand, as above

    absent = [name for name in ("software", "notes", "source") if name not in frame.columns]
    frame = frame.with_columns(pl.lit("").alias(name) for name in absent)
    setting = pl.col("notes").str.extract(r"setting (\w+)").fill_null("")
    transport = pl.col("software").str.extract(r"(aws-ofi [\d.]+)").fill_null("")
    return frame.filter(pl.col("time_ns") > 0).with_columns(
        variant=pl.concat_str(transport, setting, separator=" ").str.strip_chars(),
        software=pl.col("software").fill_null(""),
        origin=pl.col("source").fill_null("").str.split("@").list.first(),
    )


def _measured(frame: pl.DataFrame) -> Iterator[MeasuredCollectives]:
    import polars as pl  # on demand, as above

    keys = ("system", "gpu", "variant", "collective", "dtype", "origin")
    for labels, rows in frame.group_by(keys, maintain_order=True):
        system, gpu, variant, name, dtype, origin = (str(label) for label in labels)
        collective = collective_named(name)
        if collective is None:
            raise ModelError(f"the table names the collective {name!r}, which none of ours is.")
        chip = _chip(gpu)
        # Releases of a library stay rows of their own: each is a measurement of the machine.
        points = (
            rows.group_by("num_gpus", "num_nodes", "message_bytes", "software")
            .agg(pl.col("time_ns").median())
            .sort("num_gpus", "message_bytes", "software")
        )
        ranks, hosts, sizes, measured_ns = (
            points[name].to_numpy()
            for name in ("num_gpus", "num_nodes", "message_bytes", "time_ns")
        )
        yield MeasuredCollectives(
            system=system,
            variant=variant,
            chip=chip,
            collective=collective,
            kind=who_adds(collective, dtype, chip),
            dtype=dtype,
            num_ranks=ranks.astype(np.int64),
            num_hosts=hosts.astype(np.int64),
            num_bytes=sizes.astype(np.int64),
            measured_ns=measured_ns.astype(np.float64),
            source=origin,
            mesh=mesh_of(load_host(host)) if (host := _HOST_BY_SYSTEM.get(system)) else 0,
        )


def _chip(label: str) -> Chip:
    chip = chip_labelled(label, v100=OF_COLLECTIVES)
    if chip is None:
        raise ModelError(
            f"the table names the GPU {label!r}, which no description of a chip does: "
            "`foretrace machine list` names them; write your own with that device name."
        )
    return chip
