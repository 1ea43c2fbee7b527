"""`Alone`: the best plan where one dimension of a space is free, beside all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretrace.answer import Column, Plain, Table, Unit
from foretrace.search.looked import Looked
from foretrace.search.variables import DIMENSIONS

_JOINT, _NONE = "all", "none"
Row = Mapping[str, object]


@dataclass(frozen=True)
class Alone(Plain):
    """The best plan with all as by default but one dimension of the space."""

    json_also = ("gain_share",)
    json_names: ClassVar = {"dimension": "free"}

    dimension: str  # that is free; "none": the default itself; "all": the joint optimum
    best: Looked
    num_plans: int
    default_ns: int
    is_cut: bool = False  # time was over before the best of them was known

    @property
    def gain_share(self) -> float:
        """Of the default's speed."""
        return self.default_ns / self.best.step_ns - 1

    @property
    def words(self) -> str:
        """Where its ranks stand, what they do when, and how they exchange."""
        cut = ("the best by when time was over",) if self.is_cut else ()
        return ", ".join((self.best.summary, *self.best.placement_words, *cut))


def _freed(default: Row, columns: Mapping[int, Row]) -> dict[str, list[int]]:
    """Plans that are as by default but for one dimension, the default first; none without it."""
    found = {_NONE: [plan for plan, own in columns.items() if own == default]}
    for name, free in DIMENSIONS.items():
        held = default.keys() - set(free)
        alike = [
            plan for plan, own in columns.items() if all(own[key] == default[key] for key in held)
        ]
        if len(alike) > 1:
            found[name] = alike
    return found if found[_NONE] else {}


@dataclass(frozen=True)
class Freed:
    """Plans of one dimension that were looked at."""

    plans: Sequence[int]  # the default first
    is_cut: bool  # time was over before the best of them was known


def freed_in_turn(
    default: Row,
    columns: Mapping[int, Row],
    look: Callable[[Sequence[int]], tuple[int, bool]],
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> dict[str, Freed]:
    """Plans that are as by default but for one dimension, all of them looked at; then all plans.

    From the best of all, one dimension after the other is freed until none makes it better: where
    plans are looked at closely, others may be best than from afar.

    Args:
        default: columns of the plan that is one.
        columns: of every plan of the space.
        look: simulates the best of some plans, and says which is the best of all so far, and
            whether time was over before.
        is_over: whether there is no time to look at another dimension.
    """
    freed = _freed(default, columns)
    if not freed:
        return {}
    found = {}
    for name, plans in {**freed, _JOINT: list(columns)}.items():
        if name in {_NONE, _JOINT} or not is_over():
            best, is_cut = look(plans)
            found[name] = Freed(plans, is_cut)
    seen = set[int]()
    while best not in seen and not is_over():
        seen.add(best)
        for plans in _freed(columns[best], columns).values():
            best = best if is_over() else look(plans)[0]
    return found


def best_alone(freed: Mapping[str, Freed], looked: Sequence[Looked]) -> tuple[Alone, ...]:
    """The best of each dimension, of plans that were simulated kernel by kernel.

    Args:
        freed: those looked at.
        looked: those simulated, the best first.
    """
    found: list[Alone] = []
    for name, one in freed.items():
        own = set(one.plans)
        best = next((each for each in looked if each.number in own), None)
        if best is not None and (found or name == _NONE):
            default_ns = (found[0].best if found else best).step_ns
            found.append(Alone(name, best, len(own), default_ns, is_cut=one.is_cut))
    return tuple(found)


def alone_table(rows: Sequence[Alone]) -> Table:
    """A row for each dimension."""
    return Table.of(
        "alone",
        rows,
        Column("dimension", "free", Unit.WORD),
        Column("step_ns", value="best.step_ns", unit=Unit.MS),
        Column("gain_share", "faster", Unit.SIGNED_SHARE),
        Column("num_plans", "plans"),
        Column("words", "best", Unit.WORD),
        title="all as by default but one dimension, beside all at once",
    )
