"""Which operations communicate, by the names that a dozen libraries give them."""

from __future__ import annotations

import re

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


def is_communication(name: str) -> bool:
    """Whether a kernel or a CPU worker's annotation with this name moves data between ranks."""
    stated = _STATED.search(name)
    if stated is not None:
        return stated[1] == "collective"
    return _COMMUNICATION.match(name) is not None
