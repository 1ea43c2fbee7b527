"""The tables themselves: what moves is named, what is meant is listed, nothing is kept unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_tests import estimates, table, test_commands, whatifs
from tests.golden_tests.digest import digest
from tests.golden_tests.table import Change, Table, as_lines, fields, listed_changes

KEPT = {"step_ns": 100, "parts": {"compute": 60, "idle": 40}, "effects": [["layers", 7]]}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of one case, with an empty list of changes."""
    monkeypatch.setattr(table, "FOLDER", tmp_path)
    monkeypatch.setattr(table, "LISTED", tmp_path / "changes.md")
    (tmp_path / "changes.md").touch()
    (tmp_path / "made.json").write_text(as_lines({"one": KEPT}), encoding="utf-8")
    return Table("made")


def told(each: Table, value: object, case: str = "one") -> str:
    with pytest.raises(AssertionError) as error:
        each.check(case, value)
    return str(error.value)


def test_the_same_value_passes(kept: Table) -> None:
    kept.check("one", KEPT)


def test_a_number_that_moved_is_told_with_its_case_and_field(kept: Table) -> None:
    sentence = told(kept, {**KEPT, "parts": {"compute": 61, "idle": 40}})

    assert "made.json, case 'one': 1 fields differ" in sentence
    assert "parts.compute: was 60, is 61" in sentence


def test_keys_that_came_or_went_are_told(kept: Table) -> None:
    sentence = told(kept, {"step_ns": 100, "shares": 3, "effects": [["layers", 7]]})

    assert 'shares: was "absent", is 3' in sentence
    assert 'parts.idle: was 40, is "absent"' in sentence


def test_a_truth_is_no_number_and_a_new_case_is_no_pass(kept: Table) -> None:
    assert "step_ns" in told(kept, {**KEPT, "step_ns": 100.0})
    assert "'two'" in told(kept, KEPT, case="two")


def test_only_what_is_listed_is_written(kept: Table) -> None:
    moved = {**KEPT, "step_ns": 101}
    update = Table("made", is_update=True)

    assert "step_ns: was 100, is 101" in told(update, moved)
    row = "| `made` | `o*` | `step_ns` | a millisecond was missing |\n"
    table.LISTED.write_text(row, encoding="utf-8")
    update.check("one", moved)

    kept.check("one", moved)
    assert "parts" in told(update, {**moved, "parts": 0})


def test_new_cases_are_written_one_a_line(kept: Table) -> None:
    Table("made", is_update=True).check("none", {"step_ns": 1 / 3})

    lines = kept.path.read_text(encoding="utf-8").splitlines()
    assert lines[1] == '"none": {"step_ns":0.333333333},'
    assert len(lines) == 4


def test_a_digest_names_the_column_that_differs() -> None:
    steps = [{"rank": rank, "step_ns": 10 * rank} for rank in range(5)]
    other = [*steps[:4], {"rank": 4, "step_ns": 41}]

    before, after = digest({"steps": steps}), digest({"steps": other})

    assert before["steps[].rank"] == after["steps[].rank"]
    assert str(before["steps[].step_ns"]).startswith("int 5 of 100 [0, 10, 20, ...] ")
    assert str(after["steps[].step_ns"]).startswith("int 5 of 101 [0, 10, 20, ...] ")


def test_listed_changes_speak_of_fields_that_are_kept() -> None:
    for change in listed_changes():
        assert change.reason, change
        names = [change.table] if "*" not in change.table else ["whatifs", "estimates", "commands"]
        assert any(_speaks(change, name) for name in names), f"nothing is called so: {change}"


def _speaks(change: Change, name: str) -> bool:
    return any(change.covers(name, case, field) for case, field in _kept_fields(name))


def _kept_fields(name: str) -> list[tuple[str, str]]:
    return [(case, field) for case, value in Table(name).kept().items() for field in fields(value)]


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("estimates", set(estimates.CASES)),
        ("whatifs", set(whatifs.CASES)),
        (test_commands.NAME, set(test_commands.LINES)),
    ],
)
def test_no_case_is_kept_that_nobody_asks_for(
    name: str, cases: set[str], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden"):
        pytest.skip("tables are being written")

    assert set(Table(name).kept()) == cases
