"""Rules of the house that a machine can check."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import dropwhile, groupby
from pathlib import Path

import pytest

import foretrace
from foretrace.analyze import questions
from tests.commands import Command, command_tree

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "foretrace"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_POSITIONAL = 3
MAX_LINES = 500

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
Assignment = ast.Assign | ast.AnnAssign


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def folder_of(path: Path) -> str:
    """The floor's folder that a file belongs to; "" for the package's own files."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def imported(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Every import statement with the module that it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node, node.module


@cache
def imports_of(path: Path) -> tuple[tuple[ast.stmt, str], ...]:
    return tuple(imported(tree_of(path)))


def published() -> dict[str, set[str]]:
    """Names that each folder offers to other folders."""
    return {
        path.parent.name: {
            alias.name
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for path in SOURCE.glob("*/__init__.py")
    }


def offered_functions(tree: ast.Module, names: set[str]) -> Iterator[tuple[Function, bool]]:
    """Published functions and public methods of published classes, and whether it is a method."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in names:
            for child in node.body:
                if isinstance(child, Function) and not child.name.startswith("_"):
                    yield child, True
        elif isinstance(node, Function) and node.name in names:
            yield node, False


def dotted(node: ast.AST) -> str:
    """A name, or an attribute of a name, as it is written; "" for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def where(path: Path, node: ast.stmt | ast.expr) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


# Lists of verbs and of edits are doors of their own, and so is where the program begins.
DOORS = {"foretrace.analyze.questions", "foretrace.cli.entry", "foretrace.whatif.edits"}


def test_other_folders_import_from_the_folder_not_from_a_file_inside() -> None:
    wrong = [
        f"{where(path, node)} imports {module}"
        for path in FILES
        for node, module in imports_of(path)
        if module.startswith("foretrace.")
        and len(module.split(".")) > 2
        and module.split(".")[1] != folder_of(path)
        and module not in DOORS
    ]

    assert wrong == []


def test_floors_are_the_same_in_the_contract_the_table_and_each_folder() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = project["tool"]["importlinter"]["contracts"]
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

    checked = {
        folder: floor
        for floor, layer in enumerate(reversed(contract["layers"]))
        for folder in layer.split(" | ")
        if folder != "__main__"  # no folder: it is the program
    }
    told = {
        path.parent.name: int(floor)
        for path in SOURCE.glob("*/__init__.py")
        for floor in re.findall(r"^Floor (\d+): ", ast.get_docstring(tree_of(path)) or "")
    }
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", table, re.MULTILINE)
    drawn = {folder: int(floor) for floor, folder in rows}

    assert told == checked
    assert drawn == checked


def test_numba_is_imported_in_compiled_files_only() -> None:
    wrong = [
        where(path, node)
        for path in FILES
        for node, module in imports_of(path)
        if module.split(".")[0] in {"numba", "llvmlite"} and path.name != "_compiled.py"
    ]

    assert wrong == []


@pytest.mark.parametrize(
    ("library", "folders"),
    [
        ("typer", {"cli"}),
        ("rich", {"cli"}),
        ("jinja2", {"report"}),
        ("torch", {"capture", "numerics"}),
        ("ml_dtypes", {"numerics"}),
    ],
)
def test_a_library_with_one_home_stays_there(library: str, folders: set[str]) -> None:
    wrong = [
        where(path, node)
        for path in FILES
        for node, module in imports_of(path)
        if module.split(".")[0] == library and folder_of(path) not in folders
    ]

    assert wrong == []


def test_only_the_command_line_prints_exits_or_reads_the_environment() -> None:
    forbidden = {"print", "exit", "quit", "sys.exit", "os._exit", "os.environ", "os.getenv"}
    wrong = [
        f"{where(path, node)} {name}"
        for path in FILES
        if folder_of(path) not in {"cli", "capture"}  # torchrun speaks through the environment
        and path != SOURCE / "base/_compiled.py"  # so does numba, and is not asked if not needed
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node)) in forbidden
    ]

    assert wrong == []


def test_an_import_inside_a_function_says_why() -> None:
    wrong = []
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for function in ast.walk(tree_of(path)):
            if isinstance(function, Function):
                wrong += [
                    where(path, node)
                    for node, _ in imported(function)
                    if "#" not in lines[node.lineno - 1]
                    and not lines[node.lineno - 2].lstrip().startswith("#")
                    and not re.match(r"\s*(import|from) ", lines[node.lineno - 2])
                ]

    assert wrong == []


def test_offered_functions_take_at_most_three_positional_arguments() -> None:
    names_by_folder = published()
    counts = {
        f"{where(path, function)} {function.name}": (
            len(function.args.posonlyargs) + len(function.args.args) - is_method
        )
        for path in FILES
        if path.name != "_compiled.py" and folder_of(path)
        for function, is_method in offered_functions(
            tree_of(path), names_by_folder[folder_of(path)]
        )
    }

    assert len(counts) > 20
    assert {what: count for what, count in counts.items() if count > MAX_POSITIONAL} == {}


def late_constants(tree: ast.Module) -> Iterator[ast.stmt]:
    """The first of each run of constants below a definition that are not made of any."""
    below = list(dropwhile(lambda node: not isinstance(node, Definition), tree.body))
    defined = {node.name for node in below if isinstance(node, Definition)}
    for are_constants, run in groupby(below, lambda node: isinstance(node, Assignment)):
        nodes = list(run)
        inside = [each for node in nodes for each in ast.walk(node)]
        read = {each.id for each in inside if isinstance(each, ast.Name)}
        quoted = {each.value for each in inside if isinstance(each, ast.Constant)}
        if are_constants and not (read | quoted) & defined:
            yield nodes[0]
        else:
            defined |= {
                each.id
                for each in inside
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }


def test_constants_stand_above_all_definitions_unless_made_of_one() -> None:
    late = [where(path, node) for path in FILES for node in late_constants(tree_of(path))]

    assert late == []


def test_files_stay_short() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in FILES
    }

    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_code_is_ascii() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for folder in ("src", "tests", "bench", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.read_text(encoding="utf-8").isascii()
    ]

    assert wrong == []


def test_every_ignored_lint_rule_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.pydocstyle]")]

    rules = [line for line in section.splitlines() if re.match(r'\s+"[A-Z]+\d*",', line)]

    assert len(rules) > 10
    assert [line for line in rules if not re.search(r"# \S+", line)] == []


def lazy_folders() -> list[Path]:
    return [path for path in SOURCE.rglob("__init__.py") if "lazily(__name__)" in path.read_text()]


@pytest.mark.parametrize("path", lazy_folders(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_folder_offers_exactly_what_its_type_checker_sees(path: Path) -> None:
    folder = import_module(".".join(path.parent.relative_to(SOURCE.parent).parts))
    listed = {
        alias.asname
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("foretrace.")
        for alias in node.names
        if alias.asname is not None
    }
    listed |= {
        name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        for name in dir(import_module(node.module or ""))
    }

    assert set(dir(folder)) == listed
    for name in listed:
        assert getattr(folder, name) is not None


def test_classes_have_names_of_their_own() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())

    assert len(homes) > 500
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(foretrace, "nonsense")  # noqa: B009  the point is the lookup by name


def in_fresh_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_loads_no_other_library() -> None:
    loaded = in_fresh_python(
        "import sys; before = set(sys.modules); import foretrace;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )

    assert set(loaded.split()) - set(sys.stdlib_module_names) == {"foretrace"}


def test_a_folder_does_not_hide_the_verb_of_its_name() -> None:
    shown = in_fresh_python(
        "import foretrace; import foretrace.simulate;"
        "from foretrace.simulate import simulate as engine;"
        "print(callable(foretrace.simulate), foretrace.simulate.__module__)"
    )

    assert shown == "True foretrace.api.verbs"


def commands() -> list[Command]:
    return [command for command in command_tree() if command.path]


def test_every_command_and_option_has_help() -> None:
    wrong = [command.title for command in command_tree() if not command.help]
    wrong += [
        f"{command.title} {option.name}"
        for command in command_tree()
        for option in command.options
        if not option.help
    ]

    assert wrong == []


def test_every_command_and_option_is_in_the_docs() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    wrong = [one.title for one in commands() if f"## {one.title}\n" not in text]
    common = re.split(r"\n## ", text[text.find("## Options that commands share\n") + 3 :])[0]
    told_there = {
        option.help for one in commands() if one.path == ("idle",) for option in one.options
    }
    shared = re.split(r"\n## ", text[text.find("## Questions about a step\n") + 3 :])[0]
    about_a_step = {one.replace("_", "-") for one in dir(questions)} | {"analyze", "compare"}
    about_a_step |= {"critical-path", "hang", "memory", "operators", "sensitivity", "throughput"}
    for command in commands():
        start = text.find(f"## {command.title}\n")
        section = re.split(r"\n## ", text[start + 3 :])[0]
        section += shared if command.path[-1] in about_a_step else ""
        wrong += [
            f"{command.title} {option.name}"
            for option in command.options
            if option.name.startswith("--")
            and f"`{option.name}" not in section + common * (option.help in told_there)
        ]

    assert wrong == []


def test_commands_in_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL))
    by_path = {command.path: command for command in commands()}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))

    used = re.findall(r"^foretrace (\S+)(.*?)(?:#.*)?$", blocks, flags=re.MULTILINE)
    made = re.findall(r"^make ([a-z-]+)", blocks, flags=re.MULTILINE)

    assert used
    assert made
    for name, rest in used:
        options = {option.name for option in by_path[name,].options}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options, name
    assert set(made) <= targets


def test_links_between_documents_lead_somewhere() -> None:
    documents = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "changes").glob("*.md"),
    ]
    wrong = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in documents
        for target in re.findall(r"\]\(([^)#\s]+)\)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]

    assert len(documents) > 5
    assert wrong == []


def test_files_and_folders_named_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w.-]+(?:/[\w.-]+)+/?|[\w.-]+\.(?:md|toml))`", text))
    for files in re.findall(r"^ +\| \d+ \| (`.+?`) \|", text, re.MULTILINE):
        named |= {f"graph/rules/{name}" for name in re.findall(r"`(\w+)`", files)}
    wrong = [
        name
        for name in sorted(named)
        if not any(
            (home / f"{name}{ending}").exists() for home in (ROOT, SOURCE) for ending in ("", ".py")
        )
    ]

    assert len(named) > 20
    assert wrong == []


def test_names_in_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    used = set(re.findall(r"\bft\.(\w+)", text))

    assert used
    assert used <= set(dir(foretrace))


def test_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert project["tool"]["hatch"]["version"]["path"] == "src/foretrace/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", foretrace.__version__)


# Modules, and names of `os`, that only some systems have; and where one is asked for, guarded.
_OF_POSIX = {"crypt", "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
_OF_OS = {
    *("fork", "forkpty", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg"),
    *("mkfifo", "nice", "sched_getaffinity", "sched_setaffinity", "setsid", "wait3", "wait4"),
}
_GUARDED = {("base/memory.py", "resource")}


def test_nothing_of_posix_alone_is_needed() -> None:
    found = set()
    for path in FILES:
        name, tree = path.relative_to(SOURCE).as_posix(), tree_of(path)
        found |= {(name, module) for _, module in imports_of(path) if module in _OF_POSIX}
        found |= {
            (name, f"os.{node.attr}")
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr in _OF_OS
            and dotted(node) == f"os.{node.attr}"
        }

    assert found == _GUARDED


def test_what_is_installed_is_small() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in SOURCE.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                wheel.write(path, path.relative_to(SOURCE))

    assert len(packed.getvalue()) < 3_000_000


def test_every_page_is_on_the_site() -> None:
    told = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {
        path.relative_to(ROOT / "docs").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if not path.name.startswith("0000-")
    }
    named = set(re.findall(r"- (\S+\.md)$", told, flags=re.MULTILINE))

    assert named == pages
