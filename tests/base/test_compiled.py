"""Compiled loops where machine code can be kept nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
