from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.operators import (
    UNKNOWN_BYTES,
    attention_shape,
    parsed_shapes,
    scores_shape,
    work_of,
)

BF16 = "c10::BFloat16"


def signature(
    *inputs: tuple[list[Any], str], values: dict[int, str] | None = None, strides: Any = None
) -> str:
    """The text that a trace keeps of an operator's inputs."""
    said: dict[str, Any] = {
        "dims": [dims for dims, _ in inputs],
        "types": [kind for _, kind in inputs],
    }
    if strides is not None:
        said["strides"] = strides
    said["inputs"] = [(values or {}).get(at, "") for at in range(len(inputs))]
    return json.dumps(said, separators=(",", ":"))


SCALAR: tuple[list[Any], str] = ([], "Scalar")


def test_a_convolution_that_takes_its_window_as_a_number_is_counted_as_any_other() -> None:
    image, weight = ([5, 3, 224, 224], "float"), ([64, 3, 7, 7], "float")
    window = {2: "[7, 7]", 4: "[2, 2]", 5: "[3, 3]"}
    plain = {3: "[2, 2]", 4: "[3, 3]", 5: "[1, 1]", 6: "False"}

    slow = signature(image, weight, *4 * (SCALAR,), values=window)
    whole = signature(image, weight, *5 * (SCALAR,), values=plain)

    one, other = work_of("aten::_slow_conv2d_forward", slow), work_of("aten::convolution", whole)
    assert one is not None
    assert other is not None
    assert one.flops == other.flops == 2 * 5 * 112 * 112 * 64 * 3 * 7 * 7


def test_product_reads_both_matrices_and_writes_one() -> None:
    work = work_of("aten::mm", signature(([8944, 1024], BF16), ([1024, 2816], BF16)))

    assert work is not None
    assert work.flops == 2 * 8944 * 1024 * 2816
    assert work.bytes_read == 2 * (8944 * 1024 + 1024 * 2816)
    assert work.bytes_written == 2 * 8944 * 2816
    assert (work.dtype, work.is_product) == ("bf16", True)


@pytest.mark.parametrize(
    ("first", "second", "written"),
    [
        ([16384, 2048], [8, 2048, 1408], 16384 * 1408),  # rows shared out
        ([1408, 16384], [16384, 2048], 8 * 1408 * 2048),  # rows summed over: weights' gradients
        ([8, 1408, 2048], [2048, 16384], 1408 * 16384),
    ],
)
def test_groups_of_rows_are_one_product(first: list[int], second: list[int], written: int) -> None:
    """As recorded of experts: their forward product and the two of its backward pass."""
    text = signature((first, BF16), (second, BF16), ([8], "int"))
    work = work_of("aten::_grouped_mm", text)

    assert work is not None
    assert work.is_product
    assert work.flops == 2 * 16384 * 2048 * 1408
    read = np.prod(first) + np.prod(second)
    assert work.num_bytes == 2 * (read + written)


def test_bias_is_read_and_does_not_count_as_arithmetic() -> None:
    text = signature(([768], "float"), ([788, 768], "float"), ([768, 64], "float"), SCALAR, SCALAR)

    work = work_of("aten::addmm", text)

    assert work is not None
    assert work.flops == 2 * 788 * 768 * 64
    assert work.bytes_read == 4 * (768 + 788 * 768 + 768 * 64)


def test_expanded_dimension_is_read_once() -> None:
    text = signature(
        ([64, 128], "float"), ([64, 128], "float"), strides=[[128, 1], [0, 1]], values={}
    )

    work = work_of("aten::mul", text)

    assert work is not None
    assert work.flops == 64 * 128
    assert work.bytes_read == 4 * (64 * 128 + 128)


def test_addition_takes_the_wider_format_and_the_broadcast_shape() -> None:
    work = work_of("aten::add_", signature(([4, 1, 6], BF16), ([5, 6], "float"), SCALAR))

    assert work is not None
    assert (work.flops, work.dtype, work.bytes_written) == (4 * 5 * 6, "fp32", 4 * 4 * 5 * 6)


def test_tensor_that_takes_the_result_is_not_read() -> None:
    large = ([4, 2048], "float")

    into = [
        work_of("aten::exp", signature(large, large)),
        work_of("aten::add", signature(large, large, SCALAR, large)),
    ]

    assert [work.num_bytes for work in into if work is not None] == [
        2 * 4 * 4 * 2048,
        3 * 4 * 4 * 2048,
    ]


def test_comparison_writes_booleans() -> None:
    work = work_of("aten::gt", signature(([10, 10], "float"), SCALAR))

    assert work is not None
    assert (work.bytes_read, work.bytes_written) == (400, 100)


def test_lookup_moves_only_the_rows_it_takes() -> None:
    text = signature(([151936, 1024], BF16), SCALAR, ([8944], "long int"), values={1: "0"})

    work = work_of("aten::index_select", text)

    assert work is not None
    assert work.bytes_read == 8944 * (1024 * 2 + 8)
    assert work.bytes_written == 8944 * 1024 * 2


def test_rows_that_are_added_to_others_are_read_and_so_are_these() -> None:
    rows, table = ([8944, 1024], BF16), ([4096, 1024], BF16)
    text = signature(table, SCALAR, ([8944], "long int"), rows, values={1: "0"})

    work = work_of("aten::index_add_", text)

    assert work is not None
    assert work.bytes_read == 8944 * (2 * 1024 * 2 + 8)
    assert work.bytes_written == 8944 * 1024 * 2


def test_concatenated_lists_have_no_format_so_no_bytes() -> None:
    work = work_of("aten::cat", signature(([[4, 8], [4, 8]], "TensorList"), SCALAR))

    assert work is not None
    assert work.num_bytes == UNKNOWN_BYTES


def test_sum_over_the_last_dimension_writes_one_value_per_row() -> None:
    text = signature(([16, 559, 1024], "float"), ([], "ScalarList"), SCALAR, values={1: "[-1]"})

    work = work_of("aten::mean", text)

    assert work is not None
    assert work.bytes_written == 16 * 559 * 4


@pytest.mark.parametrize("text", ["", "not json", "[1]", '{"grid":[1,1,1]}', '{"dims":3}'])
def test_signature_without_shapes_has_no_work(text: str) -> None:
    assert parsed_shapes(text) is None
    assert work_of("aten::mm", text) is None


@pytest.mark.parametrize("operator", ["aten::mm", "aten::addmm", "aten::bmm", "aten::linear"])
def test_shapes_that_do_not_fit_have_no_work(operator: str) -> None:
    assert work_of(operator, signature(([3, 4], "float"), ([5, 6], "float"), SCALAR)) is None


def test_view_and_unknown_operators_have_no_work() -> None:
    text = signature(([3, 4], "float"))

    assert work_of("aten::view", text) is None
    assert work_of("MyFunction", text) is None
    assert work_of("AddmmBackward0", text) is None


def _attention(causal: str, *, queries: int = 512) -> str:
    return signature(
        ([4, queries, 12, 64], BF16),
        ([4, 512, 3, 64], BF16),
        ([4, 512, 3, 64], BF16),
        *[([], "")] * 5,
        SCALAR,
        values={8: causal},
    )


def test_attention_shape_is_read_from_its_inputs() -> None:
    shape = attention_shape("aten::_flash_attention_forward", _attention("True"))

    assert shape is not None
    assert (shape.batch, shape.heads, shape.kv_heads) == (4, 12, 3)
    assert (shape.query_length, shape.kv_length, shape.head_size) == (512, 512, 64)
    assert shape.is_causal is True
    assert not shape.is_backward


def test_causal_attention_counts_what_the_mask_leaves() -> None:
    works = [
        work_of("aten::_flash_attention_forward", _attention(text)) for text in ("True", "False")
    ]

    causal, full = (work.flops for work in works if work is not None)
    assert full == 4 * 4 * 12 * 512 * 512 * 64
    assert causal * 512 * 512 == full * (512 * 513 // 2)


def test_trace_that_does_not_say_leaves_the_mask_open() -> None:
    shape = attention_shape("aten::_flash_attention_forward", _attention(""))

    assert shape is not None
    assert shape.is_causal is None


# PyTorch's counter leaves groups out of a convolution's weight gradient, so none here has groups.
# Every product, convolution and attention against PyTorch's own counter, on tensors without data.
_COUNTED: dict[str, Callable[[Any], Any]] = {
    "mm": lambda t: t.mm(_like(t, 24, 40), _like(t, 40, 56)),
    "addmm": lambda t: t.addmm(_like(t, 56), _like(t, 24, 40), _like(t, 40, 56)),
    "bmm": lambda t: t.bmm(_like(t, 5, 24, 40), _like(t, 5, 40, 56)),
    "baddbmm": lambda t: t.baddbmm(_like(t, 5, 24, 56), _like(t, 5, 24, 40), _like(t, 5, 40, 56)),
    "convolution": lambda t: t.nn.functional.conv2d(
        _like(t, 2, 6, 33, 31), _like(t, 8, 6, 5, 3), stride=2, padding=(2, 1)
    ),
    "transposed convolution": lambda t: t.nn.functional.conv_transpose2d(
        _like(t, 2, 6, 9, 7), _like(t, 6, 8, 3, 3), stride=2
    ),
    "attention": lambda t: t.nn.functional.scaled_dot_product_attention(
        _like(t, 2, 4, 32, 16), _like(t, 2, 4, 48, 16), _like(t, 2, 4, 48, 16)
    ),
}


def _like(torch: Any, *shape: int) -> Any:
    return torch.empty(shape, device="meta", requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(_COUNTED))
def test_flops_are_those_of_the_counter_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    counted, ours = _both_counts(torch, lambda: _COUNTED[name](torch).sum().backward())

    assert ours
    assert sum(counted.values()) == sum(ours.values())
    assert set(counted) == {f"aten.{operator}" for operator in ours}


def _both_counts(torch: Any, run: Callable[[], None]) -> tuple[dict[str, int], dict[str, int]]:
    """FLOPs by operator: as PyTorch counts them, and as ours from what a profiler would write."""
    from torch.utils._python_dispatch import TorchDispatchMode  # optional, heavy
    from torch.utils.flop_counter import FlopCounterMode, flop_registry  # the same

    ours: dict[str, int] = {}

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            packet = func._overloadpacket
            name = str(packet).removeprefix("aten.")
            # The profiler sees the tensor's operators; of those the counter knows, ours must.
            if packet in flop_registry:
                defaults = [one.default_value for one in func._schema.arguments[len(args) :]]
                work = work_of(f"aten::{name}", _written(torch, [*args, *defaults]))
                assert work is not None, name
                ours[name] = ours.get(name, 0) + work.flops
            return func(*args, **(kwargs or {}))

    with FlopCounterMode(display=False) as counter, Watch():  # type: ignore[no-untyped-call]
        run()
    counts = counter.get_flop_counts().get("Global", {})
    return {str(operator): count for operator, count in counts.items()}, ours


def _written(torch: Any, args: list[Any]) -> str:
    """A signature as Kineto writes these inputs."""
    inputs: list[tuple[list[Any], str]] = []
    values = {}
    for at, one in enumerate(args):
        if isinstance(one, torch.Tensor):
            inputs.append((list(one.shape), "float"))
            continue
        inputs.append(([], "ScalarList" if isinstance(one, list) else "Scalar"))
        values[at] = "" if one is None else str(one)
    return signature(*inputs, values=values)


@pytest.mark.slow
def test_flops_of_attention_forward_and_backward_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    query, key = _like(torch, 2, 4, 32, 16), _like(torch, 2, 4, 32, 16)
    flash = torch.ops.aten._scaled_dot_product_flash_attention

    def run() -> None:
        out = flash(query, key, key)
        torch.ops.aten._scaled_dot_product_flash_attention_backward(
            out[0], query, key, key, *out[:6], 0.0, False, out[6], out[7]
        )

    counted, ours = _both_counts(torch, run)

    assert len(ours) == 2
    assert sum(counted.values()) == sum(ours.values())


_SIZES = st.lists(st.one_of(st.integers(0, 3), st.just(2**40), st.integers(-1, 0)), max_size=5)
_INPUTS = st.tuples(
    st.one_of(_SIZES, st.lists(_SIZES, max_size=3), st.none(), st.text(max_size=2)),
    st.sampled_from(["float", BF16, "long int", "Scalar", "ScalarList", "TensorList", "", "odd"]),
    st.one_of(st.sampled_from(["", "True", "[1, 1]", "[0]", "0", "[-1]", "[a", "1e3"]), st.text()),
)
_NAMES = st.sampled_from(
    [
        "mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "mv", "convolution", "conv2d",
        "cudnn_convolution", "miopen_convolution", "convolution_backward",
        "cudnn_convolution_backward_input", "copy_", "clone", "_to_copy", "fill_", "cat", "sum",
        "mean", "native_layer_norm", "native_layer_norm_backward", "_softmax", "index_select",
        "embedding", "embedding_dense_backward", "_embedding_bag", "gather", "nll_loss_forward",
        "nll_loss_backward", "cross_entropy_loss", "_fused_adamw_", "_fused_sgd_", "relu", "add_",
        "gt", "odd", "scaled_dot_product_attention", "_flash_attention_forward",
        "_flash_attention_backward", "_efficient_attention_backward",
        "ScaledUpperTriangMaskedSoftmax",
    ]
)  # fmt: skip


@given(name=_NAMES, inputs=st.lists(_INPUTS, max_size=12), has_values=st.booleans())
def test_any_shapes_give_counts_that_are_no_less_than_nothing_or_no_work(
    name: str, inputs: list[tuple[Any, str, str]], has_values: bool
) -> None:
    said: dict[str, Any] = {
        "dims": [dims for dims, _, _ in inputs],
        "types": [kind for _, kind, _ in inputs],
        "strides": [dims for dims, _, _ in inputs],
    }
    if has_values:
        said["inputs"] = [value for _, _, value in inputs]
    text = json.dumps(said)

    for operator in (name, f"aten::{name}"):
        work = work_of(operator, text)
        attention_shape(operator, text)
        scores_shape(operator, text)
        if work is not None:
            assert work.flops >= 0
            assert min(work.bytes_read, work.bytes_written) >= UNKNOWN_BYTES
            assert work.num_bytes >= UNKNOWN_BYTES


def test_the_largest_of_each_row_come_with_their_places() -> None:
    work = work_of("aten::topk", signature(([128, 64], "float"), SCALAR, values={1: "8"}))

    assert work is not None
    assert work.bytes_read == 128 * 64 * 4
    assert work.bytes_written == 128 * 8 * (4 + 8)


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("flash_attn::_flash_attn_forward", 256 * 768 + 256 * 257 // 2),
        ("aten::_flash_attention_forward", 256 * 257 // 2),
    ],
)
def test_a_mask_over_more_keys_than_queries_is_aligned_as_the_library_does(
    name: str, pairs: int
) -> None:
    causal = {5: "True"} if name.startswith("flash_attn") else {8: "True"}
    tensors = [([1, length, 4, 64], BF16) for length in (256, 1024, 1024)]

    work = work_of(name, signature(*tensors, *([SCALAR] * 6), values=causal))

    assert work is not None
    assert work.flops == 2 * 2 * 4 * 64 * pairs


def test_formats_of_half_a_byte_leave_traffic_unknown() -> None:
    text = signature(*[([128, 128], "c10::Float4_e2m1fn")] * 2)

    work = work_of("aten::_scaled_mm", text)

    assert work is not None
    assert (work.dtype, work.flops, work.num_bytes) == ("fp4", 2 * 128**3, UNKNOWN_BYTES)
