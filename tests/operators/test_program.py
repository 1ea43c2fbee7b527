"""A module's operators as a value: its sizes, its table, and what name and shapes tell."""

from __future__ import annotations

import pytest

from foretrace.operators import ModuleProgram, ProgramPart, Ran, Tensor, is_told, parsed_shapes

PRODUCT = (
    '{"dims":[[4,8],[8,2]],"types":["float","float"],"strides":[[8,1],[2,1]],"inputs":["",""]}'
)
PARTS = '{"dims":[[[2,3],[4,3]],[]],"types":[["c10::BFloat16","float"],""],"strides":[[[3,1],[3,1]],[]],"inputs":["","0"]}'  # noqa: E501


def program() -> ModuleProgram:
    one = ProgramPart(
        path="layers.0",
        forward=(Ran("up mm", "aten::mm", PRODUCT),),
        backward=(
            Ran("up mm", "aten::mm", PRODUCT, is_again=True),
            Ran("up mm", "aten::mm", PRODUCT),
            Ran("sum", "all_reduce", "", num_bytes=8, dtype="fp32"),
        ),
        parameters=(Tensor((8, 2), "fp32"), Tensor((2,), "bf16")),
    )
    behind = ProgramPart("", (), (), parameters=(Tensor((3,), "bf16"),))
    return ModuleProgram("mine", "dispatch", 4, None, (one, one), behind=behind)


def test_sizes_are_those_of_all_parts() -> None:
    found = program()

    assert found.num_parameters == 2 * 18 + 3
    assert found.product_flops(is_backward=False) == 2 * 2 * 4 * 8 * 2
    assert found.product_flops(is_backward=True) == 2 * 2 * 4 * 8 * 2  # not what is done again
    assert (found.parameter_dtype, found.product_dtype) == ("fp32", "fp32")
    assert found.computes_again


def test_the_table_has_a_row_for_each_part() -> None:
    frame = program().to_polars()

    assert frame["path"].to_list() == ["layers.0", "layers.0", ""]
    assert frame["backward_operators"].to_list() == [3, 3, 0]
    assert program().as_json()["parameters"] == 39


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::mm", True),
        ("aten::add", True),
        ("aten::_fused_rms_norm_backward", True),
        ("aten::sort", False),
        ("mine::scan", False),
    ],
)
def test_an_operator_is_told_by_a_rule_or_by_its_class(name: str, expected: bool) -> None:
    assert is_told(name, PRODUCT) is expected


def test_lists_of_tensors_may_name_their_formats() -> None:
    shapes = parsed_shapes(PARTS)

    assert shapes is not None
    assert [one.dtype for one in shapes.tensors(0)] == ["bf16", "fp32"]
    assert [one.num_bytes for one in shapes.tensors(0)] == [12, 48]
