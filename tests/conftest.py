"""Fixtures that every test may use, and which tests exercise compiled loops."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from tests import schemas

ROOT = Path(__file__).parent.parent
COLLECT_EVERY = 50_000  # new objects; few of a test are circles

# Workers share the cores, and PyTorch's threads would wait for each other by turning in circles.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A first example may pay for a compilation, so one example's time says nothing.
# A merge is judged by the same examples every time; at a desk, new ones look for new faults.
settings.register_profile("foretrace", deadline=None)
settings.register_profile("merge", deadline=None, derandomize=True)
settings.load_profile("merge" if os.environ.get("CI") else "foretrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` accepts what is produced now; review the files' diff."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*.json")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under `-m compiled`, load no test file whose text names neither an oracle nor the mark."""
    if config.option.markexpr != "compiled" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return None if "oracles" in text or "mark.compiled" in text else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `compiled` every test in a file that imports an oracle of a compiled loop.

    Not those that are marked `large`.
    """
    for item in items:
        module = getattr(item, "module", None)
        is_large = item.get_closest_marker("large") is not None
        if module is not None and not is_large and _uses_oracle(module):
            item.add_marker("compiled")


def pytest_collection_finish() -> None:
    """What was collected lives until the end: no search for garbage looks at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])


def _uses_oracle(module: ModuleType) -> bool:
    for value in vars(module).values():
        home = value.__name__ if isinstance(value, ModuleType) else _home(value)
        if home.startswith("tests.oracles"):
            return True
    return False


def _home(value: object) -> str:
    home = getattr(value, "__module__", None)
    return home if isinstance(home, str) else ""


class Golden:
    """Values that were reviewed and are kept in `tests/golden`."""

    def __init__(self, *, is_update: bool) -> None:
        self._is_update = is_update

    def check(self, name: str, value: object) -> None:
        """Compare a JSON value with the kept one, or keep it under `--update-golden`."""
        path = ROOT / "tests" / "golden" / f"{name}.json"
        if self._is_update:
            path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        assert value == json.loads(path.read_text(encoding="utf-8")), (
            f"{path.name} differs: if that is meant, run pytest --update-golden and review it"
        )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Comparison with reviewed values."""
    return Golden(is_update=request.config.getoption("--update-golden"))


KeepsSchema = Callable[[str, dict[str, Any]], None]


@pytest.fixture
def keeps_schema(request: pytest.FixtureRequest) -> KeepsSchema:
    """Holds what a command printed under `--json` against its schema."""
    return partial(schemas.check, is_update=request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public traces and measurements; the test is skipped where it is absent.

    `FORETRACE_DATA` names it; without the variable it is looked for beside the repository.
    """
    folder = Path(os.environ.get("FORETRACE_DATA", "../shared/data"))
    folder = folder if folder.is_absolute() else (ROOT / folder).resolve()
    if not folder.is_dir():
        pytest.skip(f"no folder of public traces at {folder}: set FORETRACE_DATA to it")
    return folder
