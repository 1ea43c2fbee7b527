"""Options of `foretrace whatif`, each with its help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from foretrace.whatif import Order

_Count: TypeAlias = int | None
_Texts: TypeAlias = list[str] | None

# the model
Layers: TypeAlias = Annotated[_Count, typer.Option(metavar="N", help="Layers, over all stages.")]
Hidden: TypeAlias = Annotated[_Count, typer.Option(metavar="N", help="Width between layers.")]
FeedForward: TypeAlias = Annotated[
    _Count, typer.Option("--ffn", metavar="N", help="Width inside feed-forward blocks.")
]
Heads: TypeAlias = Annotated[_Count, typer.Option(metavar="N", help="Attention heads.")]
KeyValueHeads: TypeAlias = Annotated[
    _Count, typer.Option("--kv-heads", metavar="N", help="Heads of keys and values.")
]
HeadWidth: TypeAlias = Annotated[_Count, typer.Option(metavar="N", help="Width of one head.")]
Vocabulary: TypeAlias = Annotated[_Count, typer.Option(metavar="N", help="Tokens there are.")]
Experts: TypeAlias = Annotated[_Count, typer.Option(metavar="N", help="Experts of a layer.")]

# the batch
Sequence: TypeAlias = Annotated[_Count, typer.Option(metavar="N", help="Tokens of a sequence.")]
MicroBatch: TypeAlias = Annotated[_Count, typer.Option(metavar="N", help="Sequences of one pass.")]
Microbatches: TypeAlias = Annotated[
    _Count, typer.Option(metavar="N", help="Passes of a step on each rank.")
]
GlobalBatch: TypeAlias = Annotated[
    _Count, typer.Option(metavar="N", help="Sequences of a step, over all ranks.")
]

# the plan
Tensor: TypeAlias = Annotated[
    _Count, typer.Option("--tp", metavar="N", help="Ranks that divide each layer.")
]
Context: TypeAlias = Annotated[
    _Count, typer.Option("--cp", metavar="N", help="Ranks that divide each sequence.")
]
Pipeline: TypeAlias = Annotated[_Count, typer.Option("--pp", metavar="N", help="Pipeline stages.")]
Data: TypeAlias = Annotated[_Count, typer.Option("--dp", metavar="N", help="Copies of the model.")]
Expert: TypeAlias = Annotated[
    _Count, typer.Option("--ep", metavar="N", help="Ranks that divide the experts.")
]
Schedule: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Order of passes on each stage.")
]
Chunks: TypeAlias = Annotated[
    _Count, typer.Option(metavar="N", help="Parts of the model on each stage.")
]
SequenceParallel: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel",
        help="Whether tensor ranks divide activations between products too.",
    ),
]
Sharding: TypeAlias = Annotated[
    str | None, typer.Option(metavar="LEVEL", help="none, zero1, zero2 or zero3.")
]
Recompute: TypeAlias = Annotated[
    str | None, typer.Option(metavar="WHAT", help="none, selective or full.")
]
SetKeys: TypeAlias = Annotated[
    _Texts,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any key of a plan, or a machine's, as in network.pod.bandwidth=400Gb/s; may be "
        "given again.",
    ),
]
OnMachine: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="A machine to run on instead, or its file.")
]

# work and time
Speed: TypeAlias = Annotated[
    _Texts,
    typer.Option(metavar="WORK=FACTOR", help="Work and how many times as fast: gemm=1.2."),
]
Takes: TypeAlias = Annotated[
    _Texts,
    typer.Option(metavar="WORK=TIME", help="Work and how long each operation of it takes."),
]
SlowRank: TypeAlias = Annotated[
    _Texts,
    typer.Option(metavar="RANK=FACTOR", help="A rank, and how many times as long its work takes."),
]
Delay: TypeAlias = Annotated[
    _Texts,
    typer.Option(metavar="WORK=TIME", help="Work and what passes before each block: all=2ms."),
]
Fuse: TypeAlias = Annotated[
    _Texts,
    typer.Option(metavar="WORK=SHARE", help="Work that becomes one kernel, and what is left."),
]
Attention: TypeAlias = Annotated[
    str | None, typer.Option(metavar="KIND", help="flash or plain attention.")
]
CudaGraphs: TypeAlias = Annotated[
    _Texts, typer.Option(metavar="WORK", help="Work whose launches cost nothing: all.")
]
RemoveSync: TypeAlias = Annotated[
    _Texts, typer.Option(metavar="CALLS", help="Calls that no longer wait for the device.")
]
MoveSync: TypeAlias = Annotated[
    _Texts,
    typer.Option(metavar="CALLS", help="Calls that wait for what they did one step before."),
]
DataLoading: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Of loading a step's data: 5ms, or a factor.")
]
Transfers: TypeAlias = Annotated[
    _Texts,
    typer.Option(metavar="GROUP=FACTOR", help="A group, and how many times as long it sends."),
]
TransferDelay: TypeAlias = Annotated[
    _Texts, typer.Option(metavar="GROUP=TIME", help="A group, and what each transfer adds.")
]

# many scenarios
Scenarios: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.toml", dir_okay=False, help="Many scenarios: docs/whatif.md has the format."
    ),
]
BestBy: TypeAlias = Annotated[Order, typer.Option(help="Which of many scenarios is best.")]
Processes: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="Scenarios to predict at once.")
]

# the recorded job
Machine: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="What the job ran on, or its file.")
]
Model: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="What was trained, or its file.")
]
Plan: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="The plan it ran under, or its file.")
]
Stated: TypeAlias = Annotated[
    _Texts,
    typer.Option(
        metavar="KEY=VALUE",
        help="A key of that plan, or a size: tp=2, hidden=4096; repeatable.",
    ),
]
SharedCores: TypeAlias = Annotated[
    int | None,
    typer.Option("--cores", min=1, metavar="N", help="Processor cores that its ranks shared."),
]
WithoutProfiler: TypeAlias = Annotated[
    bool,
    typer.Option("--without-profiler", help="Predict the job as it runs when nobody records it."),
]

# files
Report: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="OUT.html", dir_okay=False, help="Write one self-contained HTML page."),
]
Trace: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="OUT", dir_okay=False, help="Write before and after for Perfetto."),
]
