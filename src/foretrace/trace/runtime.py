"""What a call does, by its name: launch, wait, record, ask; and which operations communicate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s, used_positions

# NCCL up to 2.18 names kernels ncclKernel_*, later ncclDevKernel_* and ncclSymkDevKernel_*; RCCL
# does the same. After the colon: how c10d annotates the work of a backend. Then kernels that
# frameworks bring themselves: PyTorch's symmetric memory, vLLM, TensorRT-LLM, NVSHMEM, DeepEP
# (whatever its outer namespace is called: `dpsk::ep::internode::combine`), MSCCL++, AMD's quick
# all-reduce, Transformer Engine's user buffers, TensorRT-LLM's and FlashInfer's all-reduces
# (customAllReduceKernels.cu: `oneShotAllReduceKernel`; trtllm_mnnvl_allreduce.cuh), ROCm/mori's
# experts (`mori::moe::EpDispatchInterNodeKernel`).
_COMMUNICATION = re.compile(
    r"(?:void )?(?:nccl|rccl|msccl|oneccl|ccl_)"
    r"|(?:gloo|nccl|mpi|ucc|xccl|rccl):"
    r"|.*(?:(?:one|two)_?shot_?all_?reduce|multimem_all_reduce|multimem_one_shot"
    r"|cross_device_reduce|quickreduce|nvshmem|mscclpp|deep_ep::"
    r"|::(?:internode|intranode)(?:_ll)?::|userbuffers_|allreduce_fusion_kernel"
    r"|mori::moe::ep(?:dispatch|combine))",
    re.IGNORECASE,
)
# What a user states that a kernel is stands behind its name: `my_kernel [as gemm]`.
_STATED = re.compile(r" \[as (\w+)\]$")


class RuntimeRole(IntEnum):
    """What a runtime call means for the order of work."""

    OTHER = 0  # host work like any other
    LAUNCH = 1  # starts device operations and returns
    BLOCKING_COPY = 2  # starts a copy and waits for it
    SYNC_STREAM = 3  # waits until a stream is idle
    SYNC_DEVICE = 4  # waits until the device is idle
    SYNC_EVENT = 5  # waits until an event has happened
    EVENT_RECORD = 6  # puts an event into a stream
    STREAM_WAIT = 7  # makes a stream wait for an event; the host does not wait
    QUERY = 8  # asks whether something has happened, without waiting
    ALLOCATION = 9  # takes memory from the driver or gives it back, and may wait for the device


# What follows "cuda", "cu" or "hip" in a call's name.
_STEMS = {
    RuntimeRole.LAUNCH: "LaunchKernel LaunchKernelExC LaunchKernelEx LaunchCooperativeKernel "
    "LaunchCooperativeKernelMultiDevice ExtLaunchKernel ExtLaunchMultiKernelMultiDevice "
    "ModuleLaunchKernel ModuleLaunchCooperativeKernel ExtModuleLaunchKernel "
    "HccModuleLaunchKernel Launch LaunchGrid LaunchGridAsync LaunchByPtr GraphLaunch "
    "LaunchHostFunc MemcpyAsync Memcpy2DAsync Memcpy3DAsync MemcpyBatchAsync "
    "MemcpyPeerAsync Memcpy3DPeerAsync MemcpyToSymbolAsync MemcpyFromSymbolAsync "
    "MemcpyHtoDAsync MemcpyDtoHAsync MemcpyDtoDAsync MemcpyDtoAAsync MemcpyAtoHAsync "
    "MemcpyHtoAAsync MemcpyToArrayAsync MemcpyFromArrayAsync Memcpy2DToArrayAsync "
    "Memcpy2DFromArrayAsync MemsetAsync Memset2DAsync Memset3DAsync MemsetD8Async "
    "MemsetD16Async MemsetD32Async MemsetD2D8Async MemsetD2D16Async MemsetD2D32Async "
    "MemPrefetchAsync "
    # fills of device memory return before they are done, with or without "Async":
    # https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html
    "Memset Memset2D Memset3D MemsetD8 MemsetD16 MemsetD32",
    RuntimeRole.BLOCKING_COPY: "Memcpy Memcpy2D Memcpy3D MemcpyPeer MemcpyToSymbol "
    "MemcpyFromSymbol MemcpyHtoD MemcpyDtoH MemcpyDtoD MemcpyToArray MemcpyFromArray "
    "Memcpy2DToArray Memcpy2DFromArray "
    # copies on a stream and waits for it: what PyTorch calls on AMD where it would call
    # cudaMemcpyAsync and cudaStreamSynchronize
    "MemcpyWithStream",
    RuntimeRole.ALLOCATION: "Malloc MallocAsync MallocFromPoolAsync MallocHost MallocManaged "
    "MallocPitch Free FreeAsync FreeHost HostAlloc HostFree HostMalloc HostRegister "
    "HostUnregister MemAlloc MemAllocAsync MemAllocHost MemFree MemFreeAsync MemFreeHost "
    "MemHostAlloc "
    # of PyTorch's expandable segments
    "MemAddressReserve MemAddressFree MemCreate MemRelease MemMap MemUnmap MemSetAccess",
    RuntimeRole.SYNC_STREAM: "StreamSynchronize",
    RuntimeRole.SYNC_DEVICE: "DeviceSynchronize CtxSynchronize ThreadSynchronize",
    RuntimeRole.SYNC_EVENT: "EventSynchronize",
    RuntimeRole.EVENT_RECORD: "EventRecord EventRecordWithFlags",
    RuntimeRole.STREAM_WAIT: "StreamWaitEvent",
    RuntimeRole.QUERY: "EventQuery StreamQuery",
}
_BY_STEM = {stem: role for role, stems in _STEMS.items() for stem in stems.split()}
# Runtimes whose calls do not share CUDA's words.
_BY_NAME = {
    "recordEvent": RuntimeRole.EVENT_RECORD,  # MTIA
    "synchronizeStream": RuntimeRole.SYNC_STREAM,
    "synchronize": RuntimeRole.SYNC_DEVICE,
    "enqueueCommand waitOnEvent": RuntimeRole.STREAM_WAIT,
    "enqueueCommand memcpyHtoDAsync": RuntimeRole.LAUNCH,
    "enqueueCommand memcpyDtoHAsync": RuntimeRole.LAUNCH,
    "urEnqueueKernelLaunch": RuntimeRole.LAUNCH,  # Intel, unified runtime
    "urEnqueueUSMMemcpy": RuntimeRole.LAUNCH,
    "urEnqueueUSMFill": RuntimeRole.LAUNCH,
    "urQueueFinish": RuntimeRole.SYNC_STREAM,
    "urEventWait": RuntimeRole.SYNC_EVENT,
}
ASCEND_CALL = "AscendCL@"  # how names of calls of Ascend's runtime begin
PREPARES = "(preparing)"  # how those end that are the part of a call before it launches
# Ascend's runtime: `aclnnAdd` and `aclopExecute` launch an operator, as Huawei's "AscendCL API
# reference" has them; `aclnnAddGetWorkspaceSize` only asks what it needs.
_ASCEND = (
    (RuntimeRole.OTHER, re.compile(rf"GetWorkspaceSize|_Tiling|{re.escape(PREPARES)}$")),
    (
        RuntimeRole.LAUNCH,
        re.compile(r"aclnn|aclop(?:CompileAnd)?Execute|aclrt\w+Async|aclrtLaunch"),
    ),
    (RuntimeRole.BLOCKING_COPY, re.compile(r"aclrtMem(?:cpy|set)")),
    (RuntimeRole.SYNC_STREAM, re.compile(r"aclrtSynchronizeStream")),
    (RuntimeRole.SYNC_DEVICE, re.compile(r"aclrtSynchronizeDevice")),
    (RuntimeRole.SYNC_EVENT, re.compile(r"aclrtSynchronizeEvent")),
    (RuntimeRole.EVENT_RECORD, re.compile(r"aclrtRecordEvent")),
    (RuntimeRole.STREAM_WAIT, re.compile(r"aclrtStreamWaitEvent")),
    (RuntimeRole.QUERY, re.compile(r"aclrtQuery")),
    (RuntimeRole.ALLOCATION, re.compile(r"aclrt(?:Malloc|Free)")),
)
# "cuda", "cu" or "hip", a word, and what CUPTI and the headers append: per-thread default
# streams ("_ptsz", "_ptds"), versions ("_v2", "_v11060") and HIP's "_spt".
_CALL = re.compile(r"(?:cuda|cu|hip)([A-Z]\w*?)(?:_ptsz|_ptds|_spt|_v\d+)*$")


def role_of(name: str) -> RuntimeRole:
    """What the runtime call with this name does; OTHER for anything unknown."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.startswith("runFunction"):  # MTIA starts a program
        return RuntimeRole.LAUNCH
    if name.startswith(ASCEND_CALL):
        return next((role for role, words in _ASCEND if words.search(name)), RuntimeRole.OTHER)
    match = _CALL.match(name)
    return _BY_STEM.get(match.group(1), RuntimeRole.OTHER) if match else RuntimeRole.OTHER


def runtime_role(names: Iterable[str]) -> UInt8s:
    """uint8[names], the `RuntimeRole` of each name."""
    return np.fromiter((role_of(name) for name in names), np.uint8)


def runtime_role_at(names: Sequence[str], position: Int32s | Int64s) -> UInt8s:
    """uint8[positions], the `RuntimeRole` of names by where they stand; of what is used alone."""
    role = np.zeros(len(names), np.uint8)
    used = used_positions(position, len(names))
    role[used] = runtime_role(names[at] for at in used.tolist())
    found: UInt8s = role[position]
    return found


def is_communication(name: str) -> bool:
    """Whether a kernel or a CPU worker's annotation with this name moves data between ranks."""
    stated = _STATED.search(name)
    if stated is not None:
        return stated[1] == "collective"
    return _COMMUNICATION.match(name) is not None
