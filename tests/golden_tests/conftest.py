"""Where this folder's tests run: one cache for all, and tables that can be rewritten."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden_tests.command_line import Run, outcome_of
from tests.golden_tests.table import Table
from tests.truth import JobConfig, make_job, write

Tables = Callable[[str], Table]
PathOf = Callable[[str], Path]

# Generated: public traces and examples hold no pipeline.
MADE = {
    "two-stages": JobConfig(pp=2, dp=2, num_layers=4, num_microbatches=4),
    "tensor": JobConfig(tp=2, dp=2, num_layers=4),
    "buckets": JobConfig(dp=4, num_layers=4),
}


@pytest.fixture(autouse=True, scope="session")
def _one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is read is read once; it is not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETRACE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("COLUMNS", "80")
        patch.delenv("FORCE_COLOR", raising=False)
        yield


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Tables:
    """A table of `tests/golden/` by name."""
    is_update = request.config.getoption("--update-golden")
    return lambda name: Table(name, is_update=is_update)


@pytest.fixture
def examples(repository: Path) -> Path:
    """The bundled recordings."""
    return repository / "examples"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated recordings, a folder each."""
    root = tmp_path_factory.mktemp("made")
    for name, config in MADE.items():
        folder = root / name
        folder.mkdir()
        write(make_job(config), folder)
    return root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, examples: Path, made: Path) -> Run:
    """Run a command line; the folders of its inputs and outputs are taken out of what it says."""
    data = Path(os.environ.get("FORETRACE_DATA", "../shared/data")).resolve()
    places = {"out": tmp_path, "examples": examples, "made": made, "data": data}
    return lambda *arguments: outcome_of(arguments, capsys, places)


@pytest.fixture
def recording_path(request: pytest.FixtureRequest, examples: Path, made: Path) -> PathOf:
    """The path of `examples/...`, `made/...` or `traces/...`; public traces may be absent."""

    def found(name: str) -> Path:
        root, _, rest = name.partition("/")
        if root == "traces":
            data: Path = request.getfixturevalue("data_dir")
            return data / root / rest
        return {"examples": examples, "made": made}[root] / rest

    return found
