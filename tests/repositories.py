"""Files of public projects, where their repositories lie.

`FORETRACE_REPOSITORIES` names a folder that holds them as `OWNER+NAME/repo`, bare or not; without
it the tests of them are skipped. Nothing of those projects is kept here.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def repository(name: str) -> Path:
    folder = os.environ.get("FORETRACE_REPOSITORIES")
    if not folder or not (Path(folder) / name / "repo").exists():
        pytest.skip(f"no repository {name}: set FORETRACE_REPOSITORIES to the folder that holds it")
    return Path(folder) / name / "repo"


def shown_bytes(name: str, path: str) -> bytes:
    """A file of a repository's newest commit, or `COMMIT:PATH` of another."""
    command = ["git", "-C", str(repository(name)), "show", path if ":" in path else f"HEAD:{path}"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def shown(name: str, path: str) -> str:
    return shown_bytes(name, path).decode()
