"""Storages that are counted once, as large and as long as a device holds them."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional  # noqa: E402

from foretrace.capture.world.device_times import DeviceTimes  # noqa: E402
from foretrace.capture.world.journal import Journal  # noqa: E402
from foretrace.capture.world.mail import Mailbox, RankTurn  # noqa: E402
from foretrace.capture.world.observer import Observer  # noqa: E402
from foretrace.capture.world.values import SubstitutedValues  # noqa: E402
from foretrace.capture.world.works import IssuedWorks  # noqa: E402


def observer(folder: Path) -> Observer:
    turn = RankTurn(folder, is_measured=False)
    times = DeviceTimes(folder / "rank0.kineto.json")
    return Observer(Journal(), SubstitutedValues(), Mailbox(folder, 0, turn), times)


@pytest.mark.parametrize(
    "name", ["mse_loss", "smooth_l1_loss", "binary_cross_entropy", "soft_margin_loss"]
)
def test_a_loss_keeps_the_storage_that_it_has_with_memory(name: str, tmp_path: Path) -> None:
    loss, given = getattr(functional, name), torch.full((64, 32), 0.5)
    found = observer(tmp_path)

    with found, FakeTensorMode():
        kept = loss(torch.empty(64, 32), torch.empty(64, 32))

    held = loss(given, given).untyped_storage().nbytes()
    assert held == 64 * 32 * 4
    assert kept.numel() == 1
    assert found.memory.memory().peak == 2 * 64 * 32 * 4 + held


def test_what_is_written_to_is_no_new_storage(tmp_path: Path) -> None:
    """A bucket of DDP has memory, and is one more tensor where operators see it."""
    found = observer(tmp_path)
    with found:
        bucket = torch.empty(1024)
        with FakeTensorMode(allow_non_fake_inputs=True):
            gradient = torch.empty(1024)
            torch.mul(gradient, 0.5, out=bucket)

    assert found.memory.memory().peak == 2 * 4096


@pytest.mark.parametrize(("backend", "is_kept"), [("gloo", True), ("nccl", False)])
def test_gloo_holds_what_was_sent_as_long_as_its_object_lives(
    backend: str, *, is_kept: bool
) -> None:
    class Work: ...

    works, work, sent = IssuedWorks(), Work(), Work()
    works.backend = backend
    alive = weakref.ref(sent)
    works.add(work, 7, [sent])
    del sent

    assert works.exchanges == {7}
    assert works.wait(work) == 7
    assert (alive() is not None) is is_kept
    assert works.wait(work) is None
    del work
    assert alive() is None
