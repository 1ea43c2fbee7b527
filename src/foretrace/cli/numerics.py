"""`foretrace numerics`: what corrupts a run: formats, deviations, faults, optimizers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace import numerics
from foretrace.answer import Answer
from foretrace.base import WorkloadError, function_named
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.report import RiskPage, write_risk_page

app = options.group(
    "Say what corrupts a run: number formats, deviations, faults, unstable optimizers."
)


@app.command()
def formats(
    *,
    values: Annotated[
        int, option("N", "Random fp32 numbers that each format rounds.", min=1)
    ] = 100_000,
    seed: options.Seed = 0,
    top: options.Top = 64,
    outputs: Outputs,
) -> None:
    """Show where PyTorch, ml_dtypes and the emulation mean the same by a number format."""
    with activity() as doing:
        doing.now("rounding")
        found = numerics.format_agreement(num_values=values, seed=seed, progress=doing.advance)
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
    outputs.tell(found, top=top)
    if page is not None:
        write_risk_page(page, RiskPage(title.capitalize(), found.headline, found.parts()))
        typer.echo(f"wrote {page}", err=True)
