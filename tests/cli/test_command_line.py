from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import typer

import foretrace
from foretrace.cli.settings import cache_folder
from foretrace.cli.source import parsed_ranks
from tests.cli.conftest import Run
from tests.commands import command_tree
from tests.conftest import Golden


def test_commands_and_options_are_the_reviewed_ones(golden: Golden) -> None:
    tree = [
        {
            "title": command.title,
            "help": command.help,
            "options": list(map(asdict, command.options)),
        }
        for command in command_tree()
    ]

    golden.check("command_line", tree)


def test_version_is_printed(run: Run) -> None:
    outcome = run("--version")

    assert outcome.code == 0
    assert outcome.out == f"foretrace {foretrace.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_names_the_commands(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)

    assert outcome.code == 0
    assert "replay" in outcome.out
    assert "inspect" in outcome.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("replay",),
        ("replay", "x", "--nonsense"),
        ("replay", "x", "--without", "gravity"),
        ("replay", "x", "--ranks", "0,x"),
        ("replay", "x", "--ranks", "5-3"),
        ("replay", "x", "--workers", "0"),
    ],
)
def test_wrong_command_lines_end_with_two(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)

    assert outcome.code == 2
    assert outcome.out == ""
    assert "Traceback" not in outcome.err


def test_unknown_class_of_dependency_lists_the_known_ones(run: Run) -> None:
    outcome = run("replay", "x", "--without", "gravity")

    for known in ("device", "rendezvous", "inter-stream"):
        assert known in outcome.err


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (None, None),
        ("0", (0,)),
        ("3-5", (3, 4, 5)),
        ("5,0-2,1", (0, 1, 2, 5)),
        ("7 , 9-9", (7, 9)),
    ],
)
def test_ranks_are_listed_once_and_rising(text: str | None, ranks: tuple[int, ...] | None) -> None:
    assert parsed_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "4-2", "1..3"])
def test_other_texts_are_no_ranks(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parsed_ranks(text)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORETRACE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/foretrace")

    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    assert cache_folder() == Path("/var/caches/foretrace")

    monkeypatch.setenv("FORETRACE_CACHE", "/fast/disk")
    assert cache_folder() == Path("/fast/disk")
