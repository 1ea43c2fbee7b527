"""Classes of a framework's own operators (`aten::mm`), by name: exact where it is a table's."""

from __future__ import annotations

import re

from foretrace.operators.work import OperatorClass

# Namespaces by which a name is an operator's and not a kernel's.
NAMESPACES = (
    "aten::",
    "prims::",
    "quantized::",
    "mkldnn::",
    "mkl::",
    "onednn::",
    "torch::",
    "torch_mlu::",
    "torchvision::",
    "fbgemm::",
    "fb::",
    "c10d::",
    "_c10d_functional::",
    "autograd::",
    "xformers::",
    "flash_attn::",
    "vllm::",
    "aiter::",
    "profiler::",
    "gloo:",
    "nccl:",
)

_EXACT = {
    OperatorClass.GEMM: "mm addmm bmm baddbmm matmul linear mv addmv dot vdot addr outer ger "
    "einsum addbmm chain_matmul bilinear mkldnn_linear _addmm_activation _scaled_mm _int_mm "
    "_grouped_mm _scaled_grouped_mm _weight_int4pack_mm _weight_int8pack_mm linear_relu "
    "_mkl_linear linear_backward mkldnn_linear_backward _state_product",
    OperatorClass.COPY: "copy_ _to_copy to clone contiguous cat stack _foreach_copy_ fill_ zero_ "
    "constant_pad_nd flip roll repeat expand_copy slice_backward select_backward zeros ones full "
    "zeros_like ones_like full_like concat hstack vstack block_diag tile new_zeros lift_fresh_copy "
    "slice_scatter select_scatter pin_memory _pin_memory _chunk_cat split_with_sizes_copy "
    "_reshape_copy permute_copy transpose_copy t_copy as_strided_copy view_copy unfold_backward",
    OperatorClass.REDUCTION: "sum mean max min amax amin prod any all argmax argmin norm std var "
    "var_mean std_mean cumsum cumprod logsumexp linalg_vector_norm nansum count_nonzero aminmax "
    "max_pool2d avg_pool2d max_pool1d avg_pool1d max_pool3d cummax median logcumsumexp trace dist "
    "_quantize_rows",
    OperatorClass.INDEXING: "gather scatter scatter_add index index_put _index_put_impl_ index_add "
    "index_copy index_fill masked_select masked_scatter sort argsort topk unique unique2 _unique2 "
    "nonzero bincount searchsorted bucketize take put take_along_dim index_reduce scatter_reduce "
    "repeat_interleave msort kthvalue histc unique_consecutive one_hot",
    OperatorClass.EMBEDDING: "index_select",
    OperatorClass.OPTIMIZER: "_amp_update_scale_",
    OperatorClass.OTHER: "empty empty_strided empty_like view reshape _reshape_alias detach t "
    "transpose permute as_strided slice select narrow expand squeeze unsqueeze split chunk unbind "
    "resize_ set_ record_stream is_pinned flatten _unsafe_view item _local_scalar_dense alias "
    "resolve_conj resolve_neg lift_fresh scalar_tensor view_as unflatten split_with_sizes "
    "expand_as type_as numpy_T movedim swapaxes _conj real imag is_nonzero equal result_type",
}
_FREE = OperatorClass.OTHER  # all that the table has there
_OF_BASE = {base: kind for kind, bases in _EXACT.items() for base in bases.split()}

# The first that is found in the name decides.
_PATTERNS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (OperatorClass.COLLECTIVE, r"^(c10d|_c10d_functional)::|record_param_comms|^(gloo|nccl):"),
        (OperatorClass.ATTENTION, r"attention|sdpa|flash_attn|flashattn|fmha"),
        (OperatorClass.LOSS, r"_loss|nllloss|cross_?entropy|crossentropy|mse|criterion"),
        (OperatorClass.OPTIMIZER, r"_foreach_|_fused_(adam|sgd|adagrad)|optimizer|_amp_foreach"),
        (OperatorClass.EMBEDDING, r"embedding(?!s?_?rotary)"),
        (
            OperatorClass.INDEXING,
            r"permute_sparse|permute_pooled|bounds_check|jagged|offsets_range",
        ),
        (OperatorClass.CONVOLUTION, r"conv(olution)?(?!ert)|thnn_conv|im2col|col2im"),
        (OperatorClass.NORMALISATION, r"(batch|layer|group|instance|rms)_?norm|native_norm"),
        (OperatorClass.SOFTMAX, r"softmax"),
        (OperatorClass.REDUCTION, r"pool(?!ed)|_reduce$|cumsum"),
        (OperatorClass.GEMM, r"(^|_|::)(addmm|baddbmm|bmm|mm|linear|matmul)(_|$)|gemm"),
        (OperatorClass.INDEXING, r"index|scatter|gather|sort"),
        (OperatorClass.COPY, r"copy|memcpy"),
    )
)
_AUTOGRAD = re.compile(
    r"^(?:autograd::engine::evaluate_function: )?(?:torch::autograd::)?(.*?)Backward\d*$"
)
_UNDERSCORES = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLAIN_TENSORS = re.compile(r"^(aten|prims|quantized)::")
# Derivatives that PyTorch generates carry a number; those that users write do not.
_GENERATED = re.compile(r"^\w+Backward\d+$")


def base_of(operator: str) -> str:
    """`aten::add_` becomes `add`; `AddmmBackward0` becomes `addmm_backward`."""
    matched = _AUTOGRAD.match(operator)
    if matched is not None:
        snake = _UNDERSCORES.sub("_", matched.group(1).rpartition("::")[2]).lower()
        return f"{snake}_backward"
    base = operator.rpartition("::")[2].partition(".")[0]
    return base if base in _OF_BASE or base.startswith("_foreach") else base.rstrip("_")


def framework_class(operator: str) -> OperatorClass | None:
    """The class of an operator by its own name; none: not known.

    Operators of plain tensors that no table and no pattern names are elementwise: PyTorch has
    hundreds of these, and of the other classes few that it does not name for what they do.
    """
    base = base_of(operator)
    found = _OF_BASE.get(base) or _OF_BASE.get(base.removesuffix("_backward"))
    if found is not None:
        return found
    text = operator if "Backward" not in operator else base
    lowered = text.lower()
    for kind, pattern in _PATTERNS:
        if pattern.search(lowered):
            return kind
    is_plain = _PLAIN_TENSORS.match(operator) or _GENERATED.match(operator)
    return OperatorClass.ELEMENTWISE if is_plain else None


def moves_nothing(operator: str) -> bool:
    """Whether an operator is bookkeeping alone: a view, an allocation, a node of autograd."""
    return _GENERATED.match(operator) is not None or _OF_BASE.get(base_of(operator)) is _FREE


def is_operator(name: str) -> bool:
    """Whether a name is an operator's and not a kernel's."""
    return (
        name.startswith(NAMESPACES)
        or name.rstrip("_") in _OF_BASE
        or _GENERATED.match(name) is not None
    )


def plain_name(operator: str) -> str:
    """`aten::add_` becomes `aten add`: operators in place and out of place together."""
    namespace = operator.partition("::")[0] if "::" in operator else "operator"
    return f"{namespace} {base_of(operator)}"
