"""Which operations communicate, and as what: one spelling for a dozen libraries' names."""

from __future__ import annotations

import re

UNKNOWN_COLLECTIVE = "unknown"

# NCCL up to 2.18 names kernels ncclKernel_*, later ncclDevKernel_* and ncclSymkDevKernel_*; RCCL
# does the same. After the colon: how c10d annotates the work of a backend. Then kernels that
# frameworks bring themselves: PyTorch's symmetric memory, vLLM, TensorRT-LLM, NVSHMEM, DeepEP,
# Transformer Engine's user buffers.
_COMMUNICATION = re.compile(
    r"(?:void )?(?:nccl|rccl|msccl|oneccl|ccl_)"
    r"|(?:gloo|nccl|mpi|ucc|xccl|rccl):"
    r"|.*(?:one_shot_all_reduce|two_shot_all_reduce|multimem_all_reduce|multimem_one_shot"
    r"|cross_device_reduce|nvshmem|deep_ep::|userbuffers_|allreduce_fusion_kernel)",
    re.IGNORECASE,
)
# The first that is found in a name without underscores and capitals is its kind.
_KINDS = (
    ("reducescatter", "reducescatter"),
    ("allreduce", "allreduce"),
    ("crossdevicereduce", "allreduce"),
    ("allgather", "allgather"),
    ("alltoall", "alltoall"),
    ("sendrecv", "sendrecv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)
_ARGUMENTS = re.compile(r"[(<].*", re.DOTALL)


def is_communication(name: str) -> bool:
    """Whether a kernel or a CPU worker's annotation with this name moves data between ranks."""
    return _COMMUNICATION.match(name) is not None


def collective_kind_of(name: str) -> str:
    """The kind of communication that a kernel, an annotation or a collective's name states.

    One of "allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce",
    "gather", "scatter", "barrier", "send", "recv", "sendrecv" (NCCL runs sends, receives and
    all-to-all in one kernel of that name), or "unknown".
    """
    stem = _ARGUMENTS.sub("", name).replace("_", "").replace(" ", "").lower()
    for word, kind in _KINDS:
        if word in stem:
            return kind
    return UNKNOWN_COLLECTIVE
