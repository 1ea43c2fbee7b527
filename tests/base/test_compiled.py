"""Compiled loops where machine code can be kept nowhere."""

from __future__ import annotations

import os
import subprocess
import sys

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
