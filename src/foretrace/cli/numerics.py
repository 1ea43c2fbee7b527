"""`foretrace numerics`: what corrupts a run: formats, deviations, faults, optimizers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foretrace import numerics
from foretrace.answer import Answer
from foretrace.base import SweepEngine, WorkloadError, function_named
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.report import write_answer_page

_OF_CAMPAIGN = {"module", "inputs", "is_wrong", "parts"}

app = options.group(
    "Say what corrupts a run: number formats, deviations, faults, unstable optimizers."
)


@app.command()
def formats(
    *,
    values: Annotated[
        int, option("N", "Random fp32 numbers that each format rounds.", min=1)
    ] = 100_000,
    device: Annotated[
        str, option("NAME", "Where PyTorch and the emulation compute: cpu, cuda.")
    ] = "cpu",
    seed: options.Seed = 0,
    top: options.Top = 64,
    outputs: Outputs,
) -> None:
    """Show where PyTorch, ml_dtypes and the emulation mean the same by a number format."""
    with activity() as doing:
        doing.now("rounding")
        found = numerics.format_agreement(
            num_values=values, seed=seed, device=device, progress=doing.advance
        )
    outputs.tell(found, top=top)


@app.command()
def deviate(
    pair: Annotated[
        str,
        typer.Argument(
            metavar="PAIR",
            help="attention, softmax, normalisation, product, convolution, or FILE:FUNCTION that "
            "returns numerics.pair_of two functions.",
        ),
    ],
    *,
    format: Annotated[  # noqa: A002  the field's word
        list[str] | None, option("FORMAT", "A number format; may be repeated. Default: bf16, fp16.")
    ] = None,
    statistics: Annotated[
        list[str] | None,
        option("FORMAT", "Of running sums; may be repeated. Default: same as the format, fp32."),
    ] = None,
    length: Annotated[
        list[int] | None,
        option("N", "What is summed over; may be repeated. Default: 512, 2048.", min=1),
    ] = None,
    tile: Annotated[
        list[int] | None,
        option("N", "Pieces of it; may be repeated. Default: 16, 64, 256.", min=1),
    ] = None,
    seeds: Annotated[int, option("N", "Random inputs of each case.", min=1)] = 3,
    repeated_maxima: Annotated[
        bool,
        typer.Option(
            "--repeated-maxima",
            help="Of attention: the direction of rounding where maxima repeat, and its fix.",
        ),
    ] = False,
    seed: options.Seed = 0,
    page: options.Page = None,
    top: options.Top = 32,
    outputs: Outputs,
) -> None:
    """Show how far two forms of an operator are from fp64, over formats, lengths and tiles."""
    with activity() as doing:
        doing.now("comparing")
        found: Answer
        if repeated_maxima:
            found = numerics.rounding_bias((format or ["bf16"])[0], seed=seed)
        else:
            found = numerics.deviate(
                _pair(pair),
                formats=format or ("bf16", "fp16"),
                statistics=statistics or ("same", "fp32"),
                lengths=length or (512, 2048),
                tiles=tile or (16, 64, 256),
                num_seeds=seeds,
                seed=seed,
                progress=doing.advance,
            )
    _tell(found, outputs, top, page, f"deviations of {pair}")


@app.command()
def campaign(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="dlrm, lenet, bert or transformer, trained here; or FILE:FUNCTION that returns a "
            "module and its inputs, or a mapping with what else fault_campaign takes.",
        ),
    ],
    *,
    target: Annotated[
        numerics.FaultTarget, typer.Option(help="What faults are put into.")
    ] = numerics.FaultTarget.PARAMETERS,
    kind: Annotated[
        numerics.FaultKind, typer.Option(help="What becomes of stored bits.")
    ] = numerics.FaultKind.SINGLE,
    several: Annotated[
        int, option("N", "Bits that flip, of multi-bit flips and bursts.", min=2)
    ] = 2,
    storage: Annotated[
        str, option("FORMAT", "How numbers are stored: int8, or a format of PyTorch.")
    ] = "fp32",
    sampling: Annotated[
        numerics.FaultSampling, typer.Option(help="How bits are chosen.")
    ] = numerics.FaultSampling.STRATIFIED,
    half_width: Annotated[
        float, option("SHARE", "Of the interval, at which a part was looked at enough.", min=0)
    ] = 0.002,
    max_injections: Annotated[int, option("N", "Most injections into each part.", min=1)] = 50_000,
    fit_per_mbit: Annotated[
        float | None, option("FIT", "Upsets of a million bits in a billion hours.", min=0)
    ] = None,
    journal: Annotated[
        Path | None, option("FILE", "Keep rounds here, and go on from them.", dir_okay=False)
    ] = None,
    processes: Annotated[int, option("N", "Processes that inject.", min=1)] = 1,
    engine: options.WhichEngine = SweepEngine.PROCESSES,
    seed: options.Seed = 0,
    page: options.Page = None,
    top: options.Top = 16,
    outputs: Outputs,
) -> None:
    """Show how often a fault in each part of a model makes an output wrong."""
    settings = numerics.FaultSettings(
        target=target,
        kind=kind,
        several=several,
        storage=storage,
        sampling=sampling,
        half_width=half_width,
        max_injections=max_injections,
        seed=seed,
    )
    with activity() as doing:
        doing.now("injecting")
        given: dict[str, Any] = {
            "fit_per_mbit": fit_per_mbit,
            "journal": journal,
            "workers": processes,
            "engine": engine,
            "progress": doing.advance,
        }
        if ":" in model:
            module, inputs, more = _module(model)
            found = numerics.fault_campaign(module, inputs, settings, **given, **more)
        else:
            found = numerics.small_campaign(model, settings, **given)
    _tell(found, outputs, top, page, f"faults in {model}")


def _module(named: str) -> tuple[Any, Any, dict[str, Any]]:
    """What a user's function returns: module, inputs, and what else there is."""
    made = function_named(named)()
    if isinstance(made, tuple) and len(made) == len(("module", "inputs")):
        return made[0], made[1], {}
    if isinstance(made, dict) and {"module", "inputs"} <= set(made) <= _OF_CAMPAIGN:
        return made.pop("module"), made.pop("inputs"), made
    raise WorkloadError(
        f"{named} returns {type(made).__name__}: expected is a module and its inputs, or a mapping "
        f"with {', '.join(sorted(_OF_CAMPAIGN))}"
    )


@app.command()
def diff(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="A safetensors or PyTorch file, or the folder of a checkpoint."
        ),
    ],
    second: Annotated[Path, typer.Argument(metavar="B", help="What it is held against.")],
    *,
    yardstick: Annotated[
        str, option("FORMAT", "Whose rounding a difference is held against.")
    ] = "bf16",
    journal: Annotated[
        Path | None, option("FILE", "Keep finished tensors here, and go on from them.")
    ] = None,
    page: options.Page = None,
    top: options.Top = 24,
    outputs: Outputs,
) -> None:
    """Show how far two checkpoints are from each other, tensor by tensor."""
    with activity() as doing:
        doing.now("comparing")
        found = numerics.checkpoint_difference(
            first, second, yardstick=yardstick, journal=journal, progress=doing.advance
        )
    _tell(found, outputs, top, page, f"{first.name} and {second.name}")
    if found.warning:
        typer.echo(found.warning, err=True)


@app.command()
def probe(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="lenet, dlrm, bert or transformer; trained here.")
    ],
    *,
    formats: Annotated[
        list[str] | None,
        option(
            "FORMAT",
            "Of products, with accumulator and rounding: bf16:bf16:toward-zero; may be repeated. "
            "Default: bf16, fp8_e4m3, and that.",
        ),
    ] = None,
    steps: Annotated[int, option("N", "Of each training.", min=1)] = 60,
    seeds: Annotated[int, option("N", "Trainings of each format.", min=2)] = 3,
    seed: options.Seed = 0,
    page: options.Page = None,
    top: options.Top = 16,
    outputs: Outputs,
) -> None:
    """Train a small model in several number formats, beside the spread of fp32's seeds."""
    with activity() as doing:
        doing.now("training")
        found = numerics.probe(
            model,
            formats=formats or ("bf16", "fp8_e4m3", "bf16:bf16:toward-zero"),
            num_steps=steps,
            num_seeds=seeds,
            seed=seed,
            progress=doing.advance,
        )
    _tell(found, outputs, top, page, f"formats that train {model}")


@app.command()
def watch(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="Lines of OptimizerMonitor, or a CSV of steps and losses."
        ),
    ],
    *,
    fail_if_alarmed: Annotated[
        bool, typer.Option("--fail-if-alarmed", help="End with 1 if there is an alarm.")
    ] = False,
    page: options.Page = None,
    top: options.Top = 16,
    outputs: Outputs,
) -> None:
    """Show whether an optimizer left its regime, layer by layer, and when."""
    found = numerics.watch(log)
    _tell(found, outputs, top, page, f"optimizer of {log.name}")
    if fail_if_alarmed and found.alarms:
        raise typer.Exit(1)


def _pair(named: str) -> str | numerics.OperatorPair:
    """A pair of ours, or what a user's function returns."""
    if ":" not in named:
        return named
    made = function_named(named)()
    if not isinstance(made, numerics.OperatorPair):
        raise WorkloadError(
            f"{named} returns {type(made).__name__}: expected is numerics.pair_of(baseline, other, "
            "inputs)"
        )
    return made


def _tell(found: Answer, outputs: Outputs, top: int, page: Path | None, title: str) -> None:
    if page is not None:
        write_answer_page(page, title.capitalize(), found)
    outputs.tell(found, top=top, wrote=(page,))
