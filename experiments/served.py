"""Published serving measurements (`served.csv`), predicted, and held against what was published.

    python experiments/served.py predict    # fills in what is not yet predicted; never what is
    python experiments/served.py compare    # today's predictions against what was published
    python experiments/served.py blind      # the first ones, made before, against it

A row has the model, the GPU, vLLM's keywords for what the engine was told, and lengths as a law.
Engines other than vLLM have its keywords for their own defaults. All requests come at once. `later`
says what was found out about a row after its first prediction.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import foretrace as ft
from foretrace.base import ModelError

TABLE = Path(__file__).parent / "served.csv"
FIRST = ("first_tokens_per_s", "first_low", "first_high", "first_tpot_ms")
Row = dict[str, str]


def rows_of(path: Path) -> list[Row]:
    """Rows of a table, each by its columns' names."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def predicted(row: Row) -> tuple[float, float, float, float] | None:
    """Output tokens a second, the interval of that, ms a token; nothing where it is refused."""
    engine = json.loads(row["engine"])
    try:
        found = ft.serve(row["model"], engine=engine, gpu=row["gpu"], requests=row["requests"])
    except ModelError as err:
        sys.stderr.write(f"{row['id']}: {err}\n")
        return None
    rates, each = found.rates, found.tpot_ms
    ends = rates.low, rates.high
    return rates.output_tokens_per_s, *ends, each.mean


def _group(row: Row) -> tuple[str, ...]:
    has_experts = any(name in row["model"] for name in ("gpt-oss", "glm", "a22b", "deepseek"))
    kind = "experts" if has_experts else "dense"
    return row["software"], row["gpu"], kind


def _lines(rows: Iterable[Row], numbers: dict[str, tuple[float, ...]]) -> Iterable[str]:
    groups: defaultdict[tuple[str, ...], list[tuple[float, bool, float]]] = defaultdict(list)
    for row in rows:
        if row["id"] not in numbers:
            continue
        rate, low, high, each = numbers[row["id"]]
        truth = float(row["tokens_per_s"])
        tpot = each / float(row["tpot_ms"]) - 1 if row["tpot_ms"] else float("nan")
        for group in (_group(row), (row["software"],), ("all",)):
            groups[group].append((rate / truth - 1, low <= truth <= high, tpot))
    for group in sorted(groups):
        found = groups[group]
        off, beside = np.array([one for one, _, _ in found]), [one for _, _, one in found]
        inside = sum(is_inside for _, is_inside, _ in found)
        timed = np.array(beside)[~np.isnan(beside)]
        told = f"{np.median(timed):+7.1%}" if len(timed) else ""
        yield (
            f"{', '.join(group):44} {len(off):4}  median {np.median(off):+7.1%}  "
            f"mean error {np.abs(off).mean():6.1%}  inside {inside:3}  TPOT {told}"
        )


def main(what: str) -> None:
    """Do what the module's text says."""
    rows = rows_of(TABLE)
    numbers: dict[str, tuple[float, ...]] = {}
    for row in rows:
        if what == "blind":
            if row[FIRST[0]]:
                numbers[row["id"]] = tuple(float(row[name]) for name in FIRST)
        elif (what == "compare" and not row["later"].startswith("left out")) or not row[FIRST[0]]:
            found = predicted(row)
            if found is not None:
                numbers[row["id"]] = found
                if what == "predict":
                    row.update(zip(FIRST, (f"{one:.5g}" for one in found), strict=True))
    if what == "predict":
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return
    for line in _lines(rows, numbers):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1])
