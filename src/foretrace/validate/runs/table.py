"""`read_runs`: a table of published training runs becomes rows with their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foretrace.base import WorkloadError

_NEEDED = ("id", "model", "gpu", "num_gpus", "precision", "global_batch", "seq_len")
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """One run that others measured; `None` where nothing was printed."""

    id: str
    source: str
    family: str  # of sources: "llm-foundry", "mlperf", ...
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
    measured_s: float | None
    peak_memory_gib: float | None

    @property
    def has_experts(self) -> bool:
        """Whether some layers hold experts."""
        return bool(self.experts) or bool(self.moe_ffn)


def read_runs(path: Path) -> tuple[PublishedRun, ...]:
    """The rows of a CSV file with the columns of docs/accuracy.md.

    Raises:
        WorkloadError: if it is no such file, or a value is no number.
    """
    import polars as pl  # on demand: it takes longer to import than most commands take

    try:
        table = pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as err:
        raise WorkloadError(
            f"{str(path)!r} cannot be read as a table of runs ({err}): "
            "give a CSV file with one run a row."
        ) from err
    missing = [name for name in _NEEDED if name not in table.columns]
    if missing:
        raise WorkloadError(
            f"{str(path)!r} lacks the columns {', '.join(missing)}: docs/accuracy.md lists those "
            "that a table of runs has."
        )
    return tuple(
        _run(_Cells(row, f"row {at + 1} of {str(path)!r}"))
        for at, row in enumerate(table.iter_rows(named=True))
    )


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
            return float(found)
        except ValueError as err:
            raise WorkloadError(
                f"{self.where} has {name} {found!r}, which is no number: correct it, or leave it "
                "empty."
            ) from err

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


def _run(cells: _Cells) -> PublishedRun:
    source = cells.text("source") or ""
    group = cells.text("group") or source
    return PublishedRun(
        id=cells.needed_text("id"),
        source=source,
        family=group.split("|", maxsplit=1)[0],
        model=cells.needed_text("model"),
        software=cells.text("software") or "",
        gpu=cells.needed_text("gpu"),
        precision=cells.needed_text("precision"),
        sharding=cells.text("sharding"),
        schedule=cells.text("schedule"),
        recompute=cells.text("recompute"),
        notes=cells.text("notes") or "",
        layers=cells.count("layers"),
        hidden=cells.count("hidden"),
        heads=cells.count("heads"),
        kv_heads=cells.count("kv_heads"),
        head_dim=cells.count("head_dim"),
        ffn=cells.count("ffn"),
        vocab=cells.count("vocab"),
        experts=cells.count("experts"),
        top_k=cells.count("top_k"),
        moe_ffn=cells.count("moe_ffn"),
        num_gpus=cells.needed_count("num_gpus"),
        gpus_per_node=cells.count("gpus_per_node"),
        nvlink_domain=cells.count("nvlink_domain"),
        tp=cells.count("tp"),
        pp=cells.count("pp"),
        vp=cells.count("vp"),
        cp=cells.count("cp"),
        ep=cells.count("ep"),
        dp=cells.count("dp"),
        micro_batch=cells.count("micro_batch"),
        global_batch=cells.needed_count("global_batch"),
        seq_len=cells.needed_count("seq_len"),
        sequence_parallel=cells.flag("sequence_parallel"),
        measured_s=_measured_s(cells),
        peak_memory_gib=cells.number("peak_memory_gib"),
    )


def _measured_s(cells: _Cells) -> float | None:
    """The step's time, from the tokens per second where a table prints only those."""
    step_s = cells.number("step_time_s")
    tokens = cells.number("tokens_per_s_per_gpu")
    if step_s is not None or not tokens:
        return step_s
    batch, length = cells.needed_count("global_batch"), cells.needed_count("seq_len")
    return batch * length / (tokens * cells.needed_count("num_gpus"))
