"""Names and numbers that the files show: streams, kernels, communications."""

from __future__ import annotations

from tests.truth.config import JobConfig
from tests.truth.structure import Collective

# Streams, numbered as they are seen in real files: 7 is the compute stream.
DATA_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
COPY_STREAM, TP_STREAM, DP_STREAM, RING_STREAM, WORLD_STREAM = 16, 20, 24, 28, 32
# Activations and gradients of a pipeline travel on streams of their own, per neighbour.
SEND_FORWARD, RECEIVE_FORWARD, SEND_BACKWARD, RECEIVE_BACKWARD = 36, 40, 44, 48
NCCL_INTERNAL = 100  # added to a stream's number: NCCL's own, which carries no kernel here

_ARGUMENTS = "(ncclDevKernelArgsStorage<4096ul>)"
ALL_REDUCE_BF16 = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" + _ARGUMENTS
ALL_REDUCE_FLOAT = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" + _ARGUMENTS
SEND_RECEIVE = "ncclDevKernel_SendRecv" + _ARGUMENTS
LOSS = "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<c10::BFloat16, float>"
NORM = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float>>"
ADAM = "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdam>"
EMBED = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)"
EMBED_BACKWARD = "void at::native::embedding_backward_feature_kernel<c10::BFloat16, float>"


def stream_class(stream: int) -> int:
    """Sending and receiving ends of one channel have one class; other streams their own."""
    pairs = {RECEIVE_FORWARD: SEND_FORWARD, RECEIVE_BACKWARD: SEND_BACKWARD}
    return pairs.get(stream, stream)


def annotation(name: str) -> str:
    """The profiler's name for a communication on the host."""
    return {"allreduce": "nccl:all_reduce", "exchange": "nccl:coalesced"}.get(name, f"nccl:{name}")


def collective_arguments(collective: Collective, name: str, config: JobConfig) -> str:
    """NCCL metadata as JSON members with a leading comma, as newer profilers write it."""
    if not config.style.collective_arguments:
        return ', "Input Dims": [[4, 2048, 4096]], "Input type": ["c10::BFloat16"]'
    group = collective.group
    is_gradient = group.link in ("dp", "world")
    elements = max(1, collective.num_bytes // (4 if is_gradient else 2))
    text = (
        f', "Collective name": "{"coalesced" if name == "exchange" else name}"'
        f', "In msg nelems": {elements}, "Out msg nelems": {elements}'
        f', "Group size": {len(group.ranks)}, "dtype": "{"Float" if is_gradient else "BFloat16"}"'
        ', "In split size": "[]", "Out split size": "[]"'
        f', "Process Group Name": "{group.name}", "Process Group Description": '
        f'"{group.description}", "Process Group Ranks": "{list(group.ranks)}"'
    )
    if collective.source >= 0:
        key, peer = (
            ("Dst Rank", collective.destination)
            if name == "send"
            else ("Src Rank", collective.source)
        )
        text += f', "{key}": {peer}'
    return text
