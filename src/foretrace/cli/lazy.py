"""Commands that are listed by what their source says of them, and loaded when one is run."""

from __future__ import annotations

import ast
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from foretrace.analyze import questions
from foretrace.base import home_of, source_of

# In the order of `--help`: a command stands in the file of its name, as a function of its name.
COMMANDS = (
    "run",
    "inspect",
    "replay",
    "analyze",
    "throughput",
    "operators",
    "memory",
    "compare",
    "trend",
    "whatif",
    "substitute",
    "estimate",
    "search",
    "tables",
    "explore",
    "plan",
    "balance",
    "serve",
    "report",
    "convert",
    "draw",
    "anonymise",
    "synthesise",
    "measure",
    "calibrate",
    "schema",
)
# A group's file has its commands as `app = options.group("its words")`.
GROUPS = (
    "bench",
    "cache",
    "config",
    "ledger",
    "machine",
    "model",
    "numerics",
    "risk",
    "software",
    "validate",
)


class LazyGroup(TyperGroup):
    """The commands of `foretrace`; help and completion read their words, nothing of them runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names as they are typed, in the order of `--help`."""
        self._read()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command that is not loaded; with its words where those of all were read."""
        if not self.commands and cmd_name in (*COMMANDS, *GROUPS):
            return TyperCommand(cmd_name)
        self._read()
        return super().get_command(ctx, cmd_name)

    def _read(self) -> None:
        """Read the words of all commands, once."""
        if self.commands:
            return
        words = {name: _documentation(name) for name in COMMANDS}
        asked = (name for name in dir(questions) if name not in COMMANDS)
        words |= {name: said for name in asked if (said := _help_of_question(name))}
        words |= {name: _words_of_group(name) for name in GROUPS}
        self.commands = {
            typed: TyperCommand(typed, help=said)
            for typed, said in ((name.replace("_", "-"), said) for name, said in words.items())
        }

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """What each is for, whole: click cuts it off after the first line."""
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_sentence(one.help or "")) for name, one in listed])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that a line names, loaded, and what follows it.

        Raises:
            UsageError: if there is none; it says which are near.
        """
        typed, command, rest = super().resolve_command(ctx, args)
        return typed, command if typed is None else self.loaded(typed), rest

    def loaded(self, typed: str) -> Any:
        """A command as typer runs it."""
        from foretrace.cli.inputs import KeepsInputs  # on demand: it loads what reads traces
        from foretrace.cli.options import with_sets  # so too

        name = typed.replace("-", "_")
        is_group = name in GROUPS
        own = import_module(f"foretrace.cli.{name}").app if is_group else _alone(name, typed)
        for one in own.registered_commands:
            one.cls = KeepsInputs
            if one.callback is not None:
                one.callback = with_sets(one.callback)
        command = get_command(own)
        command.name = typed
        return command


def _first_sentence(words: str) -> str:
    return " ".join(words.partition("\n\n")[0].split())


def _alone(name: str, typed: str) -> typer.Typer:
    """One command as an application of its own."""
    if name in COMMANDS:
        function = getattr(import_module(f"foretrace.cli.{name}"), name)
    else:
        from foretrace.cli.questions import command_of  # on demand: it loads what answers need

        function = command_of(getattr(questions, name))
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name=typed)(function)
    return alone


def _documentation(name: str) -> str:
    """What a command's function is documented with."""
    return ast.get_docstring(_source(f"foretrace.cli.{name}", name)) or ""


def _words_of_group(name: str) -> str:
    """What a group is for."""
    for node in ast.parse(source_of(f"foretrace.cli.{name}")).body:
        match node:
            case ast.Assign([ast.Name("app")], ast.Call(args=[ast.Constant(str(words))])):
                return words
    raise ValueError(f"foretrace.cli.{name} says in no `app = options.group(...)` what it is for")


def _help_of_question(name: str) -> str:
    """What a question says that its command is for; "" if it has none."""
    for call in _source(home_of(questions, name), name).decorator_list:
        for keyword in call.keywords if isinstance(call, ast.Call) else ():
            if keyword.arg == "help" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return ""


def _source(module: str, function: str) -> ast.FunctionDef:
    """A function as it is written: reading it is a hundred times faster than loading its module."""
    for node in ast.parse(source_of(module)).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return node
    raise ValueError(f"{module} has no function {function!r}, which is to be a command")
