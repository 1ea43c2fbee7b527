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

# In the order of `--help`, under its headings. A command stands in the file of its name, as a
# function of its name; a group's file has its commands as `app = options.group("its words")`.
# A question that is not named here is a command about a recorded run.
_RECORDED = "A recorded run"
SECTIONS = {
    _RECORDED: (
        *("inspect", "analyze", "report", "replay", "throughput", "operators", "memory"),
        *("compare", "trend"),
    ),
    "Something different about a run": ("whatif", "substitute", "balance"),
    "A run that has not been made": (
        *("estimate", "run", "search", "plan", "explore", "tables", "serve"),
    ),
    "What fails and what corrupts": ("risk", "numerics"),
    "What is known, and how well": (
        *("machine", "model", "software", "validate", "ledger", "measure", "calibrate"),
    ),
    "Files": ("convert", "draw", "anonymise", "synthesise", "bench"),
    "The program": ("cache", "config", "schema"),
}
GROUPS = (
    *("bench", "cache", "config", "ledger", "machine", "model", "numerics", "risk"),
    *("software", "validate"),
)
COMMANDS = tuple(name for names in SECTIONS.values() for name in names if name not in GROUPS)


class LazyGroup(TyperGroup):
    """The commands of `foretrace`; help and completion read their words, nothing of them runs."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.sections: dict[str, list[str]] = {}  # heading to commands, as they are typed

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
        for section, names in SECTIONS.items():
            words = {
                name: _words_of_group(name) if name in GROUPS else _documentation(name)
                for name in names
            }
            if section == _RECORDED:
                asked = (name for name in dir(questions) if name not in COMMANDS)
                words |= {name: said for name in asked if (said := _help_of_question(name))}
            for name, said in words.items():
                typed = name.replace("_", "-")
                self.commands[typed] = TyperCommand(typed, help=said)
                self.sections.setdefault(section, []).append(typed)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """What each is for, whole: click cuts it off after the first line."""
        self.list_commands(ctx)
        for section, names in self.sections.items():
            with formatter.section(section):
                formatter.write_dl(
                    [(name, _first_sentence(self.commands[name].help or "")) for name in names]
                )

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
