"""Every recording at hand: how large its graph is, and what its replay, its parts and its path are.

Cases are files and folders below the public traces, and below `examples/`. Under
`--update-golden` those that are not kept yet are added.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foretrace as ft
from foretrace.base import ModelError
from tests.conftest import ROOT
from tests.golden_tests.answers import counts, plain
from tests.golden_tests.conftest import PathOf, Tables
from tests.golden_tests.digest import hashed
from tests.golden_tests.table import Table

NAME = "recordings"
FIRST_WORDS = 16
MANY = 24  # numbers; more become a hash


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each recording that is kept; for each that is there, to keep it."""
    if "recording" in metafunc.fixturenames:
        cases = set(Table(NAME).kept())
        if metafunc.config.getoption("--update-golden"):
            cases |= set(_found())
        metafunc.parametrize("recording", sorted(cases))


def _found() -> Iterator[str]:
    data = Path(os.environ.get("FORETRACE_DATA", ROOT.parent / "shared" / "data"))
    for root, title in ((data / "traces", "traces"), (ROOT / "examples", "examples")):
        for path in (root, *root.rglob("*")):
            name = f"{title}/{path.relative_to(root)}"
            if path.is_dir():
                files = [one for one in path.iterdir() if _is_recording(one)]
                if len(files) > 1:
                    yield name
            elif _is_recording(path) and title == "traces":
                yield name


def _is_recording(path: Path) -> bool:
    return path.is_file() and path.name.endswith(("json.gz", "json", "tgz", "tar.gz", "et.gz"))


def test_a_recording_gives_what_it_gave(
    recording: str, table: Tables, recording_path: PathOf
) -> None:
    table(NAME).check(recording, _answered(recording_path(recording)))


def _answered(path: Path) -> dict[str, object]:
    try:
        job = ft.load(path)
    except ModelError as error:
        return _refusal(error)
    try:
        replay = plain(ft.replay(job))
        parts = plain(ft.breakdown(job))["rows"]
        by_class = plain(ft.critical_path(job))["by_class"]
    except ModelError as error:
        return {**counts(job.graph), **_refusal(error)}
    sums: Counter[str] = Counter()
    for row in parts:
        sums.update(row["components"])
    return {
        **counts(job.graph),
        "steps": {
            step["name"]: _short([rank["replayed_ns"] for rank in step["ranks"]])
            for step in replay["steps"]
        },
        "breakdown_ns": dict(sums),
        "critical_path_ns": {row["label"]: row["time_ns"] for row in by_class},
    }


def _refusal(error: ModelError) -> dict[str, object]:
    sentence = re.sub(r"/\S*/", "", str(error))
    return {"refused": " ".join(sentence.split()[:FIRST_WORDS])}


def _short(values: list[Any]) -> object:
    return values if len(values) <= MANY else [*values[:4], f"{len(values)} {hashed(values)}"]
