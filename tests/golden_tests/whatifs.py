"""The what-ifs that are kept: command lines after `foretrace whatif RECORDING`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EXAMPLE = "examples/cpu-llama-tp2-dp2/traces"
PLANTED = "examples/planted/nothing"
MEGATRON = "traces/megatron-tp8"
TWO_STAGES = "made/two-stages"
TENSOR = "made/tensor"
BUCKETS = "made/buckets"

# What is stated where an edit needs the model and the machine: they are not what was recorded.
ON = "--machine dgx-h100"
ON_A100 = "--machine dgx-a100"  # what MEGATRON was recorded on: another is refused
OF = f"{ON} --model llama3.2-1b"
OF_EXAMPLE = "--model examples/cpu-llama-tp2-dp2/model.toml"

EDITS_BY_RECORDING: Mapping[str, tuple[str, ...]] = {
    EXAMPLE: (
        "--layers 6",
        "--layers 6 --speed part:optimizer=2 --cores 2",
        "--hidden 1024",
        "--ffn 4096",
        "--heads 8 --kv-heads 4 --head-width 64",
        "--vocabulary 32000",
        "--experts 4",
        "--sequence 512",
        "--microbatches 4",
        "--global-batch 16",
        "--tp 1",
        "--tp 4",
        "--tp 3",
        "--tp 2 --sequence-parallel",
        "--tp 4 --sequence-parallel",
        "--dp 8",
        "--dp 1",
        "--pp 3 --microbatches 3 --schedule gpipe",
        "--pp 3 --layers 6 --microbatches 3 --schedule interleaved --chunks 2",
        f"--pp 2 --layers 4 --microbatches 4 --schedule zb-h1 {OF_EXAMPLE}",
        "--cp 2",
        f"--cp 2 {OF_EXAMPLE}",
        f"--ep 2 {OF_EXAMPLE}",
        "--sharding zero2",
        f"--sharding zero1 {OF_EXAMPLE}",
        f"--sharding zero2 {OF_EXAMPLE}",
        f"--sharding zero3 {OF_EXAMPLE}",
        "--recompute full",
        "--set overlap.gradients=false",
        "--set bucket_bytes=1000000",
        f"--set precision.products=fp8 {OF_EXAMPLE}",
        f"--on-machine dgx-a100 {ON}",
        "--set network.host.bandwidth=100GB/s",
        "--speed gemm=2",
        "--speed all=2 --slow-rank 3=1.5",
        "--takes gemm=1ms",
        "--delay all=2ms",
        "--transfers dp=3 --transfer-delay dp=1ms",
        "--data-loading 30ms",
        "--fuse elementwise=0.5",
        "--cuda-graphs all",
        "--without-profiler --layers 4",
    ),
    PLANTED: ("--layers 4 --dp 4", "--data-loading 0.5", "--set bucket_bytes=20000000"),
    MEGATRON: (
        "--layers 24",
        "--tp 4",
        "--tp 8 --sequence-parallel",
        "--pp 2 --layers 24 --microbatches 4",
        "--micro-batch 8",
        "--speed 'gemm layers:0-3 phase:forward=1.2'",
        "--speed 'kernels:*gemm* compute|host=2'",
        "--fuse 'all layers:0-3=0.5' --cuda-graphs phase:forward",
        "--hidden 4096",
        f"--attention plain {ON_A100}",
        "--remove-sync cudaStreamSynchronize --speed all=4",
        "--move-sync cudaStreamSynchronize",
        f"--sharding zero3 {ON_A100} --model gpt3-6.7b",
        f"--on-machine dgx-h100 {ON_A100}",
        "--slow-rank 5=1.3 --delay ranks:3=100us",
    ),
    TWO_STAGES: (
        "--layers 8",
        "--pp 4 --layers 8",
        "--pp 1",
        "--schedule gpipe",
        "--schedule interleaved --chunks 2",
        "--microbatches 8 --dp 4",
        "--speed gemm=2 --fuse elementwise=0.5 --cuda-graphs all",
        "--attention flash",
        f"--attention plain {ON}",
        f"--cp 2 --layers 8 {OF}",
        f"--sharding zero3 --microbatches 8 {OF}",
        f"--pp 2 --schedule zb-h1 {OF}",
        "--set overlap.pipeline=false",
        f"--on-machine dgx-b200 {ON}",
    ),
    TENSOR: ("--tp 4", "--tp 1 --layers 6", "--no-sequence-parallel", "--tp 4 --dp 4 --layers 8"),
    BUCKETS: ("--dp 8", f"--dp 2 {ON}", "--layers 8 --set bucket_bytes=4000000"),
    "traces/v100-ddp2-rank1/df_index_resolver.json.gz": ("--dp 8", "--speed convolution=2"),
    "traces/v100-single/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (
        "--speed all=1.25",
        "--cuda-graphs all",
    ),
    "traces/v100-resnet50-dataloader/worker0.1623143089861.pt.trace.json.gz": (
        "--data-loading 0.5",
        "--data-loading 0ms --fuse elementwise=0.6",
    ),
    "traces/a100-dlrm-rank3-of-8/control.json.gz": ("--dp 16", "--transfers all=2"),
}


@dataclass(frozen=True)
class Case:
    """A recording, and what is different about it."""

    recording: str
    line: str

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"{self.recording}: {self.line}"


CASES = {
    case.name: case
    for recording, lines in EDITS_BY_RECORDING.items()
    for case in (Case(recording, line) for line in lines)
}
