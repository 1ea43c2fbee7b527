from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.cost import Access, Operation, operation_of


def signature(*inputs: tuple[list[int], str], strides: object = None, values: object = None) -> str:
    said: dict[str, object] = {"dims": [d for d, _ in inputs], "types": [t for _, t in inputs]}
    if strides is not None:
        said["strides"] = strides
    if values is not None:
        said["inputs"] = values
    return json.dumps(said)


HALF = "c10::Half"


@pytest.mark.parametrize(
    ("operator", "inputs", "sizes"),
    [
        ("aten::mm", [([8, 16], HALF), ([16, 32], HALF)], (1, 8, 32, 16)),
        ("aten::bmm", [([4, 8, 16], HALF), ([4, 16, 32], HALF)], (4, 8, 32, 16)),
        ("aten::addmm", [([32], HALF), ([8, 16], HALF), ([16, 32], HALF)], (1, 8, 32, 16)),
        ("aten::addmm_", [([8, 32], HALF), ([8, 16], HALF), ([16, 32], HALF)], (1, 8, 32, 16)),
        ("aten::linear", [([2, 8, 16], HALF), ([32, 16], HALF)], (1, 16, 32, 16)),
        ("aten::matmul", [([3, 5, 8, 16], HALF), ([16, 32], HALF)], (1, 120, 32, 16)),
        ("aten::mv", [([8, 16], HALF), ([16], HALF)], (1, 8, 1, 16)),
    ],
)
def test_products_have_their_four_sizes(
    operator: str, inputs: list[tuple[list[int], str]], sizes: tuple[int, ...]
) -> None:
    assert operation_of(operator, signature(*inputs)) == Operation("gemm", "library", "fp16", sizes)


def test_a_kernel_tells_tf32_from_fp32() -> None:
    text = signature(([8, 16], "float"), ([16, 32], "float"))

    assert operation_of("aten::mm", text, "sgemm_128x64").dtype == "fp32"
    assert operation_of("aten::mm", text, "cutlass_tensorop_s1688gemm").dtype == "tf32"


def test_attention_has_heads_lengths_and_mask() -> None:
    one = ([4, 197, 12, 64], HALF)
    values = [*[""] * 8, "True"]
    text = signature(one, one, one, *[([], "")] * 6, values=values)

    found = operation_of("aten::_flash_attention_forward", text, "flash_fwd_kernel")

    assert found == Operation("attention", "flash2", "fp16", (4, 12, 12, 64, 197, 197, 1))


@pytest.mark.parametrize(
    ("operator", "kernel", "inputs", "access"),
    [
        ("aten::gelu", "", [([64, 64], HALF)], Access.STREAM),
        ("aten::add", "", [([64, 64], HALF), ([64], HALF)], Access.UNEVEN),
        ("aten::native_layer_norm", "", [([64, 64], HALF), ([64], HALF)], Access.ROWS),
        ("aten::_softmax", "", [([64, 64], HALF)], Access.ROWS),
        ("aten::embedding", "", [([99, 64], HALF), ([8], "long int")], Access.GATHER),
        ("aten::index_select", "", [([99, 64], HALF), ([], ""), ([8], "long int")], Access.GATHER),
        ("aten::index_select", "", [([9, 640], HALF), ([], ""), ([8], "long int")], Access.PERMUTE),
        (
            *("aten::_embedding_bag", ""),
            [([99, 64], HALF), ([40], "long int"), ([8], "long int")],
            Access.GATHER,
        ),
        ("aten::cross_entropy_loss", "", [([64, 99], HALF), ([64], "long int")], Access.ROWS),
        ("aten::native_dropout", "", [([64, 64], HALF)], Access.STREAM),
        ("GeLUFunction", "triton_poi_fused_gelu", [([64, 64], HALF)], Access.STREAM),
        ("aten::copy_", "", [([64, 64], HALF), ([64, 64], HALF)], Access.UNEVEN),
        ("aten::copy_", "", [([64, 64], "float"), ([64, 64], HALF)], Access.STREAM),
        ("aten::copy_", "Memcpy HtoD", [([64], HALF), ([64], HALF)], Access.HOST),
    ],
)
def test_operators_go_through_memory_each_in_its_way(
    operator: str, kernel: str, inputs: list[tuple[list[int], str]], access: Access
) -> None:
    found = operation_of(operator, signature(*inputs), kernel)

    assert found.model == "movement"
    assert found.sizes[1] == access
    assert found.sizes[0] > 0


def test_pooling_reads_every_row_and_writes_one_per_bag() -> None:
    text = signature(([99, 64], "float"), ([40], "long int"), ([8], "long int"))

    found = operation_of("aten::_embedding_bag", text)

    assert found.sizes[0] == 4 * 64 * (40 + 8) + 8 * (40 + 8)


def test_lists_of_tensors_count_by_the_width_in_the_kernel_s_name() -> None:
    text = '{"dims": [[[4, 8], [4, 8]], []], "types": ["TensorList", "Scalar"]}'

    plain = operation_of("aten::cat", text, "CatArrayBatchedCopy<OpaqueType<2u>, 128>")
    wide = operation_of("aten::cat", text, "CatArrayBatchedCopy<OpaqueType<8u>, 128>")

    assert plain.sizes == (2 * 2 * 64, Access.UNEVEN)
    assert wide.sizes == (2 * 8 * 64, Access.UNEVEN)


def test_strides_tell_a_transpose_from_a_stream() -> None:
    plain = ([64, 64], HALF)

    alike = signature(plain, plain, strides=[[64, 1], [64, 1]])
    turned = signature(plain, plain, strides=[[64, 1], [1, 64]])

    assert operation_of("aten::mul", alike).sizes[1] == Access.STREAM
    assert operation_of("aten::mul", turned).sizes[1] == Access.UNEVEN


def test_a_convolution_is_a_product_of_its_outputs() -> None:
    text = signature(
        ([4, 3, 224, 224], HALF),
        ([768, 3, 16, 16], HALF),
        *[([], "ScalarList")] * 3,
        values=["", "", "[0, 0]", "[16, 16]", "[1, 1]"],
    )

    found = operation_of("aten::cudnn_convolution", text, "cutlass_fprop")

    assert found.model == "convolution"
    assert found.sizes[:5] == (1, 4 * 14 * 14, 768, 3 * 16 * 16, 1)


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("", ""),
        ("aten::mm", "no json"),
        ("aten::mm", signature(([8, 16], HALF), ([17, 32], HALF))),
        ("aten::mm", signature(([8, 0], HALF), ([0, 32], HALF))),
        ("mine::secret", signature(([8, 16], HALF))),
    ],
)
def test_what_shapes_do_not_tell_is_unknown(operator: str, text: str) -> None:
    assert operation_of(operator, text).model == ""


SHAPES = st.lists(st.integers(0, 9), max_size=4)
INPUTS = st.lists(
    st.tuples(SHAPES, st.sampled_from([HALF, "float", "Scalar", "", "long int"])), max_size=5
)


@given(
    st.sampled_from(
        (
            *("aten::mm", "aten::bmm", "aten::linear", "aten::convolution_backward", "x::y"),
            *("aten::_flash_attention_forward", "aten::native_layer_norm", "aten::cat"),
            "aten::copy_",
        )
    ),
    INPUTS,
    st.sampled_from(["", "Memcpy HtoD", "gemm", "CatArrayBatchedCopy<OpaqueType<2u>>"]),
)
def test_no_shapes_are_too_odd(
    operator: str, inputs: list[tuple[list[int], str]], kernel: str
) -> None:
    found = operation_of(operator, signature(*inputs), kernel)

    assert all(size >= 0 for size in found.sizes)
    if found.model == "gemm":
        assert all(size > 0 for size in found.sizes)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::_scaled_dot_product_cudnn_attention", "cudnn"),
        ("aten::_scaled_dot_product_flash_attention", "flash2"),
    ],
)
def test_an_operator_of_a_newer_library_says_so_without_its_kernel(
    operator: str, kind: str
) -> None:
    tensors = [([1, 8, 512, 64], "c10::BFloat16")] * 3

    found = operation_of(operator, signature(*tensors))

    assert (found.model, found.kind) == ("attention", kind)


def test_products_of_four_bits_and_of_tf32_keep_their_format() -> None:
    formats = ("c10::Float4_e2m1fn", "tensorfloat32")

    found = [
        operation_of("aten::mm", signature(([8, 16], name), ([16, 32], name))) for name in formats
    ]

    assert [one.dtype for one in found] == ["fp4", "tf32"]
