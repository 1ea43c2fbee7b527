"""Completion as a shell asks for it: the script, where it is put, and what it completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def foretrace(home: Path, *words: str, **variables: str) -> str:
    """What the program prints for a user with this home."""
    found = subprocess.run(
        [sys.executable, "-m", "foretrace", *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(home), "SHELL": "/bin/bash", **variables},
    )
    assert "Traceback" not in found.stderr, found.stderr
    return found.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_shown(tmp_path: Path, shell: str) -> None:
    script = foretrace(tmp_path, "--show-completion", shell)

    assert "foretrace" in script
    assert "_FORETRACE_COMPLETE" in script


def test_the_script_is_put_into_the_users_home(tmp_path: Path) -> None:
    told = foretrace(tmp_path, "--install-completion", "bash")

    script = tmp_path / ".bash_completions" / "foretrace.sh"
    assert str(script) in told
    assert "_FORETRACE_COMPLETE" in script.read_text(encoding="utf-8")
    assert str(script) in (tmp_path / ".bashrc").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("typed", "wanted"), [("foretrace ana", "analyze"), ("foretrace whatif --lay", "--layers")]
)
def test_commands_and_options_are_completed(tmp_path: Path, typed: str, wanted: str) -> None:
    found = foretrace(
        tmp_path,
        _FORETRACE_COMPLETE="complete_bash",
        COMP_WORDS=typed,
        COMP_CWORD=str(len(typed.split()) - 1),
    )

    assert wanted in found.split()
