"""Bad input becomes one sentence on stderr and exit code 1, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from foretrace.base import ModelError, visible

MODEL_ERROR = 1  # wrong use of the command line ends with 2, which typer sees to


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """End the program politely on errors about inputs and files."""
    try:
        yield
    except ModelError as err:
        message = str(err)
    except MemoryError as err:
        message = f"there is not enough memory for what was asked ({str(err) or 'none is left'})"
    except OSError as err:
        message = _file_error(err)
    else:
        return
    typer.echo(visible(f"error: {message}"), err=True)
    sys.exit(MODEL_ERROR)


def _file_error(err: OSError) -> str:
    where = f": {err.filename!r}" if err.filename is not None else ""
    return f"{(err.strerror or str(err)).lower()}{where}"
