"""The page on plans: its keys and presets are all there, its files and its Python are right."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from foretrace.workload import (
    SCHEDULES,
    Adapters,
    Completions,
    Group,
    Plan,
    PlanDraft,
    Schedule,
    TableSharding,
    completions,
    load_model,
    load_plan,
    plan_names,
    plan_table,
    schedule_of,
)
from foretrace.workload.plan.keys import KEYS
from tests.pages import check_made, table

PAGE = Path(__file__).parents[3] / "docs" / "plans.md"


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def meanings() -> dict[str, str]:
    """What the page says of each key; that column alone is written by hand."""
    found = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| .* \| .* \| (.*) \|$", page(), re.MULTILINE)
    return dict(found)


def tried() -> set[str]:
    """Keys that are tried over their legal values if a plan leaves them open."""
    stated = {"tp": 2, "pp": 2, "global_batch": 64}
    models = [load_model(name) for name in ("llama3-8b", "mixtral-8x7b")]
    found = [completions(PlanDraft().with_keys(stated), model, 16) for model in models]
    bare = PlanDraft().with_keys({"global_batch": 64})
    found.append(completions(bare, models[1], 16, domain=8))
    return {each.key for one in found for each in one.assumptions}


def keys() -> str:
    defaults = plan_table(Plan(tables=TableSharding(), adapters=Adapters()))
    others = dict.fromkeys(tried(), "see above")
    others |= {"batch.global_batch": "is asked for", "parallelism.dp": "what the ranks leave, or 1"}
    rows = []
    for key in KEYS:
        default = others.get(key.path) or defaults.get(key.table, {}).get(key.name, "")
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        rows.append([f"`{key.path}`", key.words, shown, meanings().get(key.path, "")])
    return table(["key", "holds", "unless stated", "meaning"], rows)


def presets() -> str:
    rows = [[f"`{name}`", load_plan(name).title] for name in plan_names()]
    return table(["plan", "what it is"], rows)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page(), re.DOTALL)


@pytest.mark.parametrize("build", [keys, presets])
def test_the_tables_of_the_page_are_what_the_program_has(
    request: pytest.FixtureRequest, build: Callable[[], str]
) -> None:
    check_made(PAGE, build, request)


def test_every_key_has_a_meaning() -> None:
    assert [key.path for key in KEYS if not meanings().get(key.path, "").strip()] == []


def test_the_page_explains_every_schedule_and_every_group() -> None:
    named = set(re.findall(r"`([^`\n]+)`", page()))

    assert {*SCHEDULES} <= named
    assert {group.value for group in Group} - {"all"} <= named


def test_the_keys_that_are_tried_are_those_that_the_program_tries() -> None:
    section = page().split("## What is left open")[1].split("## Keys")[0]
    said = {key for line in section.splitlines() for key in re.findall(r"`(\w+\.\w+)`", line)}

    assert said == tried()


def test_the_plan_of_the_page_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(blocks("toml")[0])

    found = completions(load_plan(path), load_model("llama3-70b"))

    assert found.plan.num_ranks == 512
    assert found.plan.num_chunks == 2


def test_the_schedule_of_the_page_runs(tmp_path: Path) -> None:
    _, text = blocks("toml")
    path = tmp_path / "mine.toml"
    path.write_text(text)

    schedule = schedule_of(Plan(pipeline=2, global_batch=2, schedule=str(path)))

    assert schedule.num_stages == len(tomllib.loads(text)["stages"])


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python")

    names: dict[str, object] = {}
    exec(example, names)  # noqa: S102  the example is ours

    found, schedule = names["found"], names["schedule"]
    assert isinstance(found, Completions)
    assert isinstance(schedule, Schedule)
    assert schedule.num_stages == 4
    printed = capsys.readouterr().out
    assert [each.key for each in found.assumptions if each.key not in printed] == []
