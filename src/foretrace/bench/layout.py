"""Long lines of a program, broken where Python allows it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 100
_MOST_BARE = 6  # names in a row without brackets
_INDENT = 4
_KEPT = "\x00"  # stands for a space where a line must not be broken


def target_list(names: Sequence[str]) -> str:
    """Names to assign to or to return."""
    inside = ", ".join(names)
    return f"({inside})" if len(names) > _MOST_BARE else inside


def deletion(names: Sequence[str]) -> str:
    """The statement that forgets these names."""
    return f"del {target_list(names)}"


def escaped(text: str) -> str:
    """Text of a trace between double quotes or in a comment: ASCII that ends neither."""
    return ascii(text)[1:-1].replace('"', '\\"')


def with_comment(line: str, comment: str) -> str:
    """A line with a comment after it, if there is one."""
    return f"{line}  # {comment}" if comment else line


def wrapped(line: str) -> str:
    """A line, broken inside of its brackets if it is too long; a comment goes before it."""
    if len(line) <= WIDTH or line.lstrip().startswith(("#", '"', "SOURCE = ")):
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    code, comment = _split(line.strip())
    rows = [f"{indent}# {comment}"] if comment else []
    breakable = _protected(code)
    rows += textwrap.wrap(
        breakable,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + " " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(rows).replace(_KEPT, " ")


def _split(line: str) -> tuple[str, str]:
    """A line's code and its comment; what looks like one inside of a text is none."""
    at = next((i for i, letter, is_text in _letters(line) if letter == "#" and not is_text), None)
    return (line, "") if at is None else (line[:at].rstrip(), line[at + 1 :].strip())


def _protected(code: str) -> str:
    """The code with all spaces kept but those after a comma inside of brackets."""
    depth, before, letters = 0, " ", []
    for _, letter, is_text in _letters(code):
        depth += 0 if is_text else (letter in "([{") - (letter in ")]}")
        is_kept = letter == " " and (depth == 0 or is_text or before != ",")
        letters.append(_KEPT if is_kept else letter)
        before = letter
    return "".join(letters)


def _letters(code: str) -> Iterator[tuple[int, str, bool]]:
    """Each letter with its place, and whether it stands inside of a text."""
    quote, is_escaped = "", False
    for i, letter in enumerate(code):
        yield i, letter, bool(quote)
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
