"""Commands are listed without being loaded, and load what they use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

CODE = """
import sys
from foretrace.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
print(*sorted(sys.modules), file=sys.stderr)
"""


def loaded_by(*arguments: str) -> set[str]:
    """Modules that a fresh process has loaded when the command line is done."""
    command = [sys.executable, "-c", CODE.format(arguments=arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_no_command(option: str) -> None:
    loaded = loaded_by(option)

    assert not {"numpy", "numba", "polars", "rich.table"} & loaded
    assert "foretrace.cli.replay" not in loaded


def test_a_replay_loads_neither_edits_nor_estimates() -> None:
    loaded = loaded_by("replay", "--help")

    assert "foretrace.cli.replay" in loaded
    assert not [
        name for name in loaded if name.startswith(("foretrace.whatif.", "foretrace.cost."))
    ]


def test_analyze_loads_nothing_that_lays_models_out(repository: Path) -> None:
    loaded = loaded_by("analyze", str(repository / "examples" / "planted" / "nothing"))

    folders = ("layout", "footprint", "blocks.transformer")
    unused = (*(f"foretrace.workload.{one}" for one in folders), "foretrace.estimate.step_time")
    assert "foretrace.whatif.remedies" in loaded
    assert not [name for name in loaded if name.startswith(unused)]


def test_a_misspelt_command_is_met_with_the_near_one(run: Run) -> None:
    found = run("breakdwn")

    assert found.code == 2
    assert "Did you mean 'breakdown'?" in found.err


def test_what_commands_are_for_is_told_whole(run: Run) -> None:
    told = run("--help").out

    assert "..." not in told.partition("Commands:")[2]
    assert "what they lack, and how to" in told
    assert max(map(len, told.splitlines())) <= 80
