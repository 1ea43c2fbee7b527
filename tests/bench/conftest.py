"""Small recordings of PyTorch, made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).with_name("workloads.py")
ALONE = ("perceptron", "transformer", "recommender", "residual")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with the traces of every small workload, by its name."""
    pytest.importorskip("torch")
    folders = {name: tmp_path_factory.mktemp(name) for name in (*ALONE, "distributed")}
    rows = [(name, []) for name in ALONE]
    rows += [("distributed", [str(rank), "2"]) for rank in range(2)]
    started = [
        subprocess.Popen(
            [sys.executable, str(WORKLOADS), name, "record-small", str(folders[name]), *place],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, place in rows
    ]
    for one in started:
        _, err = one.communicate(timeout=120)
        assert one.returncode == 0, err[-2000:]
    return folders
