"""`read_runs`: a table of published training runs becomes rows with their configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.base import LARGEST_COUNT, MOST_EXPERTS, MOST_LAYERS, WorkloadError
from foretrace.software import Knowledge, TrainingSoftware
from foretrace.validate.runs.description import Row, RunsDescription
from foretrace.workload import parsed_keys

if TYPE_CHECKING:
    import polars as pl

_NEEDED = ("id", "model", "gpu", "num_gpus", "precision", "global_batch", "seq_len")
_MOST = {"layers": MOST_LAYERS, "experts": MOST_EXPERTS}
_FLAGS = {"true": True, "false": False}
_ALSO_READ = ("group", "recompute_modules", "step_time_s", "tokens_per_s_per_gpu")
_TOLD = "first_"  # columns of what was predicted before


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """One run that others measured; `None` where nothing was printed."""

    id: str
    source: str
    family: str  # of sources: what stands before the first "|" of the column `group`
    model: str
    software: str
    gpu: str
    precision: str
    sharding: str | None
    schedule: str | None
    recompute: str | None
    notes: str
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    ffn: int | None
    vocab: int | None
    experts: int | None
    top_k: int | None
    moe_ffn: int | None
    num_gpus: int
    gpus_per_node: int | None
    nvlink_domain: int | None
    tp: int | None
    pp: int | None
    vp: int | None
    cp: int | None
    ep: int | None
    dp: int | None
    micro_batch: int | None
    global_batch: int
    seq_len: int
    sequence_parallel: bool | None
    recompute_layers: int | None = None  # of each chunk, where the others compute nothing again
    launch_times: float | None = None  # as long as usual from launch to launch, on its hosts
    network: str | None = None  # bandwidth of one GPU between hosts, one way: "400 Gb/s"
    measured_s: float | None
    peak_memory_gib: float | None
    description: RunsDescription = field(repr=False)  # of the table
    beside: Row = field(default_factory=dict, repr=False)  # other columns, of tables beside too
    software_class: TrainingSoftware | None = field(default=None, repr=False)  # if that is to count

    @property
    def has_experts(self) -> bool:
        """Whether some layers hold experts."""
        return bool(self.experts) or bool(self.moe_ffn)

    @property
    def replicas(self) -> int | None:
        """DP: as printed, or as many as the GPUs have room for; `None` if that is not known."""
        if self.dp is not None or self.tp is None or self.pp is None:
            return self.dp
        held = self.tp * self.pp * (self.cp or 1)
        return self.num_gpus // held if self.num_gpus % held == 0 else None

    @property
    def plan_keys(self) -> Mapping[str, object]:
        """Keys of plans that have a column of their name, as `overlap.gradients`."""
        stated = (f"{name}={text}" for name, text in self.beside.items() if "." in name and text)
        return parsed_keys(tuple(stated))

    @property
    def texts(self) -> Row:
        """The columns that rules of a description look at, those of tables beside among them."""
        own = {
            one.name: getattr(self, one.name) or ""
            for one in fields(self)
            if str(one.type).startswith("str")
        }
        return {**self.beside, **own}

    @cached_property
    def described_software(self) -> TrainingSoftware:
        """What ran it, as described, or as far as its name tells."""
        return self.software_class or self.description.software_of(self.texts)


def undescribed_software(runs: Sequence[PublishedRun]) -> tuple[str, ...]:
    """A sentence for each software that no description knows: what it is taken for."""
    taken = {
        run.software: run.described_software
        for run in runs
        if run.described_software.knowledge is not Knowledge.RELEASE
    }
    return tuple(
        f"no release called {name!r} is described: taken for {one.name!r} ({one.title}), with a "
        "wider interval; add a description of software, or a [[software]] rule for these runs"
        for name, one in taken.items()
    )


def read_runs(path: Path, description: RunsDescription) -> tuple[PublishedRun, ...]:
    """The rows of a CSV file with the columns of docs/accuracy.md that can be read.

    Raises:
        WorkloadError: if it is no such file, or none of its rows can be read.
    """
    rows = tuple(_read(path, description))
    found = tuple(run for run in rows if isinstance(run, PublishedRun))
    if rows and not found:
        raise WorkloadError(f"none of {len(rows)} rows can be read: {rows[0]}")
    return found


def unread_rows(path: Path, description: RunsDescription) -> tuple[str, ...]:
    """Why each row that `read_runs` leaves out cannot be read, by the name of its run.

    Raises:
        WorkloadError: if it is no such file.
    """
    return tuple(row for row in _read(path, description) if isinstance(row, str))


def unread_columns(path: Path, description: RunsDescription) -> tuple[str, ...]:
    """A sentence if columns of the table mean nothing: which.

    Raises:
        WorkloadError: if it is no such file.
    """
    means = {*_OWN, *_ALSO_READ, *description.looks_at()}
    idle = [
        name
        for name in _table(path).columns
        if name not in means and "." not in name and not name.startswith(_TOLD)
    ]
    if not idle:
        return ()
    told = (
        f"nothing reads the columns {', '.join(idle)} of {path.name}: name keys of plans as their "
        "paths are (overlap.gradients), or add a rule that looks at them"
    )
    return (told,)


def _read(path: Path, description: RunsDescription) -> Iterator[PublishedRun | str]:
    """Every row's run, or why it has none."""
    table = _table(path)
    missing = [name for name in _NEEDED if name not in table.columns]
    if missing:
        raise WorkloadError(
            f"{str(path)!r} lacks the columns {', '.join(missing)}: docs/accuracy.md lists those "
            "that a table of runs has."
        )
    for at, row in enumerate(table.iter_rows(named=True)):
        name = f", {row['id']!r}" if row["id"] else ""
        try:
            yield run_of(row, description, where=f"row {at + 1} of {str(path)!r}{name}")
        except WorkloadError as err:
            yield str(err)


def _table(path: Path) -> pl.DataFrame:
    import polars as pl  # on demand: it takes longer to import than most commands take

    try:
        return pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as err:
        raise WorkloadError(
            f"{str(path)!r} cannot be read as a table of runs ({err}): "
            "give a CSV file with one run a row."
        ) from err


def run_of(
    texts: Mapping[str, str | None], description: RunsDescription, *, where: str
) -> PublishedRun:
    """The run of one row's texts by column.

    Raises:
        WorkloadError: if a needed value is missing, or one is no number.
    """
    beside = description.known_beside({name: text or "" for name, text in texts.items()})
    cells = _Cells({**texts, **beside}, where)
    group = cells.text("group") or cells.text("source") or ""
    # Columns of text that are empty where nothing was printed; the others are `None`.
    own: dict[str, Any] = {name: cells.text(name) or "" for name in ("source", "software", "notes")}
    own |= {name: cells.needed_text(name) for name in _NEEDED}
    own |= {
        "family": group.split("|", maxsplit=1)[0],
        "measured_s": _measured_s(cells),
        "peak_memory_gib": cells.number("peak_memory_gib"),
        "launch_times": cells.number("launch_times"),
        "description": description,
        "beside": {name: text for name, text in beside.items() if name not in _OWN},
    }
    read: dict[str, Callable[[str], object]] = {
        "int": cells.needed_count,
        "int | None": cells.count,
        "str | None": cells.text,
        "bool | None": cells.flag,
    }
    typed = ((one.name, str(one.type)) for one in fields(PublishedRun))
    own |= {name: read[kind](name) for name, kind in typed if kind in read}
    own |= {name: own[name] and own[name].lower() for name in ("precision", "sharding")}
    return PublishedRun(**own)


_OWN = frozenset(one.name for one in fields(PublishedRun))


@dataclass(frozen=True)
class _Cells:
    """One row's texts."""

    texts: Mapping[str, str | None]
    where: str

    def text(self, name: str) -> str | None:
        found = self.texts.get(name)
        return found.strip() or None if found is not None else None

    def needed_text(self, name: str) -> str:
        found = self.text(name)
        if found is None:
            raise WorkloadError(f"{self.where} has no {name}: fill the column in.")
        return found

    def number(self, name: str) -> float | None:
        found = self.text(name)
        if found is None:
            return None
        try:
            number = float(found)
        except ValueError:
            number = math.nan
        if not abs(number) <= _MOST.get(name, LARGEST_COUNT):  # nor where it is none
            raise WorkloadError(
                f"{self.where} has {name} {found!r}, which is no number of a run: correct it, or "
                "leave it empty."
            )
        return number

    def count(self, name: str) -> int | None:
        found = self.number(name)
        return None if found is None else round(found)

    def needed_count(self, name: str) -> int:
        self.needed_text(name)
        found = self.count(name)
        if found is None or found < 1:
            raise WorkloadError(f"{self.where} has {name} {found}: it must be 1 or more.")
        return found

    def flag(self, name: str) -> bool | None:
        return _FLAGS.get((self.text(name) or "").lower())


def _measured_s(cells: _Cells) -> float | None:
    """The step's time, from the tokens per second where a table prints only those."""
    step_s = cells.number("step_time_s")
    tokens = cells.number("tokens_per_s_per_gpu")
    if step_s is not None or not tokens:
        return step_s
    batch, length = cells.needed_count("global_batch"), cells.needed_count("seq_len")
    return batch * length / (tokens * cells.needed_count("num_gpus"))
