"""Files of settings: which one wins, what they fill, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.commands import command_tree


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, and a user's folder, both without a file of settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    (tmp_path / "user" / "foretrace").mkdir(parents=True)
    return tmp_path


def shown(run: Run) -> dict[str, tuple[str, str]]:
    found = json.loads(run("config", "show", "--json").out)
    return {row["key"]: (row["value"], row["origin"]) for row in found["rows"]}


def test_option_then_environment_then_project_then_user(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("estimate", "--machine", "dgx-h100", "--gpus", 8, "--global-batch", 8, "--json")
    models = []
    user = here / "user" / "foretrace" / "config.toml"

    user.write_text('model = "llama2-7b"\n', encoding="utf-8")
    models.append(json.loads(run(*line).out)["model"])
    assert shown(run)["model"] == ("llama2-7b", str(user))
    (here / "foretrace.toml").write_text('model = "llama3-8b"\n', encoding="utf-8")
    models.append(json.loads(run(*line).out)["model"])
    assert shown(run)["model"] == ("llama3-8b", "foretrace.toml")
    monkeypatch.setenv("FORETRACE_MODEL", "mistral-7b")
    models.append(json.loads(run(*line).out)["model"])
    assert shown(run)["model"] == ("mistral-7b", "FORETRACE_MODEL")
    models.append(json.loads(run(*line, "--model", "qwen3-8b").out)["model"])

    assert models == ["llama2-7b", "llama3-8b", "mistral-7b", "qwen3-8b"]


def test_a_commands_table_holds_its_options_and_data_its_paths(
    run: Run, here: Path, traces: Path
) -> None:
    text = f'data = "{traces.as_posix()}"\n[breakdown]\nreplayed = true\ntop = 1\n'
    (here / "foretrace.toml").write_text(text, encoding="utf-8")

    done = run("breakdown")

    assert done.code == 0, done.err
    assert done.out == run("breakdown", traces, "--replayed", "--top", 1).out
    assert "measured" in run("breakdown", "--measured").out.splitlines()[0]
    assert shown(run)["breakdown.top"] == ("1", "foretrace.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('machin = "dgx-h100"\n', "did you mean 'machine'?"),
        ("[estimate]\ngpu = 8\n", "did you mean 'gpus'?"),
        ("machine = \n", "cannot be read"),
    ],
)
def test_what_no_file_may_say_is_a_sentence(run: Run, here: Path, text: str, says: str) -> None:
    (here / "foretrace.toml").write_text(text, encoding="utf-8")

    done = run("estimate")

    assert done.code == 1
    assert says in done.err


def test_where_to_write_has_the_same_names_everywhere() -> None:
    from typer.main import get_command

    from foretrace.cli.app import app

    top: Any = get_command(app)
    wrong = []
    for one in command_tree():
        command = top
        for name in one.path:
            command = command.loaded(name) if hasattr(command, "loaded") else command.commands[name]
        for parameter in command.params:
            names = {"--out", "--output", "-o"}
            if names & set(parameter.opts) and not names <= set(parameter.opts):
                wrong.append(f"{one.title} {parameter.opts}")
    assert wrong == []
