"""Two processes train on the sampler's microbatches: the packing changes no loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import ranks


def epochs(folder: Path, *queues: list[int]) -> list[dict[str, list[float]]]:
    """Loss of every document, gradients and documents of epochs on two processes."""
    from tests.balance.packed_training import main  # needs PyTorch

    out = folder / "out.json"
    ranks.run(main, f"file://{folder / 'meeting'}", queues, str(out))
    found: list[dict[str, list[float]]] = json.loads(out.read_text())
    return found


def test_a_packed_epoch_has_every_document_once_and_each_the_same_loss(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    queued, as_it_comes = epochs(tmp_path, [16, 32], [])

    assert set(queued["seen"]) == set(as_it_comes["seen"]) == {1}
    assert len(queued["found"]) > len(queued["seen"]) == 200  # losses, then gradients
    assert queued["found"] == pytest.approx(as_it_comes["found"], rel=1e-9, abs=1e-9)
