"""`Constraint`: what a user asks of plans, of their own columns and of what comes out of them.

An expression of names, numbers, texts and comparisons. Parts joined by `and` that name what comes
out (a step, days, a price) are promises: a plan is left out as soon as a bound of its step breaks
one, so only those can be asked for that a shorter step keeps.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from foretrace.base import NS_PER_S, WorkloadError
from foretrace.search.objectives import Objective, Promise
from foretrace.search.space import MEMORY, Row, columns_of
from foretrace.workload import Plan

# What comes out of plans, by its column, and how much of the objective's own figure one of it is.
_OUTCOMES: Mapping[str, tuple[Objective, float]] = {
    "step_s": (Objective.STEP, NS_PER_S),
    **{
        one.value: (one, 1.0)
        for one in (Objective.THROUGHPUT, Objective.COST, Objective.EFFECTIVE, Objective.DAYS)
    },
}
_MORE_IS_BETTER = {Objective.THROUGHPUT, Objective.EFFECTIVE}
_COMPARED: Mapping[type[ast.cmpop], Callable[[object, object], bool]] = {
    ast.Lt: lambda one, other: one < other,  # type: ignore[operator]
    ast.LtE: lambda one, other: one <= other,  # type: ignore[operator]
    ast.Gt: lambda one, other: one > other,  # type: ignore[operator]
    ast.GtE: lambda one, other: one >= other,  # type: ignore[operator]
    ast.Eq: lambda one, other: one == other,
    ast.NotEq: lambda one, other: one != other,
    ast.In: lambda one, other: one in other,  # type: ignore[operator]
    ast.NotIn: lambda one, other: one not in other,  # type: ignore[operator]
}
_COUNTED: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.Div: lambda one, other: one / other,
    ast.Mod: lambda one, other: one % other,
}


@dataclass(frozen=True)
class Constraint:
    """What was asked, apart: of a plan's own columns, and promises of what comes out."""

    text: str
    own: tuple[ast.expr, ...]
    promises: tuple[Promise, ...]

    @classmethod
    def of(cls, text: str) -> Constraint:
        """Read an expression.

        Raises:
            WorkloadError: if it is none, names a column that plans have not, or promises what a
                shorter step does not keep.
        """
        try:
            tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError) as err:
            raise _unreadable(text, str(err)) from None
        names = (*columns_of(Plan()), MEMORY, *_OUTCOMES)
        for name in _names(tree):
            if name not in names:
                raise _unreadable(
                    text, f"no column is called {name!r}: there are {', '.join(names)}"
                )
        parts = [tree]
        if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
            parts = tree.values
        own = tuple(part for part in parts if not _OUTCOMES.keys() & _names(part))
        found = cls(text, own, tuple(_promise(part, text) for part in parts if part not in own))
        found.holds({**columns_of(Plan()), MEMORY: 1.0})
        return found

    @property
    def needs_memory(self) -> bool:
        """Whether it is about memory."""
        return any(MEMORY in _names(part) for part in self.own)

    def holds(self, row: Row) -> bool:
        """Whether a plan's own columns meet it."""
        return all(_value(part, row, self.text) for part in self.own)

    def check(self, row: Row) -> None:
        """Refuse a plan whose own columns do not.

        Raises:
            WorkloadError: if they do not.
        """
        if not self.holds(row):
            raise WorkloadError(f"the constraint does not hold: {self.text}")


def _names(tree: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _promise(part: ast.expr, text: str) -> Promise:
    """That a column of what comes out is on the better side of a number."""
    words = ast.unparse(part)
    if isinstance(part, ast.Compare) and isinstance(part.left, ast.Name) and len(part.ops) == 1:
        objective, unit = _OUTCOMES.get(part.left.id, (None, 1.0))
        better = (ast.Gt, ast.GtE) if objective in _MORE_IS_BETTER else (ast.Lt, ast.LtE)
        if objective is not None and isinstance(part.ops[0], better):
            limit = None if _names(part.comparators[0]) else _value(part.comparators[0], {}, text)
            if isinstance(limit, int | float):
                compared = _COMPARED[type(part.ops[0])]
                return Promise(words, objective, limit * unit, compared)
    raise _unreadable(
        text,
        f"{words!r} is not a limit that a shorter step keeps: write those of step_s, cost and days "
        "as 'days <= 60', those of throughput and effective as 'throughput >= 1e6', joined by and",
    )


def _unreadable(text: str, why: str) -> WorkloadError:
    return WorkloadError(
        f"the constraint {text!r} cannot be read ({why}): write comparisons of columns, as in "
        "'tp <= 8 and peak_gb < 70'"
    )


def _value(node: ast.expr, row: Row, text: str) -> object:  # noqa: PLR0911  one for each kind
    def of(one: ast.expr) -> object:
        return _value(one, row, text)

    try:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return row[node.id]
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [of(one) for one in node.elts]
        if isinstance(node, ast.BoolOp):
            told = [bool(of(one)) for one in node.values]
            return all(told) if isinstance(node.op, ast.And) else any(told)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not of(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _COUNTED:
            return _COUNTED[type(node.op)](of(node.left), of(node.right))  # type: ignore[arg-type]
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARED for op in node.ops):
            values = [of(one) for one in (node.left, *node.comparators)]
            pairs = zip(node.ops, values, values[1:], strict=False)
            return all(_COMPARED[type(op)](one, other) for op, one, other in pairs)
    except (TypeError, ZeroDivisionError) as err:
        raise _unreadable(text, str(err)) from None
    raise _unreadable(text, f"{ast.unparse(node)!r} is no comparison")
