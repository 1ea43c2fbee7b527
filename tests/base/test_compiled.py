"""Compiled loops where machine code can be kept nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
from foretrace.cli.app import main
from foretrace.graph._compiled import *
main(["--version"])
"""
# Of numba's places only the one that NUMBA_CACHE_DIR names, and none is named: what a process sees
# that may write neither to its install nor to its home.
NOWHERE = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}


def test_a_process_that_can_keep_no_machine_code_runs() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, **NOWHERE},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("foretrace ")


KEPT = """
import sys
import numpy as np
from foretrace.graph._compiled import counted_order, last_not_after
order = np.empty(3, np.int64)
counted_order(np.array([1, 0, 1]), np.array([0, 1, 3]), order)
print(*order, last_not_after(np.array([2, 4, 6]), 0, 3, 5), "numba.np.linalg" in sys.modules)
"""


def printed_with_code_kept_in(folder: Path) -> list[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", KEPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_kept_code_runs_without_the_compiler_and_beside_code_that_is_not_kept(
    tmp_path: Path,
) -> None:
    compiled = printed_with_code_kept_in(tmp_path)
    kept = printed_with_code_kept_in(tmp_path)
    for index in tmp_path.rglob("_compiled.last_not_after*.nbi"):
        index.unlink()
    half = printed_with_code_kept_in(tmp_path)

    assert compiled[:-1] == kept[:-1] == half[:-1]
    assert [each[-1] for each in (compiled, kept, half)] == ["True", "False", "True"]


def test_kept_code_is_made_anew_after_a_change_of_a_file_it_takes_functions_from(
    tmp_path: Path,
) -> None:
    inner, outer = (tmp_path / "apart" / name / "_compiled.py" for name in ("inner", "outer"))
    for path in (inner, outer):
        path.parent.mkdir(parents=True)
    head = "from foretrace.base import njit\n"
    outer.write_text(
        f"{head}from foretrace.apart.inner._compiled import one\n\n"
        "@njit(cache=True)\ndef twice(x):\n    return 2 * one() * x\n"
    )
    program = (
        "import foretrace\n"
        f"foretrace.__path__.append({str(tmp_path)!r})\n"
        "from foretrace.apart.outer._compiled import twice\n"
        "print(twice(1), len(twice.stats.cache_hits))\n"
    )

    said = []
    for value in (1, 1, 7):
        text = f"{head}\n@njit(cache=True)\ndef one():\n    return {value}\n"
        if not inner.exists() or inner.read_text() != text:
            inner.write_text(text)
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said.append(done.stdout.split())

    assert said == [["2", "0"], ["2", "1"], ["14", "0"]]


@pytest.mark.parametrize("damage", [lambda whole: whole[:-40], lambda whole: b"nothing" + whole])
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_kept_code_that_cannot_be_read_is_made_anew(
    tmp_path: Path, damage: Callable[[bytes], bytes], ending: str
) -> None:
    compiled = printed_with_code_kept_in(tmp_path)
    [*kept] = tmp_path.rglob(f"_compiled.last_not_after*.{ending}")
    for path in kept:
        path.write_bytes(damage(path.read_bytes()))
    anew = printed_with_code_kept_in(tmp_path)
    again = printed_with_code_kept_in(tmp_path)

    assert kept
    assert compiled[:-1] == anew[:-1] == again[:-1]
    assert again[-1] == "False"
