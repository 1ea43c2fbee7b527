"""One hostile command line, run in this process: what it left that no command may leave.

That is an exception other than a sentence, more than `CPU_SECONDS` of work, memory beyond
`MOST_BYTES`, JSON that is none, control characters on a terminal, a page with foreign markup, files
of a command that failed, or a changed input.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import resource
import shlex
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from foretrace.cli.app import app
from foretrace.cli.errors import errors_as_sentences
from tests.fuzz.changes import INJECTED, Change, as_bytes, changed
from tests.fuzz.inputs import inputs

CPU_SECONDS = 40
MOST_BYTES = 1_500_000_000  # of address space beyond what the process has, some of it never touched
_CONTROLS = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0))} - {"\n", "\t"}


@dataclass(frozen=True)
class Case:
    """A change of an input's first file, and a line that reads it."""

    of: str  # name of the input
    changes: list[Change]
    words: list[str]

    def as_json(self) -> dict[str, Any]:
        """As `corpus/` keeps it."""
        return {"of": self.of, "changes": self.changes, "words": self.words}


@dataclass(frozen=True)
class Fault:
    """What a case left that it may not leave."""

    kind: str  # "exception", "time", "memory", "json", "controls", "markup", "leftover", "input"
    where: str  # file and line of ours that is nearest, or the command
    text: str


class TooLongError(BaseException):
    """Raised where a command has worked too long."""


def files_of(case: Case, folder: Path) -> Path:
    """Write the input of a case; returns the changed file."""
    files = _files(case.of, json.dumps(case.changes))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / next(iter(files), "")


@lru_cache(1)  # several lines read one input
def _files(of: str, changes: str) -> Mapping[str, bytes]:
    files = dict(inputs()[of].files)
    first = next(iter(files), "")
    if first:
        files[first] = changed(files[first], json.loads(changes))
    return {name: _written(name, content) for name, content in files.items()}


def _written(name: str, content: Any) -> bytes:
    if name.endswith(".pickle") and not isinstance(content, bytes | str):
        return pickle.dumps(content)
    if name.endswith(".parquet") and isinstance(content, str):
        return _parquet(content)
    return as_bytes(content)


def _parquet(table: str) -> bytes:
    import polars as pl

    out = io.BytesIO()
    try:
        pl.read_csv(io.StringIO(table), ignore_errors=True).write_parquet(out)
    except Exception:  # noqa: BLE001  a table that polars cannot read is written as it stands
        return table.encode("utf-8", "surrogatepass")
    return out.getvalue()


@cache
def _command() -> Any:
    """The program, each command loaded once."""
    from typer.main import get_command

    command: Any = get_command(app)
    command.loaded = cache(command.loaded)
    return command


def tried(case: Case, *, good: Path, folder: Path) -> Fault | None:
    """Run a case in an empty folder; what it may not leave, if it left something.

    Args:
        case: to run.
        good: a folder with a recording that is as it should be.
        folder: to write inputs and outputs to.
    """
    source, out = folder / "in", folder / "out"
    for each in (source, out):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    file = files_of(case, source)
    before = _contents(source)
    places = {"in": str(source), "file": str(file), "out": str(out), "good": str(good)}
    words = [_placed(word, places) for word in case.words]
    told, said = io.StringIO(), io.StringIO()
    code: object = 0
    try:
        with (
            _limited(),
            _inside(out),
            contextlib.redirect_stdout(told),
            contextlib.redirect_stderr(said),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            try:
                with errors_as_sentences():
                    _command()(args=words, prog_name="foretrace")
            except SystemExit as end:
                code = end.code
    except TooLongError as err:
        return Fault("time", _where(err), f"more than {CPU_SECONDS} s")
    except MemoryError as err:
        return Fault("memory", _where(err), _text(err))
    except Exception as err:  # noqa: BLE001  whatever it is, it is what we look for
        kind = "memory" if "alloc" in str(err).lower() else "exception"
        return Fault(kind, _where(err), _text(err))
    if _contents(source) != before:
        return Fault("input", words[0], "the input was changed")
    return _fault_of(words, code, told.getvalue(), said.getvalue(), out)


def _fault_of(words: list[str], code: object, told: str, said: str, out: Path) -> Fault | None:
    name = " ".join(words[:2]) if words[0] in ("risk", "bench", "validate") else words[0]
    made = [path for path in out.rglob("*") if path.is_file()]
    drawn = [path for path in made if path.suffix in (".html", ".svg", ".dot")]
    found: dict[str, str] = {}
    if code not in (0, 1, 2, 3):
        found["exception"] = f"exit code {code}: {said[-300:]}"
    elif _CONTROLS & set(told + said):
        found["controls"] = repr(sorted(_CONTROLS & set(told + said)))
    elif "not enough memory" in said:
        found["memory"] = said[-300:]
    elif code == 0 and "--json" in words:
        found["json"] = _no_json(told)
    elif code in (1, 2) and made and "do not publish" not in said:  # whole, and a warning
        found["leftover"] = f"exit code {code} with {made[0].name}: {said[-300:]}"
    found["markup"] = "".join(map(_foreign, drawn))
    return next((Fault(kind, name, text) for kind, text in found.items() if text), None)


def _no_json(told: str) -> str:
    try:
        json.loads(told, parse_constant=_refused)
    except ValueError as err:
        return str(err)
    return ""


def _foreign(path: Path) -> str:
    """What of an input stands in a page or drawing as it was."""
    content = path.read_bytes().decode("utf-8", "strict")
    if INJECTED in content:
        return content[content.index(INJECTED) - 60 :][:160]
    return repr(sorted(_CONTROLS & set(content))) if _CONTROLS & set(content) else ""


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _placed(word: str, places: Mapping[str, str]) -> str:
    for name, place in places.items():
        word = word.replace(f"{{{name}}}", place)
    return word


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Work and memory that a command may take at most."""

    def over(*_: object) -> None:
        raise TooLongError

    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (held + MOST_BYTES, most))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def _where(err: BaseException) -> str:
    """The innermost line of ours."""
    ours = [
        frame
        for frame in traceback.extract_tb(err.__traceback__)
        if "/foretrace/" in frame.filename
    ]
    if not ours:
        return "outside"
    return f"{ours[-1].filename.split('/foretrace/')[-1]}:{ours[-1].lineno}"


def _text(err: BaseException) -> str:
    return f"{type(err).__name__}: {str(err)[:300]}"


def line(text: str) -> list[str]:
    """The words of a line."""
    return shlex.split(text)


@contextlib.contextmanager
def good_recording() -> Iterator[Path]:
    """A folder with a recording as it should be, and a cache of its own."""
    before = os.environ.get("FORETRACE_CACHE")
    try:
        with _recorded() as good:
            yield good
    finally:
        os.environ.pop("FORETRACE_CACHE")
        if before is not None:
            os.environ["FORETRACE_CACHE"] = before


@contextlib.contextmanager
def _recorded() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="foretrace-fuzz-") as name:
        good = Path(name) / "good"
        good.mkdir()
        os.environ["FORETRACE_CACHE"] = str(Path(name) / "cache")
        for path, content in inputs()["one rank"].files.items():
            (good / path).write_bytes(as_bytes(content))
        yield good
