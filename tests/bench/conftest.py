"""Small recordings of PyTorch, made once, and benchmarks of them run in this process."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from foretrace.bench import BenchCheck, compared
from tests import ranks

ALONE = ("perceptron", "transformer", "recommender", "residual")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with the traces of every small workload, by its name."""
    torch = pytest.importorskip("torch")
    from tests.bench.workloads import SMALL, main, record  # needs PyTorch

    names = (*ALONE, "distributed")
    folders = {name: tmp_path_factory.mktemp(name) for name in names}
    with ranks.running(main, "distributed", "record-small", str(folders["distributed"]), 2):
        torch.manual_seed(0)
        for name in ALONE:
            record(SMALL[name](), folders[name])
    return folders


def step_here(program: Path, *, traced: Path | None = None) -> None:
    """Run a benchmark's step in this process, and again into a trace."""
    import torch

    inside = SimpleNamespace(**runpy.run_path(str(program)))
    with torch.no_grad():
        x = inside.given(inside.Maker(torch.device("cpu"), "uniform"))
        communication = inside.Communication("none", torch.device("cpu"), "none", {})
        inside.step(x, communication)
        if traced is not None:
            inside.traced(lambda: inside.step(x, communication), lambda: None, str(traced), 0)


def compared_here(program: Path, trace: Path, folder: Path) -> BenchCheck:
    """A benchmark's step run and recorded in this process, beside its source."""
    step_here(program, traced=folder)
    return compared(
        program,
        folder,
        against=trace,
        kineto=trace.with_name("kineto_rank0.json"),
        median_ns=0,
        device="cpu",
        has_collectives=False,
    )
