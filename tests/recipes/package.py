"""Copies of the package in which a recipe is followed, and programs run with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import foretrace

COMMAND = ("-c", "from foretrace.cli import main; main()")


def copied(folder: Path) -> Path:
    """A copy of the package in a folder, with all code that is kept beside it."""
    unfinished = shutil.ignore_patterns(".*.tmp", "*.pyc.*")  # by a process beside this one
    return Path(
        shutil.copytree(Path(foretrace.__file__).parent, folder / "foretrace", ignore=unfinished)
    )


def tried(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A fresh Python that finds the package in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment | {"FORETRACE_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )


def printed(folder: Path, *arguments: object) -> str:
    """What such a Python prints, if it ends well."""
    done = tried(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
