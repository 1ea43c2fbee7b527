"""The recipe of CONTRIBUTING.md for a format: a file with two functions, and a line."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import foretrace as ft
from foretrace.trace import PROFILES, TraceFormat, formats, known_formats

READER = '''
"""A format for the test: one line per operator, `name start_micros duration_micros`."""

import json
from pathlib import Path

from foretrace.trace.read import trace_of
from foretrace.trace.source import OpenFile

MARK = b"#lines 1"


def recognises(head: bytes) -> bool:
    return head.startswith(MARK)


def read(path: Path):
    events = []
    for line in path.read_text().splitlines()[1:]:
        name, start, duration = line.split()
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1,
             "ts": int(start), "dur": int(duration)}
        )
    text = json.dumps({"traceEvents": events}).encode()
    return trace_of(OpenFile(path, path.stat().st_size, len(text), iter([text])))
'''


def lines_format(folder: Path) -> ModuleType:
    """The recipe's one new file, imported."""
    path = folder / "operator_lines.py"
    path.write_text(READER)
    spec = importlib.util.spec_from_file_location("operator_lines", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def test_a_new_format_is_one_file_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_format(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    (run / "rank0.lines").write_text("#lines 1\nload 0 10\nadd 10 30\n")
    (run / "notes.json").write_text("{}")

    monkeypatch.setattr(
        formats,
        "PROFILES",
        (*PROFILES, TraceFormat("file of lines", lines.recognises, lines.read, (".lines",))),
    )
    job = ft.load(run, cache=tmp_path / "cache")
    again = ft.load(run / "rank0.lines", cache=tmp_path / "cache")

    assert job.measured.end_ns.max() - job.measured.start_ns.min() == 40_000
    assert again.graph.num_nodes == job.graph.num_nodes
    assert any("1 other JSON file" in finding.text for finding in job.findings)
    assert ft.inspect(run / "rank0.lines").files[0].num_events == 2


def test_every_format_has_a_name_of_its_own() -> None:
    names = [one.name for one in known_formats()]

    assert len(set(names)) == len(names) > 5
