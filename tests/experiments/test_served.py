"""Serving measurements that were predicted before they were compared, as docs/serving.md says."""

from __future__ import annotations

import csv
from collections import defaultdict

import numpy as np
import pytest

from tests.validate.runs.sample import EXPERIMENTS

# Software, GPU: rows, median error, mean error, rows inside of the interval.
_STATED = {
    ("lmdeploy 0.2", "a100-sxm-80gb"): (23, 0.018, 0.075, 21),
    ("sglang 0.5", "h200-sxm"): (15, 0.145, 0.424, 11),
    ("vllm 0.11", "h200-sxm"): (12, 0.413, 1.111, 3),
    ("vllm 0.5", "mi300x"): (9, 0.254, 0.353, 5),
}


def test_first_predictions_are_off_as_the_page_says() -> None:
    found: defaultdict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    with (EXPERIMENTS / "served.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["first_low"]:
                published = float(row["tokens_per_s"])
                off = float(row["first_tokens_per_s"]) / published - 1
                is_inside = float(row["first_low"]) <= published <= float(row["first_high"])
                found[row["software"], row["gpu"]].append((off, is_inside))

    assert sum(map(len, found.values())) == 220
    for group, stated in _STATED.items():
        error = np.array([one for one, _ in found[group]])
        inside = sum(is_inside for _, is_inside in found[group])
        told = len(error), np.median(error), np.abs(error).mean(), inside
        assert told == pytest.approx(stated, abs=0.001)
