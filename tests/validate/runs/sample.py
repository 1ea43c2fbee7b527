"""A table of runs made up for tests; no figure in it was measured."""

from __future__ import annotations

from pathlib import Path

from foretrace.validate import PublishedRun, RunPrediction, RunStatus, read_description, read_runs

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
DESCRIPTION = read_description(EXPERIMENTS / "runs.toml")

_COLUMNS = (
    *("id", "source", "model", "software", "gpu", "precision", "sharding", "schedule"),
    *("recompute", "notes", "group", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn"),
    *("vocab", "num_gpus", "gpus_per_node", "nvlink_domain", "tp", "pp", "vp", "cp", "ep", "dp"),
    *("micro_batch", "global_batch", "seq_len", "sequence_parallel", "step_time_s"),
    *("tokens_per_s_per_gpu", "peak_memory_gib", "network"),
)
_ROW: dict[str, object] = {
    "id": "made-up-1",
    "source": "made up",
    "model": "llama3-8b",
    "software": "megatron-simumax",
    "gpu": "A100-80GB",
    "precision": "bf16",
    "sharding": "zero1",
    "schedule": "1f1b",
    "recompute": "none",
    "group": "made-up|one",
    "layers": 8,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 14336,
    "vocab": 128256,
    "num_gpus": 8,
    "gpus_per_node": 8,
    "tp": 2,
    "pp": 2,
    "vp": 1,
    "cp": 1,
    "ep": 1,
    "dp": 2,
    "micro_batch": 1,
    "global_batch": 48,
    "seq_len": 2048,
    "sequence_parallel": True,
    "step_time_s": 3.0,
}


def write_table(path: Path, *rows: dict[str, object]) -> Path:
    """A CSV file of runs, each as the made-up one but for what is given."""
    lines = [",".join(_COLUMNS)]
    for row in rows:
        whole = {**_ROW, **row}
        lines.append(",".join(str(whole.get(name, "")) for name in _COLUMNS))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def published(folder: Path, **changes: object) -> PublishedRun:
    """One run."""
    return read_runs(write_table(folder / "runs.csv", changes), DESCRIPTION)[0]


def predicted(
    name: str, measured_s: float, predicted_s: float | None, **more: str
) -> RunPrediction:
    """A prediction, a tenth uncertain each way."""
    return RunPrediction(
        id=name,
        source=more.get("source", "one"),
        software=more.get("software", ""),
        gpu="A100-80GB",
        precision="bf16",
        num_gpus=8,
        has_experts=False,
        measured_s=measured_s,
        predicted_s=predicted_s,
        low_s=None if predicted_s is None else predicted_s / 1.1,
        high_s=None if predicted_s is None else predicted_s * 1.1,
        roofline_s=None if predicted_s is None else predicted_s / 2,
        status=RunStatus.REFUSED if predicted_s is None else RunStatus.PREDICTED,
        why="",
    )
