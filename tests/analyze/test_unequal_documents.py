"""A real recording of two gloo processes, one of which trains on a longer document."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import stragglers

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("unequal_documents.py")


def test_the_rank_with_the_longer_document_is_told_as_such(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(PROGRAM), str(tmp_path / "traces")]
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]

    found = stragglers(ft.load(tmp_path / "traces", cache=False).recording.measured)

    (one,) = (each for each in found.work if each.rank == 1)
    assert one.work_ns > 3 * one.hardware_ns
    assert one.work > 1.3
    assert "longer documents" in one.sentence
