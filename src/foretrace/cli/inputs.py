"""What every command refuses: to write over what it reads, and numbers that none can mean.

And how its help stands: options under headings, those that write last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import BadParameter
from typer.core import TyperArgument, TyperCommand, TyperOption

from foretrace.base import LARGEST_COUNT, inputs_kept
from foretrace.cli.configuration import defaults_of
from foretrace.cli.options import OUT, OUTPUT
from foretrace.trace import files_named

_LARGEST_NUMBER = 1e30  # more than the FLOPs of any training
_NAME_MAX = 255  # characters of a file's name, nearly everywhere
_OUTPUTS = frozenset((*OUT, "--plot"))


class KeepsInputs(TyperCommand):
    """A command that refuses to write over what its arguments and options say to read.

    Numbers of any option are finite, and no more than a description may hold.
    """

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """A line of it as it was typed; what it leaves out is as files of settings say."""
        above, path = parent, [info_name or ""]
        while above is not None and above.parent is not None:
            path.insert(0, above.info_name or "")
            above = above.parent
        extra.setdefault("default_map", defaults_of(tuple(path), self))
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            for one in value if isinstance(value, list | tuple) else (value,):
                _check_number(one, parameter)
        with inputs_kept(self._inputs(ctx)):
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options under their headings, in the order of the first of each."""
        under: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            told = parameter.get_help_record(ctx)
            if told is not None:
                under.setdefault(_heading(parameter), []).append(told)
        for heading in sorted(under, key=OUTPUT.__eq__):
            with formatter.section(heading):
                formatter.write_dl(under[heading])

    def _inputs(self, ctx: Any) -> Iterator[Path]:
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            named = value if isinstance(value, list | tuple) else (value,)
            texts = [str(one) for one in named if isinstance(one, str | Path)]
            if isinstance(parameter, TyperArgument):
                yield from (path for text in texts for path in files_named(text))
            elif isinstance(parameter, TyperOption) and not _is_output(parameter):
                # Flags that are typed as a text are longer than a file's name may be.
                named_files = (one for one in texts if max(map(len, one.split("/"))) <= _NAME_MAX)
                yield from map(Path, named_files)


def _check_number(value: object, parameter: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise BadParameter(f"{value} is no finite number.", param=parameter)
    if isinstance(value, float) and abs(value) > _LARGEST_NUMBER:
        raise BadParameter(
            f"{value:g} is beyond any job: at most {_LARGEST_NUMBER:g}.", param=parameter
        )
    if isinstance(value, int) and abs(value) > LARGEST_COUNT:
        raise BadParameter(
            f"{value:,} is beyond any job: at most {LARGEST_COUNT:,}.", param=parameter
        )


def _is_output(option: TyperOption) -> bool:
    """Whether an option says where to write; those that say what are named in capitals."""
    return (option.metavar or "").startswith("OUT") or not _OUTPUTS.isdisjoint(option.opts)


def _heading(parameter: Any) -> str:
    if isinstance(parameter, TyperArgument):
        return "Arguments"
    if isinstance(parameter, TyperOption) and _is_output(parameter):
        return OUTPUT
    return getattr(parameter, "rich_help_panel", None) or "Options"
