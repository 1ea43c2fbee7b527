"""The command line as plain values: what a user can type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typer.main import get_command

from foretrace.cli.app import app
from foretrace.cli.lazy import LazyGroup


@dataclass(frozen=True)
class Option:
    """An option or an argument of a command."""

    name: str  # "--json"; of an argument its metavar
    help: str
    is_required: bool
    may_repeat: bool


@dataclass(frozen=True)
class Command:
    """One command; `path` is empty for `foretrace` itself."""

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]

    @property
    def title(self) -> str:
        """`foretrace replay`."""
        return " ".join(("foretrace", *self.path))


def command_tree() -> tuple[Command, ...]:
    """`foretrace` and all its commands."""
    return tuple(_commands(get_command(app), ()))


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    options = tuple(_option(parameter) for parameter in command.params)
    yield Command(path, command.help or "", options)
    if isinstance(command, LazyGroup):
        children = {name: command.loaded(name) for name in command.list_commands(None)}
    else:
        children = getattr(command, "commands", {})
    for name, child in sorted(children.items()):
        yield from _commands(child, (*path, name))


def _option(parameter: Any) -> Option:
    is_argument = not parameter.opts[0].startswith("-")
    return Option(
        name=parameter.metavar or parameter.name if is_argument else parameter.opts[0],
        help=getattr(parameter, "help", "") or "",
        is_required=parameter.required,
        may_repeat=parameter.multiple if not is_argument else parameter.nargs == -1,
    )
