"""What runtime calls do, and which operations communicate."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import collective_kind_of
from foretrace.trace import RuntimeRole, is_communication, role_of, runtime_role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cudaLaunchKernel", RuntimeRole.LAUNCH),
        ("cudaLaunchKernelExC", RuntimeRole.LAUNCH),
        ("cuLaunchKernel", RuntimeRole.LAUNCH),
        ("cuLaunchKernelEx", RuntimeRole.LAUNCH),
        ("cudaGraphLaunch", RuntimeRole.LAUNCH),
        ("cudaGraphLaunch_v10000", RuntimeRole.LAUNCH),
        ("cudaMemcpyAsync", RuntimeRole.LAUNCH),
        ("cudaMemcpyAsync_ptsz", RuntimeRole.LAUNCH),
        ("cudaMemsetAsync", RuntimeRole.LAUNCH),
        ("cuMemcpyHtoDAsync_v2", RuntimeRole.LAUNCH),
        ("hipLaunchKernel", RuntimeRole.LAUNCH),
        ("hipExtModuleLaunchKernel", RuntimeRole.LAUNCH),
        ("hipModuleLaunchKernel", RuntimeRole.LAUNCH),
        ("hipMemcpyWithStream", RuntimeRole.BLOCKING_COPY),
        ("cudaMemcpy", RuntimeRole.BLOCKING_COPY),
        ("cudaStreamSynchronize", RuntimeRole.SYNC_STREAM),
        ("cudaDeviceSynchronize", RuntimeRole.SYNC_DEVICE),
        ("hipDeviceSynchronize", RuntimeRole.SYNC_DEVICE),
        ("cuCtxSynchronize", RuntimeRole.SYNC_DEVICE),
        ("cudaEventSynchronize", RuntimeRole.SYNC_EVENT),
        ("cudaEventRecord", RuntimeRole.EVENT_RECORD),
        ("cudaEventRecordWithFlags", RuntimeRole.EVENT_RECORD),
        ("cudaStreamWaitEvent", RuntimeRole.STREAM_WAIT),
        ("cudaEventQuery", RuntimeRole.QUERY),
        ("recordEvent", RuntimeRole.EVENT_RECORD),
        ("enqueueCommand waitOnEvent", RuntimeRole.STREAM_WAIT),
        ("cudaMalloc", RuntimeRole.ALLOCATION),
        ("cudaStreamCreateWithFlags", RuntimeRole.OTHER),
        ("LaunchKernel", RuntimeRole.OTHER),
        ("INVALID", RuntimeRole.OTHER),
        ("", RuntimeRole.OTHER),
    ],
)
def test_a_call_is_known_by_its_name(name: str, role: RuntimeRole) -> None:
    assert role_of(name) == role


def test_roles_of_many_names_are_a_column() -> None:
    roles = runtime_role(("cudaEventQuery", "aten::mm", "cudaLaunchKernel"))

    assert roles.dtype == np.uint8
    assert roles.tolist() == [RuntimeRole.QUERY, RuntimeRole.OTHER, RuntimeRole.LAUNCH]
    assert runtime_role(()).shape == (0,)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "allreduce"),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, ncclWork*)", "allreduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reducescatter"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "allgather"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "sendrecv"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", "reduce"),
        ("ncclDevKernel_Generic(ncclDevComm*, AllReduce)", "unknown"),
        ("gloo:all_reduce", "allreduce"),
        ("gloo:all_to_all", "alltoall"),
        ("gloo:send", "send"),
        ("gloo:barrier", "barrier"),
        ("nccl:_all_gather_base", "allgather"),
        ("void vllm::cross_device_reduce_1stage<half, 8>(x)", "allreduce"),
        ("two_shot_all_reduce_kernel", "allreduce"),
        ("void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*)", "alltoall"),
        ("void deep_ep::intranode::dispatch<8, 768>(int4*)", "alltoall"),
        ("void deep_ep::internode_ll::dispatch<true>(x)", "alltoall"),
        ("void quickreduce::allreduce_prototype_twoshot<x>(y)", "allreduce"),
        ("void mscclpp::collective::allreducePacket<x>(y)", "allreduce"),
    ],
)
def test_communication_is_known_by_its_name(name: str, kind: str) -> None:
    assert is_communication(name)
    assert collective_kind_of(name) == kind


@pytest.mark.parametrize(
    "name",
    ["aten::mm", "volta_sgemm_64x64_tn", "void at::native::reduce_kernel<512>",
     "record_param_comms",
     "void at::native::vectorized_gather_kernel<16>", "Memcpy DtoD", ""],
)  # fmt: skip
def test_computation_is_no_communication(name: str) -> None:
    assert not is_communication(name)
