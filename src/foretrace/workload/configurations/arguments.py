"""Arguments of a training script, from a command line, a shell text or YAML.

Enough of the language for launch scripts: continued lines, comments, quotes, arrays, variables with
defaults, whole-number arithmetic, and conditions on variables. Nothing is run, and no variable of
the environment is read: what the text does not set stays as `$NAME`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from foretrace.base import MOST_LAYERS, Table, WorkloadError

_TOKEN = re.compile(
    r"(?P<comment>(?<![^\s;|&(])#[^\n]*)"
    r"|(?P<array>(?:export\s+|local\s+|declare\s+(?:-\w+\s+)?)?[A-Za-z_]\w*\+?=\()"
    r"|(?P<end>\n|;;|;|&&|\|\||\||&|\))"
    r"|(?P<space>[ \t\r]+)"
    r"|(?P<word>(?:\$\(\((?:[^()]|\([^()]*\))*+\)\)|\$\([^()]*\)|\$\{(?:[^{}]|\{[^{}]*\})*+\}"
    r"|\"(?:\\.|\$\([^()]*\)|[^\"\\])*+\"|'[^']*'|\\.|`[^`]*`|[^\s;|&\"'\\)`$]|\$)++)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_PART = re.compile(
    r"\"(?P<double>(?:\\.|\$\([^()]*\)|[^\"\\])*+)\"|'(?P<single>[^']*)'|\\(?P<escaped>.)"
    r"|(?P<plain>(?:\$\(\((?:[^()]|\([^()]*\))*+\)\)|\$\([^()]*\)|\$\{(?:[^{}]|\{[^{}]*\})*+\}"
    r"|[^\"'\\])++)",
    re.DOTALL,
)
_EXPANSION = re.compile(
    r"\$\(\((?P<sum>(?:[^()]|\([^()]*\))*+)\)\)"
    r"|\$\{(?P<braced>[A-Za-z_]\w*|\d+|[@*#])(?:\[[@*]\])?(?P<rest>(?:[^{}]|\{[^{}]*\})*+)\}"
    r"|\$(?P<name>[A-Za-z_]\w*|\d|[@*#])"
)
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=(?P<value>.*)", re.DOTALL)
_HEREDOC = re.compile(
    r"<<-?\s*['\"]?(\w+)['\"]?(?P<rest>[^\n]*)\n.*?^\s*\1\s*$", re.DOTALL | re.MULTILINE
)
_DECLARES = {"export", "local", "declare", "readonly"}
_SUMS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARED = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
_TEST_OF_TWO = 3  # words: what is compared, how, with what
_JOINTS = {"&&", "||"}
_DEEPEST = 16  # variables within variables
_LOOPS = {"for": "done", "while": "done", "until": "done", "case": "esac"}


@dataclass
class ShellText:
    """What a text sets, and what it starts."""

    variables: dict[str, str] = field(default_factory=dict)
    started: list[list[str]] = field(default_factory=list)  # commands, word by word
    undecided: list[str] = field(default_factory=list)  # conditions that only a run would tell


def read_shell(text: str) -> ShellText:
    """What a text sets and starts."""
    found = ShellText()
    text = _HEREDOC.sub(lambda match: match["rest"] + "\n", text)
    _run(_commands(re.sub(r"\\\r?\n", "", text)), found)
    return found


def _commands(text: str) -> Iterator[tuple[list[str], str]]:  # noqa: C901  one for each token
    """Words as they are written, command by command, each with what ends it.

    An array is one word, with its name; a condition is one command up to its `then`.
    """
    words: list[str] = []
    array: list[str] | None = None
    for match in _TOKEN.finditer(text):
        kind, written = match.lastgroup, match[0]
        if kind == "array":
            array = [written.split()[-1][:-1]]
        elif array is not None:
            if kind == "end" and written == ")":
                words.append(array[0] + '"' + " ".join(array[1:]).replace('"', "") + '"')
                array = None
            elif kind == "word":
                is_literal = written[0] == written[-1] == "'"
                array.append(written[1:-1] if is_literal else written)
        elif kind == "end" and written in _JOINTS and words and words[0] in {"if", "elif"}:
            words.append(written)
        elif kind == "end":
            if words:
                yield words, written
            words = []
        elif kind == "word":
            words.append(written)
    if words:
        yield words, ""


@dataclass
class _Branch:
    """An open `if`."""

    is_taken: bool | None  # now; not; or done with
    undecided: str = ""  # the condition, where only a run would tell


def _run(  # noqa: C901  one case for each word of the language
    commands: Iterable[tuple[list[str], str]], found: ShellText
) -> None:
    """Commands in turn, those of a branch that is not taken left out."""
    branches: list[_Branch] = []
    skips: list[str] = []  # what ends each loop that is open
    is_skipped = False  # by a test in front, as in `[ -z "$X" ] && X=1`
    for written, end in commands:
        words = list(written)
        while words and words[0] in {"then", "do", "else", "{", "}"}:
            if words[0] == "else" and not skips:
                _branch(["else"], branches, found)
            words = words[1:]
        if not words or is_skipped:
            is_skipped = False
            continue
        head = words[0]
        if head in _LOOPS:
            skips.append(_LOOPS[head])
        elif skips:
            if head == skips[-1]:
                skips.pop()
        elif head in {"if", "elif", "fi"}:
            _branch(words, branches, found)
        elif all(branch.is_taken is True for branch in branches):
            if head in {"[", "[["}:
                is_skipped = end in _JOINTS and _decided(words, found) is not (end == "&&")
            else:
                _one(words, found)
        elif any("--" in word for word in words):
            found.undecided += [one.undecided for one in branches if one.undecided]


def _branch(words: list[str], branches: list[_Branch], found: ShellText) -> None:
    head = words[0]
    if head == "fi":
        branches[-1:] = []
    elif head == "if":
        outside = all(branch.is_taken is True for branch in branches)
        branches.append(_opened(words[1:], found) if outside else _Branch(None))
    elif branches and branches[-1].is_taken is False:
        branches[-1] = _Branch(is_taken=True) if head == "else" else _opened(words[1:], found)
    elif branches:
        branches[-1] = _Branch(None, branches[-1].undecided)  # one branch was taken already


def _opened(words: list[str], found: ShellText) -> _Branch:
    is_taken = _decided(words, found)
    return _Branch(is_taken, " ".join(words) if is_taken is None else "")


def _decided(words: list[str], found: ShellText) -> bool | None:
    """Whether a condition holds; `None` where only a run would tell."""
    result: bool | None = None
    joint, test = "", list[str]()
    for word in [*words, ""]:
        if word and word not in _JOINTS:
            test.append(word)
            continue
        if not joint or (result is not None and result is (joint == "&&")):
            result = _test(test, found)
        joint, test = word, []
    return result


def _test(words: list[str], found: ShellText) -> bool | None:
    inner = [word for word in words if word not in {"[", "]", "[[", "]]", "test"}]
    negated = inner[:1] == ["!"]
    plain = ["".join(_expanded(word, found, unset="")) for word in inner[negated:]]
    result: bool | None = None
    if len(plain) in {1, 2} and plain[0] in {"-z", "-n"}:
        result = (not "".join(plain[1:])) == (plain[0] == "-z")
    elif len(plain) == _TEST_OF_TWO and plain[1] in {"=", "==", "!="}:
        result = (plain[0] == plain[2]) == (plain[1] != "!=")
    elif (
        len(plain) == _TEST_OF_TWO
        and plain[1] in _COMPARED
        and plain[0].isdigit()
        and plain[2].isdigit()
    ):
        result = _COMPARED[plain[1]](int(plain[0]), int(plain[2]))
    return result if result is None else result != negated


def _one(words: list[str], found: ShellText) -> None:
    """A command: assignments, and what is started behind them."""
    rest = words[1:] if words[0] in _DECLARES else words
    while rest and (match := _ASSIGNED.fullmatch(rest[0])):
        value = " ".join(_expanded(match["value"], found))
        before = found.variables.get(match["name"], "") if match["more"] else ""
        found.variables[match["name"]] = f"{before} {value}".strip()
        rest = rest[1:]
    if rest and words[0] not in _DECLARES | {"unset", "echo", "set", "shift", "exit"}:
        # Words are split however they are quoted: lists of flags are passed on as one text.
        found.started.append([one for word in rest for one in _split(_expanded(word, found))])


def _split(parts: Sequence[str]) -> list[str]:
    return [word for part in parts for word in part.split()]


def _expanded(word: str, found: ShellText, unset: str | None = None) -> list[str]:
    """A word with its quotes off and its variables in place."""
    parts = []
    for match in _PART.finditer(word):
        if match["single"] is not None:
            parts.append(match["single"])
        elif match["escaped"] is not None:
            parts.append(match["escaped"])
        else:
            inner = match["double"] if match["double"] is not None else match["plain"]
            parts.append(_filled(inner, found, unset=unset))
    return ["".join(parts)]


def _filled(text: str, found: ShellText, *, unset: str | None = None, depth: int = 0) -> str:
    if depth > _DEEPEST:
        return text

    def value(match: re.Match[str]) -> str:
        if match["sum"] is not None:
            inner = re.sub(r"(?<![\w${])([A-Za-z_]\w*)", r"$\1", match["sum"])
            total = _sum(_filled(inner, found, depth=depth + 1))
            return match[0] if total is None else str(total)
        name = match["braced"] or match["name"]
        known = found.variables.get(name)
        rest = match["rest"] or ""
        if not known and rest[:2] in {":-", ":="}:
            return "".join(_expanded(rest[2:], found, unset))
        if not known and rest[:1] in {"-", "="}:
            return "".join(_expanded(rest[1:], found, unset))
        if known is None:
            return f"${name}" if unset is None else unset
        return known

    return _EXPANSION.sub(value, text)


def _sum(text: str) -> int | None:
    """The value of whole-number arithmetic; `None` if it is none."""

    def of(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
            return int(_SUMS[type(node.op)](of(node.left), of(node.right)))
        raise ValueError

    try:
        return of(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return None


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
    return Arguments(values_by_flag(words), _num_ranks(launcher, found), undecided, tuple(sourced))


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


def values_by_flag(words: Iterable[str]) -> dict[str, object]:
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
    ranks = values_by_flag(launcher)
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
            if isinstance(times, int) and 0 <= times <= MOST_LAYERS:
                return of(node.left) * times
        raise ValueError

    try:
        found = of(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return tuple(found) if len(found) <= MOST_LAYERS else None
