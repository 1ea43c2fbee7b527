"""`foretrace anonymise`: traces without the names that are somebody's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from foretrace import api
from foretrace.base import TraceError, write_whole
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity

_MAX_SHOWN = 5


def anonymise(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Kineto traces, execution traces, Chakra files of one run: files, globs, folders.",
        ),
    ],
    *,
    output: Annotated[Path, option("DIR", "Folder for the new files.", *options.OUT)],
    keep: Annotated[
        list[str] | None, option("PATTERN", "Keep names like this; may be given again.")
    ] = None,
    drop: Annotated[
        list[str] | None, option("PATTERN", "Replace names like this though they are public.")
    ] = None,
    scale_shapes: Annotated[
        float, option("FACTOR", "Multiply every dimension above 1.", min=0.001)
    ] = 1.0,
    names: Annotated[
        Path | None,
        option(
            "OUT.json",
            "Keep which name stands for which text here, for the next run; not to publish.",
            dir_okay=False,
        ),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Write traces again without names, paths and hosts."""
    known = _known(names)
    with activity() as doing:
        doing.now("writing traces without names")
        done = api.anonymise(
            paths,
            output,
            keep=keep or (),
            drop=drop or (),
            scale_shapes=scale_shapes,
            known_names=known,
        )
    if names is not None:
        write_whole(names, msgspec.json.encode({**known, **done.neutral}))
    Outputs(json).tell(done)
    if done.found_again:
        shown = ", ".join(map(repr, done.found_again[:_MAX_SHOWN]))
        raise TraceError(
            f"{len(done.found_again)} texts that were to go stand in the new files all the same: "
            f"{shown}; add --drop for what holds them, and do not publish these files"
        )


def _known(path: Path | None) -> dict[str, str]:
    if path is None or not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except msgspec.DecodeError as err:
        raise TraceError(
            f"cannot read the names in {path}: {err}, expected what --names wrote before"
        ) from err
