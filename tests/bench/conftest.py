"""Small recordings of PyTorch, made once, and benchmarks of them run in this process."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from foretrace.bench import BenchCheck, compared

WORKLOADS = Path(__file__).with_name("workloads.py")
ALONE = ("perceptron", "transformer", "recommender", "residual")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with the traces of every small workload, by its name."""
    torch = pytest.importorskip("torch")
    from tests.bench.workloads import SMALL, record  # needs PyTorch

    names = (*ALONE, "distributed")
    folders = {name: tmp_path_factory.mktemp(name) for name in names}
    command = [sys.executable, str(WORKLOADS), "distributed", "record-small"]
    started = [
        subprocess.Popen(
            [*command, str(folders["distributed"]), str(rank), "2"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    torch.manual_seed(0)
    for name in ALONE:
        record(SMALL[name](), folders[name])
    for one in started:
        _, err = one.communicate(timeout=120)
        assert one.returncode == 0, err[-2000:]
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
