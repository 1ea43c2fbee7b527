"""How much code there is: lines that are no blanks, comments, docstrings or imports.

    python tools/code_lines.py

prints files, lines and code lines of each folder of `src/foretrace`, and in total; then files that
are long, and short ones that a single other file imports: such a file is a part of its importer.
"""

from __future__ import annotations

import argparse
import ast
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONG = 400  # lines
SHORT = 100
_NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Source:
    """One file."""

    path: Path
    module: str  # "foretrace.graph.build"; of an __init__ its folder's
    num_lines: int
    num_code_lines: int
    imported: frozenset[str]  # modules, or names in modules

    @property
    def is_folder(self) -> bool:
        """Whether this publishes a folder's names."""
        return self.path.name == "__init__.py"


def source(path: Path, package: Path) -> Source:
    """One file of a package, counted."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    names = path.relative_to(package.parent).with_suffix("").parts
    module = ".".join(names[:-1] if names[-1] == "__init__" else names)
    code = _lines_of_tokens(text) - _lines_of_docstrings(tree) - _lines_of_imports(tree)
    return Source(path, module, text.count("\n"), len(code), frozenset(_imported(tree, module)))


def _lines_of_tokens(text: str) -> set[int]:
    found: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type not in _NO_CODE:
            found |= set(range(token.start[0], token.end[0] + 1))
    return found


def _lines_of_docstrings(tree: ast.Module) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            found |= _span(node.body[0])
    return found


def _lines_of_imports(tree: ast.Module) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= _span(node)
    return found


def _span(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _imported(tree: ast.Module, module: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module != module:
                yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def num_importers(sources: Iterable[Source]) -> Counter[str]:
    """How many files import each module."""
    listed = tuple(sources)
    modules = {each.module for each in listed}
    found: Counter[str] = Counter()
    for each in listed:
        found.update((each.imported & modules) - {each.module})
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("package", nargs="?", type=Path, default=ROOT / "src" / "foretrace")
    package: Path = parser.parse_args().package.resolve()
    sources = [source(path, package) for path in sorted(package.rglob("*.py"))]
    _print_folders(sources, package)
    long = [each for each in sources if each.num_lines > LONG]
    _print_files(f"files above {LONG} lines", long, package)
    importers = num_importers(sources)
    alone = [
        each
        for each in sources
        if each.num_lines < SHORT and not each.is_folder and importers[each.module] == 1
    ]
    _print_files(f"files below {SHORT} lines with one importer", alone, package)


def _print_folders(sources: Iterable[Source], package: Path) -> None:
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    code: Counter[str] = Counter()
    for each in sources:
        parts = each.path.relative_to(package).parts
        for name in (parts[0] if len(parts) > 1 else ".", "total"):
            files[name] += 1
            lines[name] += each.num_lines
            code[name] += each.num_code_lines
    print(f"{'':12}{'files':>8}{'lines':>10}{'code':>10}")
    for name in sorted(files, key=lambda name: (name == "total", -code[name])):
        print(f"{name:12}{files[name]:8,}{lines[name]:10,}{code[name]:10,}")


def _print_files(title: str, sources: list[Source], package: Path) -> None:
    print(f"\n{len(sources)} {title}")
    for each in sorted(sources, key=lambda each: -each.num_lines):
        print(f"{each.num_lines:6,}  {each.path.relative_to(package)}")


if __name__ == "__main__":
    main()
