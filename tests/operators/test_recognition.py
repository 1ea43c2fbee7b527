from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretrace.base import TraceError
from foretrace.operators import (
    UNRECOGNISED,
    OperatorClass,
    kernel_family,
    operator_class,
    recognised,
)
from foretrace.trace import Category, load_traces

MAX_UNRECOGNISED = 0.05
# Its device rows are named for packets of a command processor ("merge", "pe_exe"), not kernels.
UNNAMED_WORK = {"odd-files/mtia_inference_rank_0.json.gz"}

# name, operator that launched it, class, family; names as traces and sources have them
NAMES = [
    # products
    ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "aten::mm", "gemm",
     "cuBLAS gemm"),
    ("volta_sgemm_32x128_tn", "aten::addmm", "gemm", "cuBLAS gemm"),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", "aten::mm", "gemm", "cuBLAS gemm (nvjet)"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8>",
     "", "gemm", "CUTLASS gemm"),
    ("cutlass3x_sm90_tensorop_s64x128x16gemm_bf16", "aten::mm", "gemm", "CUTLASS 3 gemm"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "", "gemm",
     "cuBLAS gemm (xmma)"),
    ("void splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)", "aten::mm", "gemm",
     "cuBLAS split-K reduction"),
    ("void epilogue::impl::globalKernel<float, float, float, true, true>(int)", "", "gemm",
     "cuBLAS epilogue"),
    ("void gemv2T_kernel_val<int, int, float, float, float>", "aten::addmm", "gemm", "cuBLAS gemv"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64", "aten::addmm", "gemm",
     "hipBLASLt gemm (Tensile)"),
    ("Cijk_Ailk_Bljk_SB_MT64x64x16_MI16x16x4x1_SN", "aten::mm", "gemm", "rocBLAS gemm (Tensile)"),
    ("triton_tem_fused_mm_3", "", "gemm", "Triton gemm template"),
    ("triton_mm", "aten::mm", "gemm", "Triton gemm"),
    ("fused_moe_kernel", "", "gemm", "mixture of experts gemm"),
    # attention
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>",
     "aten::_flash_attention_forward", "attention", "FlashAttention-2 forward"),
    ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>", "",
     "attention", "FlashAttention-2 backward"),
    ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::Collective>>>",
     "", "attention", "FlashAttention-3 forward"),
    ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "", "attention", "CUTLASS attention forward"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", "",
     "attention", "cuDNN attention forward"),
    ("attn_fwd", "aten::_flash_attention_forward", "attention", "AOTriton attention forward"),
    ("void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmha>>", "", "attention",
     "Composable Kernel attention forward"),
    ("void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16>", "",
     "attention", "vLLM paged attention"),
    # convolution: also by what does a product inside one
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "", "convolution",
     "cuDNN convolution"),
    ("void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5>", "", "convolution",
     "cuDNN convolution"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "", "convolution",
     "cuDNN convolution"),
    ("volta_sgemm_64x64_nt", "aten::cudnn_convolution_backward_weight", "convolution",
     "cuBLAS gemm"),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float>", "aten::convolution_backward", "copy",
     "cuDNN layout change"),
    # normalisation, softmax, loss
    ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>", "", "normalisation",
     "cuDNN batch normalisation"),
    ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>", "",
     "normalisation", "ATen normalisation"),
    ("void cuApplyLayerNorm<c10::Half, float, c10::Half>", "", "normalisation",
     "apex fused layer norm"),
    ("void scaled_upper_triang_masked_softmax_warp_forward<c10::Half, c10::Half, float, 11>", "",
     "softmax", "Megatron fused softmax"),
    ("void at::native::cunn_SoftMaxForward<4, float, float, float>", "", "softmax", "ATen softmax"),
    ("void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>", "", "loss",
     "cross entropy"),
    # elementwise, reductions, copies: the functor tells, not the loop around it
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "",
     "elementwise", "ATen elementwise"),
    ("void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned>", "",
     "elementwise", "dropout or random numbers"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps>>", "",
     "reduction", "ATen reduction"),
    ("void cub::DeviceReduceSingleTileKernel<cub::DeviceReducePolicy<int>>", "", "reduction",
     "cub reduction"),
    ("void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda()::{lambda()#2}>", "",
     "copy",
     "ATen copy or cast"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2>", "",
     "copy", "ATen concatenate"),
    ("Memcpy DtoD (Device -> Device)", "aten::copy_", "copy", "memory copy"),
    ("Memcpy HtoD (Pinned -> Device)", "aten::copy_", "copy", "memory copy to or from host"),
    # indexing and embeddings: the operator tells which
    ("void at::native::(anonymous namespace)::indexing_backward_kernel<float, 4>",
     "aten::embedding_dense_backward", "embedding", "ATen index"),
    ("void at::native::(anonymous namespace)::indexing_backward_kernel<float, 4>",
     "aten::index_put_", "indexing", "ATen index"),
    ("void at::native::elementwise_kernel_with_index<int, at::native::arange_cuda_out>", "",
     "elementwise", "ATen elementwise"),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>", "", "elementwise",
     "rotary embedding"),
    ("split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1", "",
     "embedding", "FBGEMM table batched embedding"),
    # optimizers
    ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>",
     "aten::add_", "optimizer", "multi-tensor optimizer"),
    # Triton, by what it fused
    ("triton_poi_fused_add_cos_sin_0", "", "elementwise", "Triton fused pointwise"),
    ("triton_poi_fused__to_copy_transpose_2", "", "copy", "Triton fused pointwise"),
    ("triton_per_fused_add_native_layer_norm_4", "", "normalisation", "Triton fused reduction"),
    ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1", "", "normalisation",
     "Triton fused reduction"),
    ("triton_per_fused__softmax_7", "", "softmax", "Triton fused reduction"),
    ("triton_red_fused_sum_1", "", "reduction", "Triton fused reduction"),
    ("triton_poi_fused_convolution_relu_5", "", "elementwise", "Triton fused pointwise"),
    ("triton_tem_fused_flex_attention_0", "", "attention", "Triton attention template"),
    # communication
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "", "collective",
     "NCCL/RCCL all-reduce"),
    # operators on the host
    ("aten::mm", "aten::mm", "gemm", "aten mm"),
    ("aten::add_", "aten::add_", "elementwise", "aten add"),
    ("aten::native_layer_norm_backward", "", "normalisation", "aten native_layer_norm_backward"),
    ("aten::_fused_adamw_", "", "optimizer", "aten _fused_adamw"),
    ("aten::cross_entropy_loss", "", "loss", "aten cross_entropy_loss"),
    ("aten::view", "", "other", "aten view"),
    ("AddBackward0", "", "elementwise", "operator add_backward"),
    ("AddmmBackward0", "", "gemm", "operator addmm_backward"),
    ("autograd::engine::evaluate_function: MmBackward0", "", "gemm", "autograd mm_backward"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operator", "kind", "family"), NAMES)
def test_class_and_family_of_a_name(name: str, operator: str, kind: str, family: str) -> None:
    assert (str(operator_class(name, operator)), kernel_family(name, operator)) == (kind, family)


def test_name_that_says_nothing_takes_its_operators_class() -> None:
    found = recognised("my_kernel", "aten::_softmax")

    assert found.kind == OperatorClass.SOFTMAX
    assert found.is_recognised


def test_name_and_operator_that_say_nothing_are_unrecognised() -> None:
    found = recognised("frobnicate<4>", "MyFunction")

    assert (found.kind, found.family, found.is_recognised) == (
        OperatorClass.OTHER,
        UNRECOGNISED,
        False,
    )


def test_lambda_in_a_functor_is_no_optimizer() -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, gelu()::{lambda()#1}>"

    assert operator_class(name) == OperatorClass.ELEMENTWISE


@pytest.mark.slow
def test_nearly_all_device_time_of_every_public_trace_is_recognised_by_names_alone(
    data_dir: Path,
) -> None:
    root = data_dir / "traces"
    checked = 0
    for path in sorted(root.rglob("*.json.gz")):
        try:
            (trace,) = load_traces([path])
        except TraceError:  # not a profiler's file
            continue
        rows = np.flatnonzero(
            np.isin(trace.category, (Category.KERNEL, Category.MEMCPY, Category.MEMSET))
        )
        if not len(rows) or str(path.relative_to(root)) in UNNAMED_WORK:
            continue
        time_ns = np.bincount(trace.name[rows], weights=trace.duration_ns[rows])
        unknown_ns = sum(
            time_ns[name]
            for name in np.flatnonzero(time_ns)
            if not recognised(trace.strings[name]).is_recognised
        )
        assert unknown_ns <= MAX_UNRECOGNISED * time_ns.sum(), path
        checked += 1

    assert checked >= 20
