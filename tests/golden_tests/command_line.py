"""Command lines in this process, and what they print without the places that they were run in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import foretrace
from foretrace.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command line left behind, folders written as `<name>`."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


def outcome_of(
    arguments: tuple[object, ...], capture: pytest.CaptureFixture[str], places: Mapping[str, Path]
) -> Outcome:
    """Run a command line; `places` are the folders whose names are no part of the answer."""
    capture.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    captured = capture.readouterr()
    code = end.value.code
    out, err = (_without(text, places) for text in (captured.out, captured.err))
    return Outcome(code if isinstance(code, int) else 0, out, err)


def _without(text: str, places: Mapping[str, Path]) -> str:
    by_path = {str(path): name for name, path in places.items()}
    by_path |= {os.path.relpath(path): name for path, name in by_path.items()}
    for path in sorted(by_path, key=len, reverse=True):
        if len(path) > len(".."):
            text = text.replace(path, f"<{by_path[path]}>")
    return text.replace(foretrace.__version__, "<version>")
