from __future__ import annotations

import pytest

from foretrace.exchange.anonymised.public import (
    is_public_frame,
    is_public_group,
    is_public_kernel,
    is_public_operator,
    is_public_type,
    is_public_value,
)


@pytest.mark.parametrize(
    ("name", "is_public"),
    [
        ("aten::addmm", True),
        ("aten::add_.Tensor", True),
        ("acme::addmm", False),
        ("fbgemm::permute", False),
        ("AddmmBackward0", True),
        ("AddmmBackward", True),
        ("TitanBackward", False),
        ("autograd::engine::evaluate_function: AddmmBackward0", True),
        ("autograd::engine::evaluate_function: TitanBackward", False),
        ("torch::autograd::CppNode<acme::Titan>", False),
        ("Optimizer.step#AdamW.step", True),
        ("Optimizer.step#Titan.step", False),
        ("## forward ##", True),
        ("## forward: titan ##", False),
        ("nccl:all_reduce", True),
        ("nccl:send 0->1", True),
        ("ProfilerStep#12", True),
        ("cudaLaunchKernel", True),
        ("triton_poi_fused_add_mul_tanh_0", True),
    ],
)
def test_operators_of_pytorch_are_told_from_others(name: str, is_public: bool) -> None:
    assert is_public_operator(name, frozenset({"addmm"})) is is_public


@pytest.mark.parametrize(
    ("name", "is_public"),
    [
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)", True),
        ("void at::native::vectorized_elementwise_kernel<4, acme::Titan>(int)", False),
        ("void at::native::unrolled_elementwise_kernel<Titan, at::detail::Array>(int)", False),
        ("void (anonymous namespace)::softmax_warp_forward<float, 10>(float*)", True),
        ("void (anonymous namespace)::titan_forward<float, 10>(float*)", False),
        ("ampere_fp16_s16816gemm_fp16_256x64_ldg8_f2f_tn", True),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long)", True),
        ("Memcpy HtoD (Pinned -> Device)", True),
        ("titan_kernel", False),
        ("titan_gemm_kernel(float*)", False),
        ("_ZN5titan6kernelEv", False),
        ("", False),
    ],
)
def test_a_kernel_is_public_only_if_every_name_in_it_is(name: str, is_public: bool) -> None:
    assert is_public_kernel(name) is is_public


@pytest.mark.parametrize(
    ("name", "is_public"),
    [
        ("torch/nn/modules/module.py(1915): __getattr__", True),
        ("/home/jane/torch/nn/modules/module.py(1): f", False),
        ("nn.Module: Linear_12", True),
        ("nn.Module: TitanMixer_12", False),
        ("<built-in method run of titan object at 0x7f>", False),
    ],
)
def test_python_frames_are_public_if_they_are_torch_s_own(name: str, is_public: bool) -> None:
    assert is_public_frame(name) is is_public


def test_values_types_and_groups_are_public_if_every_word_is() -> None:
    assert all(map(is_public_value, ["[1, -1, 4096]", "False", "cuda:0", "allreduce", "1e-05"]))
    assert not any(map(is_public_value, ["jane", "[1, 'x']", "bhqd,bhkd->bhqk", "s3://bucket"]))
    assert all(map(is_public_group, ["0", "default_pg", "tp", "pp_1"]))
    assert not is_public_group("titan_experts")
    assert all(map(is_public_type, ["GenericList[Tensor(c10::Half),Int]", "Tensor(long int)", ""]))
    assert not is_public_type("__torch__.acme.Titan")
