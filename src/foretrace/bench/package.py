"""`package`: benchmarks of one or several ranks in one file that Python runs."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from foretrace.base import written_beside
from foretrace.bench.recipe import recipe_in

# What the file runs: the program of its rank; ranks beyond the last take turns from the first.
_MAIN = '''"""Runs the benchmark of this rank."""

import os
import runpy
import sys

COUNT = {count}

rank = int(os.environ.get("RANK", "0"))
for option, value in zip(sys.argv, sys.argv[1:]):
    if option == "--rank":
        rank = int(value)
runpy.run_module(f"rank{{rank % COUNT}}", run_name="__main__", alter_sys=True)
'''
_BEGIN = b"#!/usr/bin/env python3\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first date a zip file can hold: equal inputs, equal files


def package(programs: Sequence[Path], out: Path) -> None:
    """Write programs as one file that `python FILE` runs; it needs PyTorch alone.

    Args:
        programs: what `generate` wrote, one for all ranks, or one per rank.
        out: the file to write, by custom "*.pyz".

    Raises:
        TraceError: if one of them is no benchmark.
    """
    if not programs:
        raise ValueError("package needs at least one program")
    members = {"__main__.py": _MAIN.format(count=len(programs))}
    for rank, path in enumerate(programs):
        recipe_in(path)
        members[f"rank{rank}.py"] = path.read_text(encoding="utf-8")
    with written_beside(out) as beside, beside.open("wb") as file:
        file.write(_BEGIN)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in members.items():
                info = zipfile.ZipInfo(name, _LONG_AGO)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, text)
