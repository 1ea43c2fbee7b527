"""How near predictions were that were written down before they were compared."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np


def first_errors(
    table: Path, kind: Callable[[dict[str, str]], str]
) -> dict[str, tuple[float, float]]:
    """Mean error and share inside the interval, by kind of run; every source counts alike."""
    found: dict[str, dict[str, list[tuple[float, bool]]]] = {}
    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            tokens = int(row["global_batch"]) * int(row["seq_len"]) / int(row["num_gpus"])
            measured_s = float(row["step_time_s"] or 0) or tokens / float(
                row["tokens_per_s_per_gpu"]
            )
            error = abs(float(row["first_predicted_s"]) / measured_s - 1)
            is_inside = float(row["first_low_s"]) <= measured_s <= float(row["first_high_s"])
            sources = found.setdefault(kind(row), {})
            sources.setdefault(row["group"].split("|")[0], []).append((error, is_inside))
    means = {
        name: np.mean([np.mean(each, axis=0) for each in sources.values()], axis=0)
        for name, sources in found.items()
    }
    return {name: (float(error), float(inside)) for name, (error, inside) in means.items()}
