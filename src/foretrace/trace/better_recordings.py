"""`HowToRecord`: what to tell a profiler so that it records what a trace lacks."""

from __future__ import annotations

from dataclasses import dataclass

_HIP = "run it under `rocprofv3 --hip-trace --kernel-trace --memory-copy-trace --marker-trace`"
_CUDA = "run it under `nsys profile --trace=cuda,nvtx`"
_CALLED = "step 7"  # a name of a step that `trace.marks` knows, as programs give them


@dataclass(frozen=True)
class HowToRecord:
    """A sentence for each thing that a trace may lack; "" where the profiler cannot record it."""

    whole: str = ""  # what sets all of it
    uncut: str = "wait until the profiler has written the file before it is copied"
    device: str = ""
    host: str = ""
    operators: str = ""
    steps: str = ""
    shapes: str = ""
    syncs: str = ""
    members: str = ""
    backward: str = ""
    ranks: str = "record every rank, and name all files or their folder"
    world: str = ""
    nanoseconds: str = ""


PYTORCH = HowToRecord(
    whole="foretrace.record sets all of this: see `python -m pydoc foretrace.record`",
    uncut="wait until the profiler has written the file before the process ends or it is copied",
    device="add ProfilerActivity.CUDA to the profiler's activities",
    host="add ProfilerActivity.CPU to the profiler's activities",
    operators="add ProfilerActivity.CPU to the profiler's activities",
    steps="call the profiler's step() at the end of every training step",
    shapes="pass record_shapes=True to the profiler",
    syncs=(
        "pass the profiler experimental_config=config, where config is "
        "`_ExperimentalConfig(enable_cuda_sync_events=True)` of `torch._C._profiler`"
    ),
    members="record with PyTorch 2.4 or newer and NCCL, or with foretrace.record for gloo",
    backward="let the profiler's window span whole training steps",
    world="start the profiler after torch.distributed is initialised",
    nanoseconds="record with PyTorch 2.4 or newer",
)
NSIGHT = HowToRecord(
    device=_CUDA,
    host=_CUDA,
    operators="in PyTorch, train under `torch.autograd.profiler.emit_nvtx(record_shapes=True)`",
    steps=f"put every step into an NVTX range, `torch.cuda.nvtx.range('{_CALLED}')`",
    shapes="pass record_shapes=True to emit_nvtx",
)
ROCPROF = HowToRecord(
    device=_HIP,
    host=_HIP,
    steps=f"put every step into a ROCTx range called '{_CALLED}', and record with --marker-trace",
)
XLA = HowToRecord(steps="put every step into a `jax.profiler.StepTraceAnnotation`")
ANY = HowToRecord(steps=f"put every step into a slice called '{_CALLED}'")
