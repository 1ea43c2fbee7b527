"""The example plan of docs/recommenders.md is one that works."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from foretrace.workload import (
    Recommender,
    TableScheme,
    blocks_of_model,
    complete,
    draft_of,
    load_model,
    place_tables,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "recommenders.md"


def test_the_example_plan_places_tables_and_makes_blocks() -> None:
    text, _ = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    model = load_model("dlrm-mlperf-v2")
    assert isinstance(model, Recommender)

    plan = complete(draft_of(tomllib.loads(text)), model)

    assert plan.tables is not None
    placed = place_tables(model, plan.tables, num_ranks=plan.data, batch=plan.micro_batch)
    assert placed.scheme_of(0) is TableScheme.ROW
    assert placed.scheme_of(20) is TableScheme.COLUMN
    assert placed.scheme_of(5) is TableScheme.DATA
    assert max(placed.bytes_by_rank) <= 30_000_000_000
    assert blocks_of_model(model, plan).layers


def test_every_scheme_is_explained() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")

    for scheme in TableScheme:
        assert f"| `{scheme.value}` |" in text
