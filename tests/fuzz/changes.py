"""A change of an input as data: what `corpus/` keeps, and what a seed draws.

A change is a list of its name and its arguments. Inputs are JSON trees, texts (TOML, CSV), or
bytes; a line is the words of a command.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

Change = list[Any]
Path = list[Any]

INJECTED = "</script><script>alert(1)//"  # never appears in a page as it is
STEERING = "\x1b]0;steered\x07\x1b[2J\r\x9b"
_TOKEN = re.compile(r'"[^"\n]*"|-?\d[\d.e+-]*|[A-Za-z_][\w.-]*')
_CONTAINER = (dict, list)
_SHARE_OF_ROWS = 0.6  # of changes lie in the longest list

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 0.5, -0.0, 1e-9, 7, 63, 65_536, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64,
    10**9, 10**12, 10**18, 10**23, -(10**9), -(10**18), -(2**63), 1e308, -1e308, 1e18,
    math.nan, math.inf, -math.inf,
)  # fmt: skip
TEXTS: tuple[str, ...] = (
    "", " ", "x", "0", "-1", "1e999", "nan", "[]", "[0, 1", "[-1]", "[0, 1000000000000]", "[[]]",
    "[0, 0]", "[[4, 1000000000000], [1000000000000, 8]]", "ProfilerStep#", "ProfilerStep#4",
    "ProfilerStep#99999999999999999999", "ncclDevKernel_AllReduce", "cudaDeviceSynchronize",
    "cudaLaunchKernel", "aten::mm", "kernel", "gloo:all_reduce", "record_param_comms",
    INJECTED, STEERING, "\ud800", "\x00", "a" * 5_000, "\u202e", "{{ 7 * 7 }}", "%s%n", "../../x",
)  # fmt: skip
WORDS: tuple[str, ...] = (
    "0", "-1", "1", "2", "3", "0.5", "1e-300", "1e308", "inf", "-inf", "nan", "1000000", str(10**9),
    str(10**18), str(10**23), "9" * 400, "", " ", "x", "0x10", "1_000", "=", "a=", "=1", "a=b",
    "a=1", "gemm=0", "gemm=inf", "hidden=0", "0=0", "99=2", "1:2", "1/0", "1%", "1e30 s", "5min",
    "0s", "\x1b[2J", "--", "-", "/dev/null", "/nonexistent/x", ".", "None", "true", "all", "1,2",
    "0,0", "1000000000000000000000 GiB",
)  # fmt: skip
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"a": {}}, [None], [0, 1])


def changed(content: Any, changes: list[Change]) -> Any:
    """A JSON tree, a text or bytes with these changes, in their order.

    Raises:
        LookupError: if a change names a place that is not there.
    """
    content = pickle.loads(pickle.dumps(content))  # noqa: S301  our own, ten times as fast
    for name, *arguments in changes:
        if name in _OF_TREES:
            content = _OF_TREES[name](content, *arguments)
        elif name in _OF_TEXTS:
            content = _OF_TEXTS[name](_as_text(content), *arguments)
        else:
            content = _OF_BYTES[name](as_bytes(content), *arguments)
    return content


def as_bytes(content: Any) -> bytes:
    """What stands in the file."""
    if isinstance(content, bytes):
        return content
    return _as_text(content).encode("utf-8", "surrogatepass")


def _as_text(content: Any) -> str:
    if isinstance(content, bytes):
        return content.decode("utf-8", "replace")
    return content if isinstance(content, str) else json.dumps(content)


def _at(tree: Any, path: Path) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def _set(tree: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    _at(tree, path[:-1])[path[-1]] = value
    return tree


def _set_in_all(tree: Any, path: Path, select: list[Any], inner: Path, value: Any) -> Any:
    """The same value at a place of every entry of a list whose key `select[0]` is `select[1]`."""
    for entry in _at(tree, path):
        if isinstance(entry, dict) and entry.get(select[0]) == select[1]:
            holder: Any = entry
            for step in inner[:-1]:
                holder = holder.get(step) if isinstance(holder, dict) else None
            if isinstance(holder, dict):
                old = holder.get(inner[-1])
                is_added = isinstance(value, list) and isinstance(old, int | float)
                holder[inner[-1]] = old + value[0] if is_added else value
    return tree


def _delete(tree: Any, path: Path) -> Any:
    del _at(tree, path[:-1])[path[-1]]
    return tree


def _copied(tree: Any, source: Path, path: Path) -> Any:
    return _set(tree, path, copy.deepcopy(_at(tree, source)))


def _repeated(tree: Any, path: Path, count: int) -> Any:
    _at(tree, path[:-1]).extend(copy.deepcopy(_at(tree, path)) for _ in range(count))
    return tree


def _renamed(tree: Any, path: Path, key: str) -> Any:
    holder = _at(tree, path[:-1])
    holder[key] = holder.pop(path[-1])
    return tree


def _deep(tree: Any, path: Path, depth: int) -> str:
    mark = "\u2400deep"
    text = json.dumps(_set(tree, path, mark))
    return text.replace(json.dumps(mark), "[" * depth + "]" * depth)


def _token(text: str, number: int, new: str) -> str:
    found = list(_TOKEN.finditer(text))[number]
    return text[: found.start()] + new + text[found.end() :]


def _line_gone(text: str, number: int) -> str:
    lines = text.splitlines()
    del lines[number]
    return "\n".join(lines) + "\n"


def _line_twice(text: str, number: int) -> str:
    lines = text.splitlines()
    lines.insert(number, lines[number])
    return "\n".join(lines) + "\n"


def _cut(content: bytes, length: int) -> bytes:
    return content[:length]


def _bytes(content: bytes, at: int, new: str, width: int) -> bytes:
    return content[:at] + bytes.fromhex(new) + content[at + width :]


_OF_TREES: dict[str, Callable[..., Any]] = {
    "set": _set,
    "set in all": _set_in_all,
    "delete": _delete,
    "copy": _copied,
    "repeat": _repeated,
    "rename": _renamed,
    "deep": _deep,
}
_OF_TEXTS: dict[str, Callable[..., str]] = {
    "token": _token,
    "line gone": _line_gone,
    "line twice": _line_twice,
}
_OF_BYTES: dict[str, Callable[..., bytes]] = {"cut": _cut, "bytes": _bytes}


# -- drawn -----------------------------------------------------------------------------------------


def drawn(content: Any, chance: random.Random) -> list[Change]:
    """One to four changes of an input; changes of bytes come last, for nothing else fits them."""
    if isinstance(content, bytes):
        return [_drawn_of_bytes(content, chance) for _ in range(chance.choice((1, 1, 2, 4)))]
    if chance.random() < 0.06:
        return [_drawn_of_bytes(as_bytes(content), chance)]
    changes: list[Change] = []
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        change = (
            _drawn_of_text(content, chance)
            if isinstance(content, str)
            else _drawn_of_tree(content, chance)
        )
        try:
            content = changed(content, [change])
        except (LookupError, TypeError, AttributeError):
            continue
        changes.append(change)
        if change[0] == "deep":
            break
    return changes


def _drawn_of_bytes(content: bytes, chance: random.Random) -> Change:
    at = chance.randrange(len(content) + 1)
    kind = chance.random()
    if kind < 0.3:
        return ["cut", at]
    new = chance.choice(
        ("ff", "00", "efbbbf", "c3", "7b", "5d", "22", "5c", "2c", "80", "ffffffff")
    )
    return ["bytes", 0 if kind < 0.35 else at, new, chance.choice((0, 1, 1, 4))]


def _drawn_of_text(text: str, chance: random.Random) -> Change:
    kind = chance.random()
    lines = text.splitlines()
    if kind < 0.12 and lines:
        return ["line gone", chance.randrange(len(lines))]
    if kind < 0.2 and lines:
        return ["line twice", chance.randrange(len(lines))]
    tokens = _TOKEN.findall(text)
    if not tokens:
        return ["bytes", 0, "78", 0]
    number = chance.randrange(len(tokens))
    old = tokens[number]
    new = chance.choice((str(chance.choice(NUMBERS)), chance.choice(WORDS), chance.choice(tokens)))
    if old.startswith('"') and chance.random() < 0.8:
        new = json.dumps(chance.choice((*WORDS, *TEXTS))) if chance.random() < 0.7 else new
    return ["token", number, new]


def _drawn_of_tree(tree: Any, chance: random.Random) -> Change:
    rows = _rows(tree)
    if rows and chance.random() < 0.15:
        return _drawn_of_class(_at(tree, rows), rows, chance)
    path = _place(tree, chance)
    if not path:
        return ["set", [], chance.choice(_OTHERS)]
    old = _at(tree, path)
    kind = chance.random()
    change: Change = ["set", path, _value(old, chance)]
    if kind < 0.1:
        change = ["delete", path]
    elif kind < 0.16 and isinstance(path[-1], int):
        change = ["repeat", path, chance.choice((1, 2, 50))]
    elif kind < 0.2 and isinstance(path[-1], str):
        change = ["rename", path, chance.choice(("", "ts", "dur", "args", "cat", INJECTED))]
    elif kind < 0.23:
        change = ["deep", path, chance.choice((5, 2_000, 200_000))]
    elif kind < 0.35:
        change = ["copy", _place(tree, chance), path]
    return change


def _drawn_of_class(entries: list[Any], rows: Path, chance: random.Random) -> Change:
    """A change of all events of a category."""
    entry = chance.choice([one for one in entries if isinstance(one, dict)] or [{}])
    by = "cat" if "cat" in entry else next(iter(entry), "")
    scalars = [path for path in _paths(entry) if not isinstance(_at(entry, path), _CONTAINER)]
    inner = chance.choice(scalars or [["x"]])
    old = _at(entry, inner) if scalars else 0
    moves = chance.random() < 0.5 and isinstance(old, int | float)
    value = [chance.choice((-1e12, -3e6, -1000, -1, 0.5, 1000, 3e6, 1e9, 1e15))] if moves else None
    return ["set in all", rows, [by, entry.get(by)], inner, value or _value(old, chance)]


def _value(old: Any, chance: random.Random) -> Any:
    kind = chance.random()
    if isinstance(old, int | float) and not isinstance(old, bool):
        if kind < 0.35:
            return old + chance.choice((-1, 1, -10, 1000, -1e6, 1e6, 1e12, -1e12))
        if kind < 0.8:
            return chance.choice(NUMBERS)
    if isinstance(old, str) and kind < 0.75:
        return chance.choice(TEXTS)
    return chance.choice((*NUMBERS, *TEXTS, *_OTHERS))


def _rows(tree: Any) -> Path | None:
    """Where the longest list of objects stands, one or two keys down."""
    if not isinstance(tree, dict):
        return None
    found = [[key] for key, value in tree.items() if isinstance(value, list) and value]
    return max(found, key=lambda path: len(tree[path[0]]), default=None)


def _place(tree: Any, chance: random.Random) -> Path:
    """A place in a tree, drawn level by level, so that few large lists do not hide the others."""
    path: Path = _rows(tree) or [] if chance.random() < _SHARE_OF_ROWS else []
    tree = _at(tree, path)
    while isinstance(tree, _CONTAINER) and tree and (not path or chance.random() < 0.85):
        step = chance.choice(list(tree)) if isinstance(tree, dict) else chance.randrange(len(tree))
        path.append(step)
        tree = tree[step]
    return path


def _paths(tree: Any) -> Iterator[Path]:
    """Every place in a tree of objects."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield [key]
            yield from ([key, *rest] for rest in _paths(value))


def drawn_of_line(words: list[str], chance: random.Random) -> list[str]:
    """The words of a command with one or two values replaced, left out or added to."""
    words = list(words)
    for _ in range(chance.choice((1, 1, 2))):
        values = [
            at
            for at, word in enumerate(words)
            if at and not word.startswith("--") and not word.startswith("{")
        ]
        if not values or chance.random() < 0.1:
            break
        at = chance.choice(values)
        name, equals, _ = words[at].partition("=")
        new = chance.choice((*WORDS, *WORDS, chance.choice(TEXTS).replace("\x00", "")))
        words[at] = f"{name}={new}" if equals and chance.random() < 0.8 else new
    return words
