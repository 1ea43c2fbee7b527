"""Parts divided over two processes do what whole ones do, forward and backward."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("divided.py")


@pytest.mark.slow
def test_divided_parts_are_the_whole(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = str(Path(__file__).parents[3] / "src")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    meeting = f"file://{tmp_path / 'meeting'}"

    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), meeting, str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]

    assert [rank.returncode for rank in ranks] == [0, 0], said
