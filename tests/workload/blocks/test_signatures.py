"""Sizes of tensors that nothing can hold are refused in a sentence."""

from __future__ import annotations

import pytest

from foretrace.base import WorkloadError
from foretrace.workload.blocks.signatures import num_bytes


def test_bytes_of_half_bytes_are_rounded_up() -> None:
    assert num_bytes(3, "nvfp4") == 2
    assert num_bytes(3, "bf16") == 6


def test_more_numbers_than_can_be_counted_are_refused() -> None:
    with pytest.raises(WorkloadError, match="more numbers than can be counted"):
        num_bytes(10**400, "nvfp4")
