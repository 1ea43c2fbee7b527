"""Arguments of a training script, from a command line, a shell text or YAML."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from foretrace.base import Table, WorkloadError
from foretrace.workload.configurations.shell import ShellText, read_shell


@dataclass(frozen=True)
class Arguments:
    """Values by name, without dashes in front."""

    values: Mapping[str, object]
    num_ranks: int | None  # as the launcher says
    undecided: tuple[str, ...]  # conditions of a script, behind which more arguments stand
    sourced: tuple[str, ...]  # files that the script reads


def arguments_of(text: str) -> Arguments:
    """The arguments that a command line or a script passes on."""
    found = read_shell(text)
    launcher, words = _passed(found)
    sourced = [words[-1] for words in found.started if words[0] in {".", "source"}]
    undecided = tuple(dict.fromkeys(found.undecided))
    return Arguments(named(words), _num_ranks(launcher, found), undecided, tuple(sourced))


def _passed(found: ShellText) -> tuple[Sequence[str], Sequence[str]]:
    """Words before and behind the script that is started; where none is, all lists of flags."""
    plain = [words for words in found.started if words[0].startswith("--")]
    started = [words for words in found.started if _script(words) is not None]
    lists = [value.split() for value in found.variables.values() if "--" in value]
    started += [words for words in lists if _script(words) is not None]
    if plain:
        return (), [word for words in plain for word in words]
    if started:
        words = max(started, key=lambda one: sum(word.startswith("--") for word in one))
        at = _script(words) or 0
        return words[:at], words[at + 1 :]
    return (), [word for words in lists for word in words]


def _script(words: Sequence[str]) -> int | None:
    """Where the training script stands among the words of a command."""
    if not any(word.startswith("--") for word in words):
        return None
    for at, word in enumerate(words):
        if word.endswith(".py") or (word.startswith("$") and "PY" in word.upper()):
            return at
    return None


def named(words: Iterable[str]) -> dict[str, object]:
    """Values by name: of a flag alone `True`, of several values a list; the last one counts."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:  # noqa: PLR2004  dashes alone
            name, sign, value = word[2:].partition("=")
            name = name.replace("_", "-")
            found[name] = [value] if sign else []
        elif name:
            found[name].append(word)
    return {name: _value(values) for name, values in found.items()}


def _value(texts: Sequence[str]) -> object:
    if not texts:
        return True
    values = [scalar(text) for text in texts]
    return values[0] if len(values) == 1 else values


def scalar(text: str) -> object:
    """A number where a text is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def _num_ranks(launcher: Sequence[str], found: ShellText) -> int | None:
    ranks = named(launcher)
    sizes = [ranks.get(name) for name in ("nproc-per-node", "nnodes")]
    sizes = sizes if all(sizes) else [ranks.get(name) for name in ("num-gpus", "num-nodes")]
    if all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
        return int(sizes[0]) * int(sizes[1])  # type: ignore[call-overload, no-any-return]
    world = found.variables.get("WORLD_SIZE", "")
    return int(world) if world.isdigit() else None


def parsed_yaml(text: str, where: str) -> Table:
    """A YAML text as a table.

    Raises:
        WorkloadError: if it is none.
    """
    try:
        found = msgspec.yaml.decode(text)
    except (msgspec.DecodeError, RecursionError) as err:
        raise WorkloadError(f"{where} is not YAML: {' '.join(str(err).split())}") from err
    if not isinstance(found, Mapping):
        raise WorkloadError(f"{where} holds {type(found).__name__}, where settings are expected")
    return found


def leaves(table: Table, prefix: str = "") -> dict[str, object]:
    """Every value of nested tables, by dotted path."""
    found: dict[str, object] = {}
    for key, value in table.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            found.update(leaves(value, path))
        else:
            found[path] = value
    return found


def repeated(text: str) -> tuple[int, ...] | None:
    """Whole numbers as Megatron writes them, as in "[0]*3+[1]*58"; `None` if it is none."""

    def of(node: ast.expr) -> list[int]:
        if isinstance(node, ast.List):
            return [int(ast.literal_eval(one)) for one in node.elts]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return of(node.left) + of(node.right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            times = ast.literal_eval(node.right)
            if isinstance(times, int) and 0 <= times <= _MOST_LAYERS:
                return of(node.left) * times
        raise ValueError

    try:
        found = of(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return tuple(found) if len(found) <= _MOST_LAYERS else None


_MOST_LAYERS = 10_000
