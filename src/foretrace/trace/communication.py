"""Which operations communicate, by the names that a dozen libraries give them."""

from __future__ import annotations

import re

# NCCL up to 2.18 names kernels ncclKernel_*, later ncclDevKernel_* and ncclSymkDevKernel_*; RCCL
# does the same. After the colon: how c10d annotates the work of a backend. Then kernels that
# frameworks bring themselves: PyTorch's symmetric memory, vLLM, TensorRT-LLM, NVSHMEM, DeepEP
# (whatever its outer namespace is called: `dpsk::ep::internode::combine`), MSCCL++, AMD's quick
# all-reduce, Transformer Engine's user buffers.
_COMMUNICATION = re.compile(
    r"(?:void )?(?:nccl|rccl|msccl|oneccl|ccl_)"
    r"|(?:gloo|nccl|mpi|ucc|xccl|rccl):"
    r"|.*(?:one_shot_all_reduce|two_shot_all_reduce|multimem_all_reduce|multimem_one_shot"
    r"|cross_device_reduce|quickreduce|nvshmem|mscclpp|deep_ep::"
    r"|::(?:internode|intranode)(?:_ll)?::|userbuffers_|allreduce_fusion_kernel)",
    re.IGNORECASE,
)


def is_communication(name: str) -> bool:
    """Whether a kernel or a CPU worker's annotation with this name moves data between ranks."""
    return _COMMUNICATION.match(name) is not None
