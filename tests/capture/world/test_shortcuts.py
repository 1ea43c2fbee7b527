"""What is done once for all gives what doing it for each gave."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed.fsdp._fully_shard import _fsdp_common, _fsdp_param  # noqa: E402

from foretrace.capture.world.shortcuts import ChunksOnDemand, shortcuts  # noqa: E402


@given(
    sizes=st.tuples(st.integers(0, 9), st.integers(1, 9)),
    num_chunks=st.integers(1, 12),
    dim=st.integers(0, 1),
)
def test_chunks_on_demand_are_those_of_fsdp(
    sizes: tuple[int, int], num_chunks: int, dim: int
) -> None:
    tensor = torch.arange(sizes[0] * sizes[1]).reshape(sizes)
    expected = _fsdp_common._chunk_with_empty(tensor, num_chunks, dim)

    found = ChunksOnDemand(tensor, num_chunks, dim)

    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        assert own.shape == other.shape
        assert own.stride() == other.stride()
        assert own.tolist() == other.tolist()


def test_operators_are_told_apart_by_all_that_tensors_look_like() -> None:
    def looks() -> list[tuple[object, ...]]:
        with FakeTensorMode():
            tensors = [
                torch.empty(4, 6), torch.empty(6, 4), torch.empty(6, 4).t(),
                torch.empty(4, 6, dtype=torch.int64), torch.empty(4, 6)[1:],
                torch.empty(4, 6, requires_grad=True),
            ]  # fmt: skip
            found = [(one + one, one.sum(0), one.view(-1) if one.is_contiguous() else one)
                     for _ in range(2) for one in tensors]  # fmt: skip
        return [
            (one.shape, one.stride(), one.dtype, one.storage_offset(), one.requires_grad)
            for each in found
            for one in each
        ]

    expected = looks()
    FakeTensorMode.cache_clear()
    with shortcuts():
        assert looks() == expected
        assert FakeTensorMode.cache_info().hits > 0
        assert vars(_fsdp_param)["_chunk_with_empty"] is ChunksOnDemand
    assert vars(_fsdp_param)["_chunk_with_empty"] is not ChunksOnDemand
    FakeTensorMode.cache_clear()
