"""`generate`: an execution trace becomes a benchmark; `package`: benchmarks become one file."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from foretrace.answer import Answer, Column, Json, Table, Told, Unit, count_text, percent_text
from foretrace.base import ScenarioError, TraceError, write_whole, written_beside
from foretrace.bench.assembly import program_of
from foretrace.bench.program import BenchProgram, Mode
from foretrace.bench.text import text_of
from foretrace.bench.timing import NOTHING_MEASURED, measured_of
from foretrace.bench.tree import chosen, tree_of
from foretrace.trace import read_execution_nodes

_RECIPE = "SOURCE = "

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


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What of a trace is replayed."""

    mode: Mode = Mode.FULL
    step: str | None = None  # name or number; the first whole one, if left out
    subgraph: str | None = None  # name that the operators ran inside of
    is_flat: bool = False  # no functions for calls that repeat

    def as_text(self, file: str) -> str:
        """As a benchmark keeps it."""
        return ascii({"file": file, **asdict(self), "mode": self.mode.value})


@dataclass(frozen=True, repr=False)
class Benchmark(Answer):
    """A program that replays a step, and what it covers."""

    text: str
    program: BenchProgram
    recipe: Recipe

    def write(self, path: Path) -> None:
        """Write the program to a file, whole or not at all."""
        write_whole(path, self.text)

    def as_json(self) -> Json:
        """What it covers, as plain values."""
        coverage = self.program.coverage
        return {
            "source": self.program.source,
            "device": self.program.device,
            "mode": self.recipe.mode.value,
            "ranks": self.program.world_size,
            "operators": coverage.num_operators,
            "replayed": coverage.num_replayed,
            "timed": coverage.num_timed,
            "share": coverage.share,
            "time_share": coverage.time_share,
            "calls": len(self.program.calls),
            "lines": self.text.count("\n"),
            "unsupported": self._unsupported().as_json(),
        }

    @property
    def headline(self) -> str:
        """How much of the step it replays."""
        coverage = self.program.coverage
        of_time = coverage.time_share
        time = "" if of_time is None else f", {percent_text(100 * of_time)} of their time"
        return (
            f"{coverage.num_replayed:,} of {count_text(coverage.num_operators, 'operator')} "
            f"({percent_text(100 * coverage.share)}){time}, in "
            f"{count_text(len(self.program.calls), 'call')}; "
            f"{count_text(self.text.count(chr(10)), 'line')} of Python"
        )

    @property
    def note(self) -> str:
        """Of how much times are known, and what to do about what is not replayed."""
        coverage, notes = self.program.coverage, []
        if 0 < coverage.num_timed < coverage.num_operators:
            notes.append(f"times are known of {count_text(coverage.num_timed, 'operator')}")
        if self.program.world_size > 1:
            notes.append(f"recorded in a job of {count_text(self.program.world_size, 'rank')}")
        if coverage.unsupported:
            notes.append("give functions for what is left out under REGISTERED in the program")
        return "; ".join(notes)

    def parts(self) -> tuple[Told, ...]:
        """What is not replayed."""
        return (self._unsupported(),)

    def _unsupported(self) -> Table:
        return Table.of(
            "unsupported",
            self.program.coverage.unsupported,
            Column("operator", "not replayed", Unit.NAME, lambda row: row[0]),
            Column("reason", "why", value=lambda row: row[1]),
            Column("calls", unit=Unit.COUNT, value=lambda row: row[2]),
            Column("duration_ns", "ms", value=lambda row: row[3]),
        )


def generate(path: Path, *, kineto: Path | None = None, recipe: Recipe | None = None) -> Benchmark:
    """The benchmark of a trace.

    Args:
        path: an execution trace.
        kineto: the Kineto trace of the same run: times and streams of operators.
        recipe: what of it to replay; a whole step, if left out.

    Raises:
        TraceError: if a file cannot be read, or holds nothing of what is asked for.
    """
    recipe = recipe or Recipe()
    tree = tree_of(read_execution_nodes(path))
    measured = NOTHING_MEASURED
    if kineto is not None:
        nodes = chosen(tree, step=recipe.step, subgraph=None)
        measured = measured_of(tree, nodes, path=path, kineto=kineto)
    program = program_of(
        tree,
        source=path.name,
        mode=recipe.mode,
        step=recipe.step,
        subgraph=recipe.subgraph,
        measured=measured,
    )
    text = text_of(program, recipe=recipe.as_text(path.name), is_flat=recipe.is_flat)
    return Benchmark(text, program, recipe)


def recipe_in(path: Path) -> Recipe:
    """What a benchmark's program was made with.

    Raises:
        TraceError: if it is no program that `foretrace bench generate` wrote.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    text = next((line[len(_RECIPE) :] for line in lines if line.startswith(_RECIPE)), "")
    try:
        said = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        said = None
    if not isinstance(said, Mapping):
        raise TraceError(
            f"{str(path)!r} is no benchmark: it says nothing of the trace that it replays; "
            "make one with `foretrace bench generate`"
        )
    return Recipe(
        mode=Mode(said["mode"]),
        step=said["step"],
        subgraph=said["subgraph"],
        is_flat=said["is_flat"],
    )


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
