"""Scripts run as a few ranks of a world, and the job that comes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from foretrace.base import ModelError, WorkloadError

SCRIPTS = Path(__file__).parents[1] / "capture" / "world" / "scripts"

pytest.importorskip("torch")


def test_an_error_of_the_script_is_its_own_traceback_with_the_rank(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("def f():\n    raise KeyError('batch')\nf()\n")

    with pytest.raises(ModelError, match=r"as rank 0 of 8") as raised:
        ft.run(script, world=8, out=tmp_path / "job", device="cpu")

    assert "KeyError: 'batch'" in str(raised.value)
    assert "capture/world" not in str(raised.value)


def test_a_device_without_memory_needs_a_machine(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="name one"):
        ft.run(SCRIPTS / "ddp.py", world=8, out=tmp_path)
