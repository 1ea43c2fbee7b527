"""Long lines of a program, broken where Python allows it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

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


def with_comment(line: str, comment: str) -> str:
    """A line with a comment after it, if there is one."""
    return f"{line}  # {comment}" if comment else line


def wrapped(line: str) -> str:
    """A line, broken inside of its brackets if it is too long; a comment goes before it."""
    if len(line) <= WIDTH or line.lstrip().startswith(("#", '"', "SOURCE = ")):
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    code, has_comment, comment = line.strip().partition("  # ")
    rows = [f"{indent}# {comment}"] if has_comment else []
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


def _protected(code: str) -> str:
    """The code with all spaces kept but those after a comma inside of brackets."""
    depth, quote, letters = 0, "", []
    for letter, before in zip(code, " " + code, strict=False):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        depth += (letter in "([{") - (letter in ")]}")
        is_kept = letter == " " and (depth == 0 or quote or before != ",")
        letters.append(_KEPT if is_kept else letter)
    return "".join(letters)
