"""Small tensors are worked on by one thread: two wait for each other longer than they work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    kept = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(kept)
