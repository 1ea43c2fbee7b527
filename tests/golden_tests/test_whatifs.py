"""What-ifs: the way, the step before and after, its interval, every effect; or the refusal."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.golden_tests.command_line import Run
from tests.golden_tests.conftest import PathOf, Tables
from tests.golden_tests.digest import hashes
from tests.golden_tests.whatifs import CASES, Case

NAME = "whatifs"
TOLD = ("method", "measured_ns", "replayed_ns", "step_ns", "low_ns", "high_ns", "sources", "notes")


@pytest.mark.parametrize("case", CASES, ids=list(CASES))
def test_a_whatif_is_what_it_was(
    case: str, table: Tables, run: Run, recording_path: PathOf
) -> None:
    table(NAME).check(case, _answered(CASES[case], run, recording_path))


def _answered(case: Case, run: Run, recording_path: PathOf) -> dict[str, object]:
    path = recording_path(case.recording)
    outcome = run("whatif", path, *shlex.split(case.line), "--json")
    if outcome.code:
        return {"refused": outcome.err.strip()}
    found = json.loads(outcome.out)
    return {
        **{key: found[key] for key in TOLD},
        "effects": [[one["sentence"], one["step_ns"]] for one in found["effects"]],
        "components_ns": _components(found["difference"]),
        "memory_bytes": found["memory"] and found["memory"]["change_bytes"],
        "rest": hashes(found, without=TOLD),
    }


def _components(difference: object) -> object:
    if not isinstance(difference, dict):
        return None
    rows = difference["views"]["component"]["rows"]
    return {row["label"]: row["difference_ns"] for row in rows}
