"""`foretrace bench`: benchmarks that run, made of execution traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.bench import Mode, Recipe, Running
from foretrace.bench import check as checked
from foretrace.bench import generate as generated
from foretrace.bench import package as packaged
from foretrace.bench import package_model as packaged_model
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity

app = options.group(
    "Make a benchmark that runs of an execution trace, check it, pack it for others."
)

_DIFFERENT = 1

Kineto = Annotated[
    Path | None, option("KINETO", "The run's Kineto trace: times and streams.", dir_okay=False)
]
Trace = Annotated[
    Path, typer.Argument(metavar="ET", dir_okay=False, help="An execution trace of PyTorch.")
]
Program = Annotated[
    Path, typer.Argument(metavar="BENCH", dir_okay=False, help="What `bench generate` wrote.")
]


@app.command()
def generate(
    trace: Trace,
    *,
    out: Annotated[
        Path, option("OUT.py", "Program to write.", *options.OUT, dir_okay=False)
    ] = Path("bench.py"),
    kineto: Kineto = None,
    mode: Annotated[
        Mode, typer.Option(help="Everything, all but collectives, or collectives alone.")
    ] = Mode.FULL,
    step: Annotated[
        str | None, option("NAME", "Step, by name or number. Default: the first.")
    ] = None,
    subgraph: Annotated[
        str | None, option("LABEL", "Only operators inside nodes of this name.")
    ] = None,
    flat: Annotated[
        bool, typer.Option("--flat", help="Write every call out; make no functions of repeats.")
    ] = False,
    json: options.AsJson = False,
) -> None:
    """Write one Python program that replays a step's operators and needs only PyTorch."""
    recipe = Recipe(mode=mode, step=step, subgraph=subgraph, is_flat=flat)
    with activity() as doing:
        doing.now(f"reading {trace.name}")
        made = generated(trace, kineto=kineto, recipe=recipe)
        made.write(out)
    Outputs(json).tell(made, title=f"{made.program.source}: {out}", top=None)


@app.command()
def check(
    program: Program,
    *,
    against: Annotated[
        Path, option("ET", "The execution trace that it was made of.", dir_okay=False)
    ],
    kineto: Kineto = None,
    device: Annotated[str | None, option("DEVICE", "cuda or cpu. Default: as recorded.")] = None,
    ranks: Annotated[int, option("N", "Processes; 1 leaves collectives out.", min=1)] = 1,
    iterations: Annotated[int, option("N", "Steps to measure.", min=1)] = 10,
    warmup: Annotated[int, option("N", "Steps before those.", min=0)] = 5,
    threads: Annotated[int | None, option("N", "Threads of one CPU operator.", min=1)] = None,
    timeout: Annotated[float, option("SECONDS", "When to give up.", min=1)] = 600.0,
    fail_if_different: Annotated[
        bool, typer.Option("--fail-if-different", help="End with 1 if operators or FLOPs differ.")
    ] = False,
    outputs: Outputs,
) -> None:
    """Run a benchmark; compare operators, FLOPs, time and busy share with its source."""
    running = Running(
        device=device,
        ranks=ranks,
        iterations=iterations,
        warmup=warmup,
        threads=threads,
        timeout_seconds=timeout,
    )
    with activity() as doing:
        doing.now(f"running {program.name}")
        found = checked(program, against=against, kineto=kineto, running=running)
    outputs.tell(found)
    if fail_if_different and not found.is_same:
        raise typer.Exit(_DIFFERENT)


@app.command()
def package(
    programs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="BENCH...", dir_okay=False, help="One benchmark, or one per rank, in order."
        ),
    ] = None,
    *,
    out: Annotated[Path, option("OUT.pyz", "File to write.", *options.OUT, dir_okay=False)] = Path(
        "bench.pyz"
    ),
    model: Annotated[
        str | None,
        option(
            "MODULE:FUNCTION",
            "Pack the model's own code instead: a function that returns what runs a step.",
        ),
    ] = None,
    own: Annotated[
        list[str] | None, option("NAME", "Another module to pack with it; may be repeated.")
    ] = None,
) -> None:
    """Pack benchmarks into one file that `python OUT.pyz` runs, each rank its own."""
    if (model is None) is not bool(programs):
        raise typer.BadParameter("name benchmarks, or a model with --model, and not both")
    if model is None:
        packaged(programs or (), out)
    else:
        packaged_model(model, out, own=own or ())
    typer.echo(f"wrote {out}: run it with `python {out}`, or under torchrun")
