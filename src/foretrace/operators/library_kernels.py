"""Kernels of libraries: communication, attention, convolution, normalisation, products.

Where a pattern is known from is said above its rows; "seen" means in a public trace that the
tests read.
"""

from __future__ import annotations

from foretrace.operators.classes import OperatorClass
from foretrace.operators.rule import rule

_A = OperatorClass.ATTENTION
_C = OperatorClass.CONVOLUTION
_N = OperatorClass.NORMALISATION
_G = OperatorClass.GEMM
_I = OperatorClass.INDEXING

# NCCL's and RCCL's kernels share their names (seen; rccl/src/device/common.h: `rcclGenericKernel`).
_NCCL = tuple(
    rule(f"NCCL/RCCL {what}", OperatorClass.COLLECTIVE, f"nccl*{text}")
    for what, text in (
        ("all-reduce", "allreduce"),
        ("all-gather", "allgather"),
        ("reduce-scatter", "reducescatter"),
        ("send/recv", "sendrecv"),
        ("broadcast", "broadcast"),
        ("reduce", "reduce"),
        ("all-to-all", "alltoall"),
    )
)
COMMUNICATION = (
    *_NCCL,
    rule("RCCL", OperatorClass.COLLECTIVE, "rccl"),
    rule("NCCL/RCCL", OperatorClass.COLLECTIVE, "nccldevkernel", "ncclkernel", "nccl_"),
    # vLLM csrc/custom_all_reduce.cuh, csrc/quickreduce; PyTorch CUDASymmetricMemoryOps.cu
    rule(
        "custom all-reduce",
        OperatorClass.COLLECTIVE,
        "cross_device_reduce",
        "quickreduce",
        "one_shot_all_reduce",
        "two_shot_all_reduce",
        "oneshotallreduce",
        "twoshotallreduce",
        "allreduce_fusion_kernel",
        "multimem_all_reduce",
        "multimem_one_shot",
        "multimem_all_gather",
    ),
    # deepseek-ai/DeepEP csrc/kernels (seen as dpsk::ep::internode::dispatch); microsoft/mscclpp
    rule("DeepEP", OperatorClass.COLLECTIVE, "deep_ep", "::internode::", "::intranode::"),
    rule("DeepEP", OperatorClass.COLLECTIVE, "::internode_ll::"),
    rule("mori", OperatorClass.COLLECTIVE, "mori::moe::ep"),
    rule("NVSHMEM", OperatorClass.COLLECTIVE, "nvshmem"),
    rule("MSCCL++", OperatorClass.COLLECTIVE, "mscclpp"),
)

ATTENTION = (
    # Dao-AILab/flash-attention: hopper/, csrc/flash_attn/src, and v1's csrc/flash_attn
    rule("FlashAttention-3 forward", _A, "flashattnfwd"),
    rule("FlashAttention-3 backward", _A, "flashattnbwd"),
    rule("FlashAttention-2 forward", _A, "flash_fwd"),
    rule("FlashAttention-2 backward", _A, "flash_bwd"),
    # xformers and PyTorch's memory-efficient attention (mem_eff_attention/kernels)
    rule("CUTLASS attention forward", _A, "fmha_cutlassf", "attention_kernel_batched_impl"),
    rule("CUTLASS attention backward", _A, "fmha_cutlassb"),
    # cuDNN's generated engines: cudnn_generated_fort_native_sdpa_sm90_flash_fprop_...
    rule("cuDNN attention backward", _A, "cudnn*sdpa*bprop", "cudnn*flash_bprop"),
    rule("cuDNN attention forward", _A, "cudnn*sdpa", "cudnn*flash_fprop"),
    rule("cuDNN attention backward", _A, "cudnn::fusion::compute_dot_do_o", "convert_dq_to_16bits"),
    # ROCm/composable_kernel ck_tile/ops/fmha; ROCm/aiter; ROCm/aotriton (`attn_fwd` seen)
    rule("Composable Kernel attention backward", _A, "ck_tile*fmhabwd"),
    rule("Composable Kernel attention forward", _A, "ck_tile*fmha"),
    rule(
        "aiter attention", _A, "aiter*fmha", "aiter*attn", "aiter*_mla", "aiter::mla", "aiter*pa_"
    ),
    rule("AOTriton attention forward", _A, "attn_fwd"),
    rule(
        "AOTriton attention backward",
        _A,
        "attn_bwd",
        "bwd_kernel_dk_dv",
        "bwd_kernel_dq",
        "bwd_kernel_fuse",
        "bwd_preprocess",
    ),
    # flashinfer-ai/flashinfer include/flashinfer/attention
    rule(
        "FlashInfer attention",
        _A,
        "flashinfer*prefill",
        "flashinfer*decode",
        "flashinfer*attention",
        "mergestates",
        "batchprefillwith",
        "batchdecodewith",
    ),
    # vllm-project/vllm csrc/attention, vllm/attention/ops
    rule("vLLM paged attention", _A, "paged_attention", "kernel_unified_attention"),
    rule("vLLM cache write", OperatorClass.COPY, "reshape_and_cache", "concat_and_cache"),
    # NVIDIA/TensorRT-LLM kernels; NVIDIA/apex contrib fmha (FlashAttention 1)
    rule("TensorRT-LLM attention", _A, "fmha_v2", "masked_multihead_attention", "fmhasm"),
    rule("FlashAttention-1 forward", _A, "fmha_fprop", "fmha_fwd"),
    rule("FlashAttention-1 backward", _A, "fmha_dgrad", "fmha_bwd", "fmha_block_dgrad"),
    # pytorch torch/_inductor/kernel/flex
    rule("Triton FlexAttention", _A, "flex_attention", "flex_decoding"),
    # state-spaces/mamba, fla-org/flash-linear-attention
    rule("linear attention and state space", _A, "selective_scan", "chunk_scan", "chunk_state"),
    rule("other fused attention", _A, "fused_attention", "flash_attn", "_attn_kernel", "sdpa"),
)

CONVOLUTIONS = (
    # layouts changed around a convolution (seen)
    rule("cuDNN layout change", OperatorClass.COPY, "nchwtonhwc", "nhwctonchw", "nchw2nhwc"),
    rule("MIOpen layout change", OperatorClass.COPY, "batched_transpose"),
    # cuDNN 7 to 9 (seen); cask_cudnn is its kernel library
    rule(
        "cuDNN convolution",
        _C,
        "scudnn",
        "hcudnn",
        "cudnn::cnn",
        "implicit_convolve",
        "explicit_convolve",
        "cudnn*winograd",
        "dgrad_engine",
        "wgrad_alg",
        "reduce_wgrad",
        "cutlass_cudnn",
        "cask_cudnn",
        "xmma_fprop",
        "xmma_dgrad",
        "xmma_wgrad",
        "xmma*implicit_gemm",
        "scalepackedtensor",
        "fft2d_",
        "flip_filter",
        "cudnn*conv",
        "cudnn*fprop",
        "cudnn*dgrad",
        "cudnn*wgrad",
        "cudnn*3x_sm",
        "cudnn*im2col",
    ),
    # ROCm/MIOpen src/kernels, ROCm/composable_kernel (`SubTensorOpWithScalar` seen)
    rule("MIOpen batch normalisation", _N, "miopenbatchnorm", "miopen*batchnorm", "mloprbn"),
    rule(
        "MIOpen convolution",
        _C,
        "miopen*conv",
        "mlopen",
        "miopensp3asm",
        "igemm_fwd",
        "igemm_bwd",
        "igemm_wrw",
        "gridwise_convolution",
        "naive_conv",
        "gcnasmconv",
        "subtensoropwithscalar",
        "subtensoropwithtransform",
    ),
    rule("MIOpen", OperatorClass.OTHER, "miopen"),
    rule(
        "Composable Kernel convolution",
        _C,
        "grouped_conv",
        "groupedconv",
        "kernel_conv",
        "ck*convolution",
        "devicegroupedconv",
    ),
    # ATen native/cuda: DepthwiseConv2d.cu, im2col.cuh, vol2col.cuh
    rule("ATen convolution", _C, "conv_depthwise", "im2col", "col2im", "vol2col", "col2vol"),
    rule("other convolution", _C, "winograd", "convolution", "causal_conv1d", "_conv2d", "_conv1d"),
)

NORMALISATIONS = (
    rule("cuDNN batch normalisation", _N, "bn_fw_", "bn_bw_", "cudnn*batchnorm", "cudnn*bn_"),
    # NVIDIA/TransformerEngine common/normalization
    rule(
        "TransformerEngine normalisation", _N, "transformer_engine*norm", "transformer_engine*ln_"
    ),
    # NVIDIA/apex csrc/layer_norm_cuda_kernel.cu (seen), contrib/csrc/layer_norm
    rule("apex fused layer norm", _N, "cuapplylayernorm", "cuapplyrmsnorm", "layer_norm::ln_"),
    # vLLM csrc/layernorm_kernels.cu
    rule("vLLM normalisation", _N, "vllm*norm"),
    # ATen native/cuda/{layer_norm,group_norm,Normalization}*: partly without `norm` in the name
    rule(
        "ATen normalisation",
        _N,
        "layer_norm",
        "layernorm",
        "gammabeta",
        "cucomputegrad",
        "cucomputepartgrad",
        "rowwisemoments",
        "group_norm",
        "groupnorm",
        "computefusedparams",
        "backwardfusedparams",
        "computeinternalgradients",
        "batch_norm",
        "batchnorm",
        "weight_norm",
        "renorm",
    ),
    rule("RMS norm", _N, "rms_norm", "rmsnorm"),
    rule("other normalisation", _N, "_norm_fwd", "_norm_bwd", "instance_norm", "ln_fwd", "ln_bwd"),
)

SOFTMAXES = (
    # Megatron fused_kernels/scaled_*_softmax.h (seen)
    rule(
        "Megatron fused softmax",
        OperatorClass.SOFTMAX,
        "scaled_upper_triang_masked_softmax",
        "scaled_masked_softmax",
        "scaled_softmax",
        "scaled_aligned_causal",
    ),
    rule(
        "ATen softmax", OperatorClass.SOFTMAX, "cunn_softmax", "softmax_warp", "cunn_spatialsoftmax"
    ),
    rule("mixture of experts routing", _I, "topkgatingsoftmax", "topk_softmax", "grouped_topk"),
    rule("other softmax", OperatorClass.SOFTMAX, "softmax"),
)

PRODUCTS = (
    # vLLM/SGLang fused experts, DeepGEMM, weight-only formats
    rule("mixture of experts gemm", _G, "fused_moe", "moe_gemm", "grouped_gemm", "moe_wna16"),
    rule("mixture of experts routing", _I, "moe_align", "moe_permute", "moe_unpermute", "moe_sum"),
    rule("DeepGEMM", _G, "deep_gemm", "deepgemm"),
    rule("weight-only gemm", _G, "marlin", "gptq", "awq_gemm", "machete", "kgemm_4bit"),
    # ROCm/Tensile (`Cijk_...` seen), used by rocBLAS and hipBLASLt; which, `UserArgs` tells
    rule("hipBLASLt gemm (Tensile)", _G, "cijk_*userargs"),
    rule("rocBLAS gemm (Tensile)", _G, "cijk_"),
    rule("rocBLAS", _G, "rocblas"),
    rule("Composable Kernel gemm", _G, "ck::*gemm", "ck_tile*gemm", "kernel_gemm_xdl", "xdlops"),
    rule("aiter gemm", _G, "aiter*gemm"),
    rule("vLLM skinny gemm", _G, "wvsplitk", "llgemm1"),
    # cuBLAS 12.6 and newer on sm_90 and sm_100 (seen on H100)
    rule("cuBLAS gemm (nvjet)", _G, "nvjet"),
    rule("CUTLASS 3 gemm", _G, "cutlass3x_", "cutlass::device_kernel*gemm"),
    rule("Triton gemm", _G, "triton_mm", "triton_bmm", "triton_tem_*mm", "triton_tem*linear"),
    rule("CUTLASS gemm", _G, "cutlass*gemm"),
    rule("cuBLAS gemm (xmma)", _G, "xmma_gemm", "xmma*gemm"),
    # what finishes a product: sums of its parts, a bias, an activation (seen)
    rule("cuBLAS split-K reduction", _G, "splitkreduce", "splitk_reduce"),
    rule("cuBLAS epilogue", _G, "epilogue::impl"),
    # matrix-vector and dot products (seen)
    rule("cuBLAS gemv", _G, "gemv", "gemvnsp", "gemv2"),
    rule("cuBLAS dot", _G, "cublas*dot_kernel", "cublas*reduce_1block", "dot_kernel"),
    rule("cuBLAS gemm", _G, "gemm", "gemmsn", "gemmk1", "cublas"),
    rule("CUTLASS", _G, "cutlass"),
    rule("other gemm", _G, "matmul", "_mm_kernel", "bgmv", "sgmv"),
    rule("cuSOLVER or MAGMA", OperatorClass.OTHER, "cusolver", "magma_", "getrf", "trsm", "potrf"),
    rule(
        "FFT",
        OperatorClass.OTHER,
        "cufft",
        "rocfft",
        "vector_fft",
        "regular_fft",
        "multi_bluestein",
    ),
    rule("recurrent network", OperatorClass.OTHER, "rnn_", "lstm_cell", "gru_cell", "lstm", "gru_"),
)
