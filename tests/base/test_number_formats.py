"""One description per format of numbers."""

from __future__ import annotations

import pytest

from foretrace.base import (
    FORMAT_BY_CODE,
    FORMAT_BY_NAME,
    WorkloadError,
    known_format,
    number_format,
    tensor_format,
)
from foretrace.base.number_formats import NUMBER_FORMATS


@pytest.mark.parametrize(
    "text", ["bf16", "bfloat16", "torch.bfloat16", "c10::BFloat16", "BFloat16", " BF16 "]
)
def test_every_spelling_of_a_format_is_known(text: str) -> None:
    assert number_format(text) is FORMAT_BY_NAME["bf16"]


def test_no_spelling_stands_for_two_formats() -> None:
    for each in NUMBER_FORMATS:
        for text in (each.torch, *each.spellings):
            assert not text or number_format(text) is each


def test_types_of_single_values_are_no_tensors() -> None:
    assert tensor_format("long int") is FORMAT_BY_NAME["int64"]
    assert [tensor_format(text) for text in ("Int", "Double", "Bool", "Scalar", "")] == [None] * 5


def test_written_types_are_read_as_the_format_whose_elements_they_are() -> None:
    assert tensor_format(FORMAT_BY_NAME["mxfp8"].profiled) is FORMAT_BY_NAME["fp8"]
    assert tensor_format(FORMAT_BY_NAME["nvfp4"].profiled) is FORMAT_BY_NAME["fp4"]


def test_narrow_floats_need_scales() -> None:
    narrow = [name for name, each in FORMAT_BY_NAME.items() if each.is_narrow]

    assert narrow == ["fp8", "mxfp8", "fp4", "nvfp4", "mxfp4"]


def test_widths_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    kinds = {each: getattr(torch, each.torch, None) for each in FORMAT_BY_CODE.values()}

    widths = {each.num_bytes: kind.itemsize for each, kind in kinds.items() if kind is not None}

    assert list(widths) == list(widths.values())


def test_unknown_format_names_near_ones() -> None:
    with pytest.raises(WorkloadError, match="did you mean 'bf16'"):
        known_format("bf61")
