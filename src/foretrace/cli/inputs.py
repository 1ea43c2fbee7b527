"""No command replaces a file that it reads, by whatever name it is told to write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperOption

from foretrace.base import inputs_kept
from foretrace.trace import files_named

_OUTPUTS = frozenset(("--output", "--out", "-o", "--plot"))


class KeepsInputs(TyperCommand):
    """A command that refuses to write over what its arguments and options say to read."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        with inputs_kept(self._inputs(ctx)):
            return super().invoke(ctx)

    def _inputs(self, ctx: Any) -> Iterator[Path]:
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            named = value if isinstance(value, list | tuple) else (value,)
            texts = [str(one) for one in named if isinstance(one, str | Path)]
            if isinstance(parameter, TyperArgument):
                yield from (path for text in texts for path in files_named(text))
            elif isinstance(parameter, TyperOption) and not _is_output(parameter):
                yield from map(Path, texts)


def _is_output(option: TyperOption) -> bool:
    """Whether an option says where to write; those that say what are named in capitals."""
    return (option.metavar or "").startswith("OUT") or not _OUTPUTS.isdisjoint(option.opts)
