"""`foretrace measure`: how fast this device is, as tables that `foretrace calibrate` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from foretrace.capture import (
    FAMILIES,
    Row,
    device_of,
    measured_collectives,
    measured_rows,
    write_measured,
)
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity

COLLECTIVES = "collectives"


def measure(
    *,
    seconds: Annotated[float, option("SECONDS", "Time to take, about.", min=0.1)] = 60.0,
    only: Annotated[
        list[str] | None,
        option("FAMILY", f"{', '.join(FAMILIES)} or collectives; may be repeated."),
    ] = None,
    device: options.DeviceName = None,
    ranks: Annotated[
        int, option("N", "Processes to measure collectives between; 1: none.", min=1)
    ] = 1,
    out: Annotated[
        Path, option("DIR", "Where to write the tables.", *options.OUT, file_okay=False)
    ] = Path("measured"),
    json: options.AsJson = False,
) -> None:
    """Measure products, attention, experts, movements and collectives, as tables."""
    known = device_of(device)
    wanted = tuple(dict.fromkeys(only or _usual(ranks)))
    kernels = [family for family in wanted if family != COLLECTIVES]
    share = seconds / len(wanted)
    found: dict[str, list[Row]] = {}
    with activity() as doing:
        if kernels:
            doing.now(f"measuring {known.name}")
            found |= measured_rows(
                known, families=kernels, seconds=share * len(kernels), progress=doing.advance
            )
        if COLLECTIVES in wanted:
            doing.now(f"measuring collectives between {ranks} ranks")
            found[COLLECTIVES] = measured_collectives(known, ranks, seconds=share)
    Outputs(json).tell(write_measured(found, known.name, out))


def _usual(ranks: int) -> tuple[str, ...]:
    return (*FAMILIES, COLLECTIVES) if ranks > 1 else FAMILIES
