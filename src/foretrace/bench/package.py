"""`package`: benchmarks of one or several ranks, or a model's own step, in one file to run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from foretrace.base import ScenarioError, written_beside
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
    members = {"__main__.py": _MAIN.format(count=len(programs)).encode()}
    for rank, path in enumerate(programs):
        recipe_in(path)
        members[f"rank{rank}.py"] = path.read_bytes()
    _write(members, out)


def package_model(entry: str, out: Path, *, own: Sequence[str] = ()) -> None:
    """Write a model's own code, by `torch.package`, as one file that `python FILE` runs.

    Args:
        entry: "MODULE:FUNCTION"; the function returns what runs a step. Imported from the current
            folder.
        out: the file to write, by custom "*.pyz".
        own: names of modules and packages that are packed beside MODULE's; all others must be
            installed where it runs.

    Raises:
        ScenarioError: if the entry is none, or its module cannot be packed.
    """
    module, _, function = entry.partition(":")
    if not module or not function.isidentifier():
        raise ScenarioError(
            f"the model's entry is {entry!r}, where MODULE:FUNCTION is expected, a function that "
            "returns what runs one step"
        )
    with tempfile.TemporaryDirectory(prefix="foretrace-model-") as folder:
        packed = Path(folder) / "model.pt"
        names = dict.fromkeys((module.partition(".")[0], *own))
        command = [sys.executable, "-c", _text("model_packer.txt"), module, str(packed), *names]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  the user's own module
        if ran.returncode != 0:
            said = (ran.stderr.strip().splitlines() or ["nothing"])[-1]
            raise ScenarioError(
                f"the module {module!r} could not be packed: {said!r}; name other modules of your "
                "own with --own"
            )
        main = _text("model_main.txt").replace("{module}", module).replace("{function}", function)
        _write({"__main__.py": main.encode(), "model.pt": packed.read_bytes()}, out)


def _text(name: str) -> str:
    return files("foretrace.bench").joinpath(name).read_text(encoding="utf-8")


def _write(members: Mapping[str, bytes], out: Path) -> None:
    with written_beside(out) as beside, beside.open("wb") as file:
        file.write(_BEGIN)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                info = zipfile.ZipInfo(name, _LONG_AGO)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, content)
