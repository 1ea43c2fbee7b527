"""Kernels of frameworks: copies, losses, embeddings, optimizers, elementwise, reductions, indices.

Where a pattern is known from is said above its rows; "seen" means in a public trace that the
tests read.
"""

from __future__ import annotations

from foretrace.operators.classes import OperatorClass
from foretrace.operators.rule import rule

HOST_COPY = "memory copy to or from host"  # bounded by the link to the host
_E = OperatorClass.ELEMENTWISE
_R = OperatorClass.REDUCTION
_I = OperatorClass.INDEXING
_O = OperatorClass.OPTIMIZER

# Copies and fills as Kineto names them (seen).
TRANSFERS = (
    rule(HOST_COPY, OperatorClass.COPY, "memcpy htod", "memcpy dtoh", "copyhosttodevice"),
    rule(HOST_COPY, OperatorClass.COPY, "copydevicetohost"),
    rule("memory copy", OperatorClass.COPY, "memcpy", "copybuffer", "copydevicetodevice"),
    rule("MTIA memory copy", OperatorClass.COPY, "dma_request"),
    rule("memory fill", OperatorClass.COPY, "memset", "fillbuffer"),
)

LOSSES = (
    # seen: cunn_ClassNLLCriterion, nll_loss_forward_reduce_cuda_kernel_2d; apex contrib xentropy;
    # Liger and TransformerEngine Triton kernels; ATen LossCTC.cu
    rule(
        "cross entropy",
        OperatorClass.LOSS,
        "nllcriterion",
        "nll_loss",
        "cross_entropy",
        "xentropy",
        "crossentropy",
    ),
    rule(
        "other loss",
        OperatorClass.LOSS,
        "ctc_loss",
        "mse_kernel",
        "mse_loss",
        "smooth_l1",
        "huber",
        "binary_cross",
        "multimarginloss",
        "multimargin_loss",
        "multilabelmargin",
    ),
)

EMBEDDINGS = (
    # of positions: vLLM, Megatron, TransformerEngine, Liger; no table is read
    rule("rotary embedding", _E, "rotary", "_rope", "rope_kernel", "rope_forward", "rope_backward"),
    # pytorch/FBGEMM fbgemm_gpu/codegen (seen)
    rule(
        "FBGEMM table batched embedding",
        OperatorClass.EMBEDDING,
        "split_embedding",
        "embedding_codegen",
        "dense_embedding",
        "embedding_backward",
        "ssd_embedding",
    ),
    rule(
        "FBGEMM sparse data",
        _I,
        "fbgemm*permute",
        "permute_pooled_embs",
        "bounds_check_indices",
        "linearize_index",
        "recat_copy",
        "fbgemm*jagged",
        "fbgemm*offsets",
        "fbgemm*lengths",
        "to_dense_representation",
        "permute_2d_data",
        "permute_indices",
        "block_bucketize",
    ),
    rule("FBGEMM quantisation", _E, "fbgemm*quantize", "fbgemm*hfp8", "_hfp8_", "float_to_hfp"),
    # ATen native/cuda/Embedding*.cu
    rule(
        "ATen embedding",
        OperatorClass.EMBEDDING,
        "embeddingbag",
        "embedding",
        "krn_partial",
        "compute_grad_weight",
        "sum_and_scatter",
        # rows of a table by index: what aten::embedding launches, through aten::index_select
        "indexselect",
        "vectorized_gather_kernel",
    ),
)

OPTIMIZERS = (
    # NVIDIA/apex csrc/multi_tensor_*.cu, ATen native/cuda/Foreach*.cu and Fused*.cu (seen),
    # deepspeedai/DeepSpeed csrc/adam, csrc/lamb
    rule(
        "multi-tensor optimizer", _O, "multi_tensor*adam", "multi_tensor*sgd", "multi_tensor*lamb"
    ),
    rule("multi-tensor apply", _O, "multi_tensor_apply", "multitensorapply", "foreach"),
    rule(
        "optimizer",
        _O,
        "adamfunctor",
        "adam_",
        "_adam",
        "adamw",
        "fusedadam",
        "sgd_",
        "_sgd",
        "fusedsgd",
        "lamb_cuda",
        "adagrad",
        "adafactor",
        "rmsprop",
        "_lion",
        "optimizer_",
        "optimizer8bit",
        "optimizer32bit",
        "muon",
    ),
)

MOVES = (
    # ATen native/cuda: Copy.cu, Shape.cu, FillKernel.cu, TensorTransformations.cu (seen)
    rule(
        "ATen concatenate",
        OperatorClass.COPY,
        "catarray",
        "cat_array",
        "chunk_cat",
        "split_with_sizes",
    ),
    rule(
        "ATen copy or cast",
        OperatorClass.COPY,
        "direct_copy",
        "copy_device_to_device",
        "bfloat16_copy",
        "float8_copy",
        "float16_copy",
        "copy_kernel",
        "conj_kernel",
        "copy_cast",
        "cast_kernel",
    ),
    rule("ATen fill", OperatorClass.COPY, "fillfunctor", "fill_kernel", "fill_reverse"),
    rule(
        "transpose or permute",
        OperatorClass.COPY,
        "transpose",
        "permute",
        "roll_cuda",
        "flip_cuda",
        "flip_kernel",
    ),
)

GENERAL = (
    # ATen native/cuda: Indexing, ScatterGather, Sorting, Unique; cub and thrust (seen)
    rule("ATen gather or scatter", _I, "scatter_gather", "gather", "scatter"),
    rule(
        "ATen index",
        _I,
        "index_elementwise",
        "index_put",
        "index_kernel",
        "indexing_backward",
        "indexfunc",
        "indexcopy",
        "index_copy",
        "index_add",
        "index_fill",
        "masked_select",
        "masked_scatter",
        "take_kernel",
        "::put_kernel",
        "nonzero",
        "flatten_index",
        "repeat_interleave",
        "compute_cuda_kernel",
    ),
    rule(
        "sort, top-k or unique",
        _I,
        "radixsort",
        "radix_sort",
        "bitonic",
        "topk",
        "sort",
        "unique",
        "mergesort",
        "kthvalue",
        "radixselect",
        "radixfind",
        "computeblockwise",
        "computedigitcumsum",
        "histogram",
        "bucketize",
        "searchsorted",
        "deviceselect",
        "reducebykey",
        "devicerunlength",
        "rle_kernel",
    ),
    # cub and thrust primitives; ATen ScanKernels.cu; pooling; Reduce.cuh (seen)
    rule(
        "prefix sum",
        _R,
        "devicescan",
        "tensor_kernel_scan",
        "cumsum",
        "scan_kernel",
        "scanby",
        "tensor_scan",
    ),
    rule("pooling", _R, "pool", "average_pool"),
    rule("cub reduction", _R, "devicereduce", "devicesegmentedreduce", "singletilekernel"),
    rule("ATen reduction", _R, "reduce_kernel", "reduce_", "reduceop", "argmax", "welford"),
    rule("cub or thrust", _I, "cub::", "thrust::", "rocprim::", "hipcub::"),
    # gated kernels of vLLM, Megatron, TransformerEngine, Liger; ATen Dropout.cu
    rule("gated activation", _E, "act_and_mul", "swiglu", "geglu", "silu_and_mul", "gated_"),
    rule(
        "bias and activation",
        _E,
        "bias_gelu",
        "bias_dropout",
        "fused_bias",
        "add_bias",
        "bias_add",
        "bias_relu",
        "bias_act",
    ),
    rule(
        "dropout or random numbers",
        _E,
        "dropout",
        "distribution_",
        "philox",
        "curand",
        "random",
        "bernoulli",
    ),
    rule("quantisation", _E, "quant", "scaled_fp8", "cvt_fp", "to_fp8", "amax"),
    rule("ATen elementwise", _E, "elementwise", "pointwise", "loops_kernel"),
    rule(
        "ATen elementwise",
        _E,
        "triu_tril",
        "tril",
        "triu",
        "arange",
        "range_",
        "linspace",
        "upsample",
        "interpolate",
        "grid_sampl",
        "reflection_pad",
        "replication_pad",
        "pad_",
    ),
    rule("activation", _E, "gelu", "silu", "relu", "sigmoid", "tanh", "activation"),
    # busy waiting, as torch.cuda._sleep does (seen)
    rule("spin", OperatorClass.OTHER, "spin_kernel"),
    rule("DeepSpeed", OperatorClass.OTHER, "deepspeed"),
    rule("apex", OperatorClass.OTHER, "apex"),
    rule("TransformerEngine", OperatorClass.OTHER, "transformer_engine"),
)
