"""`foretrace numerics`: what corrupts a run: formats, deviations, faults, optimizers."""

from __future__ import annotations

from typing import Annotated

from foretrace import numerics
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity

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
