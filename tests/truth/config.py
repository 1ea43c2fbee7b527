"""What a generated job looks like: its parallelism, its work, its machine, its clocks, its files.

Every field has a default that makes a small, complete training job. `quiet` gives the same job
with all overheads at zero, for closed forms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Work:
    """One operator of a layer: a kernel forward, and its kernels backward."""

    op: str  # operator as the profiler names it, outer and inner by ">"
    kernel: str
    family: str  # what an intervention selects
    forward_ns: int
    backward_op: str = ""  # autograd node, "" = no backward
    backward_kernels: tuple[tuple[str, int], ...] = ()  # name, base duration
    reduces_forward: bool = False  # tensor-parallel all-reduce of its output
    reduces_backward: bool = False  # the same of its input's gradient, beside the later kernels
    grid: tuple[int, int, int] = (864, 1, 1)
    block: tuple[int, int, int] = (256, 1, 1)
    dims: str = "[[4, 2048, 4096], [4096, 4096]]"
    types: str = '["c10::BFloat16", "c10::BFloat16"]'
    # Framework operator around each backward kernel, and its shapes; "aten::mm" or "aten::copy_"
    # without shapes where left out.
    backward_calls: tuple[tuple[str, str], ...] = ()


_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"
_GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_"


def _gemm(tile: str) -> str:
    return f"{_GEMM}{tile}>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{tile}::Params)"


# Shares follow a transformer layer of hidden size 4096 on an A100: matrix products are most of it.
TRANSFORMER_LAYER = (
    Work(
        op="FusedLayerNormAffineFunction",
        kernel="void cuApplyLayerNorm<c10::BFloat16, float, c10::BFloat16>(c10::BFloat16*)",
        family="norm",
        forward_ns=60_000,
        backward_op="FusedLayerNormAffineFunctionBackward",
        backward_kernels=(
            ("void cuComputePartGradGammaBeta<c10::BFloat16, float>(c10::BFloat16 const*)", 45_000),
            ("void cuComputeGradInput<c10::BFloat16, float>(c10::BFloat16 const*)", 70_000),
        ),
        grid=(1, 8192, 1),
        block=(32, 4, 1),
        dims="[[4, 2048, 4096], [4096], [4096]]",
        types='["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]',
    ),
    Work(
        op="aten::linear>aten::addmm",
        kernel=_gemm("128x256_32x3_tn_align8"),
        family="gemm",
        forward_ns=420_000,
        backward_op="AddmmBackward0",
        backward_kernels=(
            (_gemm("128x128_32x5_nn_align8"), 430_000),
            (_gemm("128x256_32x3_nt_align8"), 410_000),
        ),
        reduces_backward=True,
        dims="[[12288], [8192, 4096], [4096, 12288], [], []]",
        types='["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"]',
    ),
    Work(
        op="aten::scaled_dot_product_attention>aten::_flash_attention_forward",
        kernel="void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
        family="attention",
        forward_ns=310_000,
        backward_op="ScaledDotProductFlashAttentionBackward0",
        backward_kernels=(
            ("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_traits>", 30_000),
            ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 700_000),
        ),
        grid=(16, 4, 32),
        block=(128, 1, 1),
        dims="[[4, 32, 2048, 128], [4, 32, 2048, 128], [4, 32, 2048, 128]]",
        types='["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]',
    ),
    Work(
        op="aten::linear>aten::addmm",
        kernel=_gemm("256x128_32x3_tn_align8"),
        family="gemm",
        forward_ns=150_000,
        backward_op="AddmmBackward0",
        backward_kernels=(
            (_gemm("128x128_32x5_nn_align8"), 150_000),
            (_gemm("128x256_32x3_nt_align8"), 145_000),
        ),
        reduces_forward=True,
        dims="[[4096], [8192, 4096], [4096, 4096], [], []]",
        types='["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"]',
    ),
    Work(
        op="aten::add",
        kernel=_ELEMENTWISE + "CUDAFunctor_add<c10::BFloat16>, at::detail::Array<char*, 3> >",
        family="elementwise",
        forward_ns=35_000,
        grid=(65536, 1, 1),
        block=(128, 1, 1),
    ),
    Work(
        op="aten::linear>aten::addmm",
        kernel=_gemm("128x256_32x3_tn_align8"),
        family="gemm",
        forward_ns=560_000,
        backward_op="AddmmBackward0",
        backward_kernels=(
            (_gemm("128x128_32x5_nn_align8"), 560_000),
            (_gemm("128x256_32x3_nt_align8"), 545_000),
        ),
        reduces_backward=True,
        dims="[[16384], [8192, 4096], [4096, 16384], [], []]",
        types='["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"]',
    ),
    Work(
        op="aten::gelu",
        kernel=_ELEMENTWISE + "GeluCUDAKernelImpl, at::detail::Array<char*, 2> >",
        family="elementwise",
        forward_ns=75_000,
        backward_op="GeluBackward0",
        backward_kernels=(
            (_ELEMENTWISE + "GeluBackwardCUDAKernelImpl, at::detail::Array<char*, 3> >", 95_000),
        ),
        grid=(131072, 1, 1),
        block=(128, 1, 1),
        dims="[[4, 2048, 16384]]",
        types='["c10::BFloat16"]',
    ),
    Work(
        op="aten::linear>aten::addmm",
        kernel=_gemm("256x128_32x3_tn_align8"),
        family="gemm",
        forward_ns=550_000,
        backward_op="AddmmBackward0",
        backward_kernels=(
            (_gemm("128x128_32x5_nn_align8"), 550_000),
            (_gemm("128x256_32x3_nt_align8"), 540_000),
        ),
        reduces_forward=True,
        dims="[[4096], [8192, 16384], [16384, 4096], [], []]",
        types='["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"]',
    ),
)


@dataclass(frozen=True, kw_only=True)
class Link:
    """What a transfer costs: `latency_ns + bytes / bytes_per_ns`."""

    latency_ns: int
    bytes_per_ns: float


@dataclass(frozen=True, kw_only=True)
class Overheads:
    """What the host and the device add around the work.

    Launch latency, stream gap and call durations are medians measured on the public A100 ResNet
    trace (1.7 us after the call's end, 1.15 us, 10 us per launch call under the profiler); the
    hand-over between streams on the public Megatron traces (2 us).
    """

    launch_latency_ns: int = 1_700  # end of a launch call to the start of its operation
    stream_gap_ns: int = 1_150  # end of an operation to the start of the next on its stream
    graph_gap_ns: int = (
        325  # the same within a CUDA graph: 445 as seen on an H200, jitter taken out
    )
    handover_ns: int = 2_000  # end of an operation to the start of one that waits for its event
    wake_ns: int = 3_000  # end of an operation to a host call that waits for it
    queue_wake_ns: int = 1_500  # end of an operation to a launch that needed its place
    thread_wake_ns: int = 8_000  # one host thread's signal to the other's first moment
    lag_jitter_ns: int = 150  # half-normal, added to every start on the device
    end_jitter_ns: int = 1_500  # half-normal, added to each rank's end of a collective
    segment_ns: int = 9_000  # host time before a call, profiler included
    short_segment_ns: int = 1_500  # the same between two calls of one operator
    launch_call_ns: int = 10_000
    copy_call_ns: int = 9_000
    small_call_ns: int = 1_200  # event record, stream wait
    query_call_ns: int = 900
    sync_call_ns: int = 2_500  # a synchronisation that does not wait


NO_OVERHEADS = Overheads(
    launch_latency_ns=0,
    stream_gap_ns=0,
    graph_gap_ns=0,
    handover_ns=0,
    wake_ns=0,
    queue_wake_ns=0,
    thread_wake_ns=0,
    lag_jitter_ns=0,
    end_jitter_ns=0,
    segment_ns=0,
    short_segment_ns=0,
    launch_call_ns=0,
    copy_call_ns=0,
    small_call_ns=0,
    query_call_ns=0,
    sync_call_ns=0,
)
FREE_LINK = Link(latency_ns=0, bytes_per_ns=float("inf"))


@dataclass(frozen=True, kw_only=True)
class FileStyle:
    """How the files are written."""

    sync_events: bool = False  # `cuda_sync` events with stream and record ids
    collective_arguments: bool = True  # NCCL metadata on kernels and on `record_param_comms`
    sequence_numbers: bool = True  # `Seq` among that metadata
    whole_microseconds: bool = False  # as older profilers: no decimals, no baseTimeNanoseconds
    external_is_correlation: bool = False  # a runtime call's `External id`: its own correlation
    device_annotations: bool = True  # shadows of the `nccl:` annotations on the streams
    flows: bool = True  # ac2g and fwdbwd
    annotations: bool = True  # a user's and the framework's marks besides the steps' and NCCL's
    autograd_numbers: bool = True  # `Sequence number` of operators


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """One training job of `tp * dp * pp` ranks; rank = tp + tp_size * (dp + dp_size * pp)."""

    seed: int = 0
    num_steps: int = 3
    first_step: int = 4  # number of the first ProfilerStep
    # parallelism
    tp: int = 1
    dp: int = 1
    pp: int = 1
    schedule: Literal["1f1b", "gpipe"] = "1f1b"
    num_microbatches: int = 1
    # work
    num_layers: int = 4  # per pipeline stage
    layer: tuple[Work, ...] = TRANSFORMER_LAYER
    layer_kinds: tuple[tuple[Work, ...], ...] = ()  # in turns, instead of `layer`
    layer_marks: Literal["", "annotations", "modules"] = ""  # around each forward layer
    # Activation checkpointing: by a custom function that evaluates inside its own backward, or by
    # hooks that run the layer again when its first saved tensor is asked for.
    recompute: Literal["", "reentrant", "hooks"] = ""
    work_scale: float = 1.0  # multiplies every compute kernel's base duration
    has_backward: bool = True
    has_ends: bool = True  # embedding and loss kernels, gradient fill, input copy
    num_optimizer_kernels: int = 6
    cuda_graph: bool = False  # the optimizer's kernels come from one cudaGraphLaunch
    global_norm: bool = True  # a small all-reduce over all ranks before the optimizer
    loss_item: bool = True  # a copy to the host and a stream synchronisation ends each step
    data_loading_ns: int = 2_000_000  # in the main thread; 0: none
    copy_stream: bool = True  # inputs arrive on a stream of their own
    event_sync: bool = True  # the loader waits for the previous step's input copy
    ring_exchange: bool = False  # each layer: one kernel sends to the next and receives, over dp
    # gradients
    layers_per_bucket: int = 1
    merged_buckets: tuple[int, int] | None = None  # the first joins the second, its neighbour
    gradient_copies: bool = True  # a copy per bucket after its wait
    # communication
    activation_bytes: int = 33_554_432
    layer_parameter_bytes: int = 50_000_000
    tp_link: Link = Link(latency_ns=12_000, bytes_per_ns=200.0)
    dp_link: Link = Link(latency_ns=25_000, bytes_per_ns=60.0)
    pp_link: Link = Link(latency_ns=15_000, bytes_per_ns=40.0)
    world_link: Link = Link(latency_ns=40_000, bytes_per_ns=20.0)
    # machine
    overheads: Overheads = Overheads()
    queue_depth: int = 1_024
    contention: float = 1.0  # compute under a running communication kernel is slower by this
    jitter_ns: int = 5_000  # std of kernel, transfer and host segment durations
    slow_ranks: tuple[tuple[int, float], ...] = ()  # rank, factor on its kernels
    start_skew_ns: int = 3_000_000  # ranks start up to this much apart
    noise: bool = True  # calls without effect: event queries, capture checks, attributes
    host_ops_per_kernel: int = 1  # operators without a runtime call
    # clocks
    clock_offset_ns: int = 5_000_000_000  # each rank's clock is off by up to this
    clock_drift_ppm: float = 10.0
    style: FileStyle = FileStyle()

    def __post_init__(self) -> None:
        """Refuse sizes that make no job."""
        if min(self.tp, self.dp, self.pp, self.num_steps, self.num_layers) < 1:
            raise ValueError("tp, dp, pp, num_steps and num_layers must be at least 1")
        if self.num_microbatches < 1 or self.queue_depth < 1 or self.contention < 1.0:
            raise ValueError("num_microbatches, queue_depth and contention must be at least 1")
        merged = self.merged_buckets
        if merged is not None and not (0 <= merged[0] < merged[1] < self.num_buckets):
            raise ValueError(f"merged_buckets must be two rising bucket numbers, got {merged}")

    def works(self, layer: int) -> tuple[Work, ...]:
        """The operators of a stage's layer."""
        kinds = self.layer_kinds or (self.layer,)
        return kinds[layer % len(kinds)]

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.tp * self.dp * self.pp

    @property
    def num_buckets(self) -> int:
        """Gradient buckets of a stage, before any merge."""
        return -(-self.num_layers // self.layers_per_bucket)


def single_kernel_layer(forward_ns: int, backward_ns: int) -> tuple[Work, ...]:
    """A layer of one kernel forward and one backward."""
    return (
        Work(
            op="aten::mm",
            kernel="ampere_sgemm_128x64_nn",
            family="gemm",
            forward_ns=forward_ns,
            backward_op="MmBackward0",
            backward_kernels=(("ampere_sgemm_128x64_nt", backward_ns),),
        ),
    )


def quiet(config: JobConfig) -> JobConfig:
    """`config` with every overhead, jitter, skew and transfer time at zero."""
    return replace(
        config,
        overheads=NO_OVERHEADS,
        jitter_ns=0,
        start_skew_ns=0,
        data_loading_ns=0,
        clock_offset_ns=0,
        clock_drift_ppm=0.0,
        tp_link=FREE_LINK,
        dp_link=FREE_LINK,
        pp_link=FREE_LINK,
        world_link=FREE_LINK,
    )


def acceptance_config(
    num_ranks: int, *, seed: int = 0, style: FileStyle = FileStyle()
) -> JobConfig:
    """The job on which recovery is judged, of 8, 64 or 512 ranks: every feature but contention.

    Tensor, data and pipeline groups at once, neighbour exchange, buckets that overlap the backward
    pass and outlast it, a copy stream, two host threads, 5 us of jitter, clocks seconds apart that
    drift by up to 10 ppm.

    Raises:
        ValueError: for another number of ranks.
    """
    layouts = {8: (2, 2, 2), 64: (4, 4, 4), 512: (8, 16, 4)}
    if num_ranks not in layouts:
        raise ValueError(f"num_ranks must be one of {sorted(layouts)}, got {num_ranks}")
    tp, dp, pp = layouts[num_ranks]
    return JobConfig(
        seed=seed,
        tp=tp,
        dp=dp,
        pp=pp,
        num_layers=3,
        num_microbatches=4,
        layer_parameter_bytes=200_000_000,
        ring_exchange=True,
        style=style,
    )
