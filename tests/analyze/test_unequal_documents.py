"""A real recording of two gloo processes, one of which trains on a longer document."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import Stragglers, stragglers
from tests import ranks

pytestmark = pytest.mark.slow


def test_the_rank_with_the_longer_document_is_told_as_such(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    # A host that lends its cores to others makes other causes: one recording of three is quiet.
    for turn in range(_TURNS):
        told = [each for each in _recorded(tmp_path / str(turn)).work if each.rank == 1]
        if len(told) == 1 and told[0].work_ns > 3 * told[0].hardware_ns:
            break

    (one,) = told
    assert one.work_ns > 3 * one.hardware_ns
    assert one.work > 1.3
    assert "longer documents" in one.sentence


_TURNS = 3


def _recorded(folder: Path) -> Stragglers:
    """Who waits for whom in a run of two processes, recorded here."""
    from tests.analyze.unequal_documents import main  # needs PyTorch

    folder.mkdir()
    ranks.run(main, f"file://{folder / 'meeting'}", str(folder / "traces"))
    return stragglers(ft.load(folder / "traces", cache=False).recording.measured)
