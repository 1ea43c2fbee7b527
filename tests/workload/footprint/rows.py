"""Published runs with a measured memory peak, as models, plans and software.

What the table does not say was read in each source's scripts and code.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from foretrace.machine import Chip, load_chip
from foretrace.workload import (
    MEGATRON,
    PYTORCH,
    ContextExchange,
    Footprint,
    Implementation,
    Loss,
    Plan,
    Precision,
    Recompute,
    Sharding,
    Software,
    Transformer,
    footprint,
    schedule_of,
)
from tests.models import transformer

_GIB = 2**30
_CHIPS = {
    "H100": "h100-sxm",
    "H100-96GB-HBM2e-500W": "h100-96gb-hbm2e",
    "H200": "h200-sxm",
    "B200": "b200-sxm",
    "GB200": "gb200",
}
_TORCHTITAN = Implementation(
    fuses_norms=False,
    fuses_activations=False,
    fuses_rotary=False,
    fuses_loss=False,
    fuses_projections=False,
    repeats_keys=True,
    fuses_gradients=False,
    copies_shards=True,
    selective="operators",
)


@dataclass(frozen=True)
class Row:
    """A measured run and what it is here."""

    name: str
    source: str  # "torchtitan", "simumax", "mlperf"
    measured_bytes: int
    model: Transformer
    plan: Plan
    software: Software
    chip: Chip

    def footprint(self) -> Footprint:
        """What is predicted."""
        return footprint(
            self.model,
            self.plan,
            schedule_of(self.plan),
            chip=self.chip,
            software=self.software,
        )

    def predicted_bytes(self) -> int:
        """What the framework's statistics would show; MLPerf logs those of the first rank."""
        found = self.footprint()
        stage = found.stages[0] if self.source == "mlperf" else found.peak
        return stage.allocated

    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted_bytes() / self.measured_bytes - 1


def measured_rows(data_dir: Path) -> list[Row]:
    """All rows with a peak."""
    with (data_dir / "published" / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["peak_memory_gib"]]
    return [_row(row) for row in rows]


def _row(row: dict[str, str]) -> Row:
    source = row["id"].split("-")[0]
    implementation, precision, software = {
        "torchtitan": _torchtitan,
        "simumax": _simumax,
        "mlperf": _mlperf,
    }[source](row)
    return Row(
        name=row["id"],
        source=source,
        measured_bytes=round(float(row["peak_memory_gib"]) * _GIB),
        model=_model(row),
        plan=_plan(row, implementation, precision),
        software=software,
        chip=load_chip(_CHIPS[row["gpu"]]),
    )


def _torchtitan(row: dict[str, str]) -> tuple[Implementation, Precision, Software]:
    is_compiled = row["software"] != "torchtitan-eager"
    # The loss has been compiled since 2025; the runs of 2024 say "TODO: causes CUDA errors".
    fuses_loss = is_compiled and row["gpu"] == "H200"
    implementation = replace(
        _TORCHTITAN,
        launch="compiled" if is_compiled else "eager",
        fuses_loss=fuses_loss,
    )
    return implementation, Precision(products=row["precision"]), PYTORCH


def _simumax(row: dict[str, str]) -> tuple[Implementation, Precision, Software]:
    # Megatron-LM 23e00ed with TransformerEngine 2.11, whose loss is "cef" in the runs' names.
    software = replace(MEGATRON, loss=Loss.IN_PLACE)
    return Implementation(), Precision(products=row["precision"]), software


def _mlperf(row: dict[str, str]) -> tuple[Implementation, Precision, Software]:
    # grad_reduce_in_fp32=False in pretrain.py, FP8_PARAMS=True in config_common.sh.
    number = row["precision"]
    precision = Precision(products=number, parameters=number, gradients="bf16", reduced="bf16")
    # TransformerEngine of 2025-01 to 2025-04: before 2.3, which keeps unused gradients.
    return Implementation(), precision, replace(MEGATRON, keeps_dummy_gradients=False)


def _plan(row: dict[str, str], implementation: Implementation, precision: Precision) -> Plan:
    pipeline, chunks = int(row["pp"]), int(row["vp"])
    schedule = "interleaved" if chunks > 1 else "1f1b" if pipeline > 1 else "none"
    exchange = ContextExchange.ALL_TO_ALL if "all-to-all" in row["notes"] else ContextExchange.RING
    return Plan(
        tensor=int(row["tp"]),
        context=int(row["cp"]),
        data=int(row["dp"]),
        pipeline=pipeline,
        num_chunks=chunks,
        schedule=schedule,
        micro_batch=int(row["micro_batch"]),
        global_batch=int(row["global_batch"]),
        sequence=int(row["seq_len"]),
        sequence_parallel=row["sequence_parallel"] == "True",
        context_exchange=exchange,
        sharding=Sharding(row["sharding"].removesuffix("/fsdp")),
        recompute=Recompute(row["recompute"]),
        precision=precision,
        implementation=implementation,
    )


def _model(row: dict[str, str]) -> Transformer:
    model = transformer("llama3-8b")
    return replace(
        model,
        num_layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        vocabulary=int(row["vocab"]),
        attention=replace(
            model.attention,
            num_heads=int(row["heads"]),
            num_kv_heads=int(row["kv_heads"]),
            head_size=int(row["head_dim"]),
        ),
        feed_forward=replace(model.feed_forward, width=int(row["ffn"])),
    )
