"""Parts divided over two processes do what whole ones do, forward and backward."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ranks


@pytest.mark.slow
def test_divided_parts_are_the_whole(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.capture.training.divided import main  # needs PyTorch

    ranks.run(main, f"file://{tmp_path / 'meeting'}")
