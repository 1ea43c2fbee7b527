"""What a Python function would return as a configuration, read off its source; nothing is run.

Assignments, calls, conditions on known values and functions of files beside it are followed.
Everything else stays as a `Symbol`, the expression's own text.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretrace.base import WorkloadError

_DEEPEST = 12  # functions within functions
CALLED = "()"  # the key of a record that names what was called
GIVEN = "(with)"  # the key of what a function that made a record was called with
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, many: _key(one, many) in many,
    ast.NotIn: lambda one, many: _key(one, many) not in many,
}
_MOST = 10_000  # members of a list that is repeated


class Symbol(str):
    """An expression whose value only a run would tell: `torch.bfloat16`."""

    __slots__ = ()


class Record(dict[str, Any]):
    """An object by its attributes; `CALLED` is what makes it."""


class _ReturnedError(Exception):
    """A function is done."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class PythonSource:
    """A module's functions and constants, as far as they can be read."""

    def __init__(self, text: str, path: Path | None, where: str) -> None:
        """Parse a file.

        Raises:
            WorkloadError: if it is no Python.
        """
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
            raise WorkloadError(f"{where} is no Python file: {err}") from err
        self._path = path
        self._where = where
        self.functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
        self._imports: dict[str, tuple[str, int, str]] = {}
        self.names: dict[str, Any] = {}
        self._beside: dict[Path, PythonSource | None] = {}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                for one in node.names:
                    told = (node.module or "", node.level, one.name)
                    self._imports[one.asname or one.name] = told
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                _Call(self, dict(self.names), 0).run([node], keeps=self.names)

    def candidates(self) -> tuple[str, ...]:
        """Functions that return a configuration by themselves."""
        return tuple(
            name
            for name, one in self.functions.items()
            if not name.startswith("_")
            and len(one.args.args) == len(one.args.defaults)
            and one.returns is not None
            and "Config" in ast.unparse(one.returns)
        )

    def returned(self, function: str) -> object:
        """What a function returns.

        Raises:
            WorkloadError: if there is none of that name, or several to choose from.
        """
        found = self.candidates()
        if not function and len(found) == 1:
            function = found[0]
        if function not in self.functions:
            names = ", ".join(found) or "none"
            what = f"has no function {function!r}" if function else "makes several configurations"
            raise WorkloadError(f"{self._where} {what}: name one behind a colon, of {names}")
        return self.call(function, [], {}, depth=0)

    def call(
        self, function: str, args: Sequence[object], keywords: Mapping[str, object], *, depth: int
    ) -> object:
        """What a function returns for these arguments."""
        made = self.functions[function].args
        scope = dict(self.names)
        names = [one.arg for one in (*made.posonlyargs, *made.args)]
        defaults = [*made.defaults]
        call = _Call(self, scope, depth)
        scope.update({name: Symbol(name) for name in names})
        late = names[len(names) - len(defaults) :] if defaults else []
        scope.update({name: call.value(node) for name, node in zip(late, defaults, strict=True)})
        for one, node in zip(made.kwonlyargs, made.kw_defaults, strict=True):
            scope[one.arg] = Symbol(one.arg) if node is None else call.value(node)
        scope.update(zip(names, args, strict=False))
        scope.update(keywords)
        try:
            call.run(self.functions[function].body)
        except _ReturnedError as done:
            return done.value
        return None

    def imported(self, name: str) -> tuple[PythonSource, str] | None:
        """The module beside this file that a name comes from, and its name there."""
        told = self._imports.get(name)
        if told is None or self._path is None:
            return None
        module, level, original = told
        parts = module.split(".") if module else []
        if level:
            roots = [self._path.absolute().parents[level - 1]]
        else:
            roots = list(self._path.absolute().parents)
        for root in roots:
            for path in (
                root.joinpath(*parts).with_suffix(".py"),
                root.joinpath(*parts, "__init__.py"),
            ):
                found = self._source(path) if path.is_file() else None
                if found is not None and original in found._imports:  # noqa: SLF001  its own kind
                    return found.imported(original) or (found, original)
                if found is not None:
                    return found, original
        return None

    def _source(self, path: Path) -> PythonSource | None:
        if path not in self._beside:
            try:
                text = path.read_text(encoding="utf-8")
                self._beside[path] = PythonSource(text, path, f"file {str(path)!r}")
            except (OSError, ValueError, WorkloadError):
                self._beside[path] = None
        return self._beside[path]


class _Call:
    """One run through a function's statements, with the names that it has."""

    def __init__(self, source: PythonSource, scope: dict[str, Any], depth: int) -> None:
        self._source = source
        self._scope = scope
        self._depth = depth

    def run(  # noqa: C901  one for each kind of statement
        self, body: Sequence[ast.stmt], keeps: dict[str, Any] | None = None
    ) -> None:
        for node in body:
            if isinstance(node, ast.Assign):
                value = self.value(node.value)
                for target in node.targets:
                    self._assign(target, value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._assign(node.target, self.value(node.value))
            elif isinstance(node, ast.Expr):
                self.value(node.value)
            elif isinstance(node, ast.If):
                chosen = _truth(self.value(node.test))
                if chosen is not None:
                    self.run(node.body if chosen else node.orelse)
            elif isinstance(node, ast.With | ast.Try):
                self.run(node.body)
            elif isinstance(node, ast.Return):
                raise _ReturnedError(None if node.value is None else self.value(node.value))
        if keeps is not None:
            keeps.update(self._scope)

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._scope[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, makes=True)
            if isinstance(owner, Record):
                owner[target.attr] = value
        elif isinstance(target, ast.Tuple):
            known = isinstance(value, tuple | list) and len(value) == len(target.elts)
            for at, one in enumerate(target.elts):
                self._assign(one, value[at] if known else Record())

    def value(  # noqa: PLR0911  one for each kind of expression
        self, node: ast.expr, *, makes: bool = False
    ) -> Any:
        """What an expression is; with `makes`, an attribute that is missing becomes a record."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, makes=makes)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(one) for one in node.elts]
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(self.value(key)): self.value(one) for key, one in pairs if key is not None}
        if isinstance(node, ast.Subscript):
            return self._member(node)
        if isinstance(node, ast.IfExp):
            chosen = _truth(self.value(node.test))
            if chosen is not None:
                return self.value(node.body if chosen else node.orelse)
        return self._computed(node)

    def _member(self, node: ast.Subscript) -> Any:
        owner, key = self.value(node.value), self.value(node.slice)
        if isinstance(owner, dict) and not isinstance(key, Symbol):
            return owner.get(str(key), Symbol(ast.unparse(node)))
        if isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
            return owner[key]
        return Symbol(ast.unparse(node))

    def _named(self, name: str) -> Any:
        if name in self._scope:
            return self._scope[name]
        found = self._source.imported(name)
        if found is not None and found[1] in found[0].names:
            return found[0].names[found[1]]
        return Symbol(name)

    def _attribute(self, node: ast.Attribute, *, makes: bool) -> Any:
        owner = self.value(node.value, makes=makes)
        if isinstance(owner, Record):
            if makes and not isinstance(owner.get(node.attr), Record):
                owner[node.attr] = Record()
            return owner.get(node.attr, Symbol(ast.unparse(node)))
        return Symbol(f"{owner}.{node.attr}" if isinstance(owner, Symbol) else ast.unparse(node))

    def _computed(self, node: ast.expr) -> Any:  # noqa: C901, PLR0911  so too
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self.value(node.left), self.value(node.right)
            is_known = not isinstance(left, Symbol) and not isinstance(right, Symbol)
            sizes = [len(one) for one in (left, right) if isinstance(one, list)]
            times = [one for one in (left, right) if isinstance(one, int)]
            is_small = not sizes or not times or sizes[0] * abs(times[0]) <= _MOST
            if is_known and is_small:
                try:
                    return _ARITHMETIC[type(node.op)](left, right)
                except (TypeError, ValueError, ZeroDivisionError, OverflowError):
                    return Symbol(ast.unparse(node))
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand)
            if isinstance(node.op, ast.Not) and _truth(inner) is not None:
                return not inner
            if isinstance(node.op, ast.USub) and isinstance(inner, int | float):
                return -inner
        if isinstance(node, ast.BoolOp):
            return self._either(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self.value(node.left), self.value(node.comparators[0])
            known = not isinstance(left, Symbol) and not isinstance(right, Symbol)
            if known and type(node.ops[0]) in _COMPARED:
                try:
                    return bool(_COMPARED[type(node.ops[0])](left, right))
                except TypeError:
                    return Symbol(ast.unparse(node))
        return Symbol(ast.unparse(node))

    def _either(self, node: ast.BoolOp) -> Any:
        is_or = isinstance(node.op, ast.Or)
        value: Any = Symbol(ast.unparse(node))
        for one in node.values:
            value = self.value(one)
            truth = _truth(value)
            if truth is None:
                return Symbol(ast.unparse(node))
            if truth == is_or:
                return value
        return value

    def _called(self, node: ast.Call) -> Any:
        args = [self.value(one) for one in node.args if not isinstance(one, ast.Starred)]
        keywords = {one.arg: self.value(one.value) for one in node.keywords if one.arg is not None}
        if isinstance(node.func, ast.Name) and self._depth < _DEEPEST:
            name, source = node.func.id, self._source
            if name in {"int", "float"} and args and isinstance(args[0], int | float):
                return int(args[0]) if name == "int" else float(args[0])
            if name == "getattr" and len(args) > 1 and isinstance(args[0], Record):
                return args[0].get(str(args[1]), args[2] if len(args) > 2 else Symbol(str(args[1])))  # noqa: PLR2004
            found = (source, name) if name in source.functions else source.imported(name)
            if found is not None and found[1] in found[0].functions:
                made = found[0].call(found[1], args, keywords, depth=self._depth + 1)
                if isinstance(made, Record):
                    made.setdefault(GIVEN, Record(keywords))
                return made
        head = node.func
        if isinstance(head, ast.Attribute) and isinstance(head.value, ast.Call):
            inner = self.value(head.value)  # as in AutoBridge.from_hf_pretrained(NAME).provider()
            if isinstance(inner, Record):
                return inner
        positional = {f"#{at}": one for at, one in enumerate(args)}
        return Record({CALLED: ast.unparse(head), **positional, **keywords})


def _truth(value: object) -> bool | None:
    """Whether a value is true; `None` where only a run would tell."""
    return None if isinstance(value, Symbol) else bool(value)


def _key(one: object, many: object) -> object:
    """A member as a table has it, whose keys are texts here."""
    return str(one) if isinstance(many, dict) else one
