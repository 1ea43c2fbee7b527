"""`Substitutes`: every rule of substitution against every family of a job's kernels.

What a rule is worth is the same edit under `whatif`, simulated; of the critical path, what would be
saved if no other path became the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze import mean_span
from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    duration_text,
    percent_text,
)
from foretrace.base import Float64s, Int64s, ScenarioError
from foretrace.cost import (
    FittedKernels,
    Offer,
    Operation,
    SubstitutionRule,
    node_operations,
    substitution_rules,
)
from foretrace.graph import Timeline
from foretrace.machine import Chip
from foretrace.simulate import way_back
from foretrace.whatif.edits.substituting import OwnKernel, Substitute
from foretrace.whatif.own_kernels import (
    ContractionRow,
    OwnKernelRow,
    copied_contractions,
    own_kernel_rows,
    shape_text,
)

_SIDES = tuple(2 ** (at // 4) * (4 + at % 4) * 64 for at in range(32))  # of squares: 256 to 57,344
_SCALES = tuple(2 ** (at / 4) for at in range(17))  # of all sides: 1 to 16
_UNKNOWN = "shapes not known"


@dataclass(frozen=True)
class Substitutable:
    """What rules are tried on: a recording's replay, or an estimate."""

    timeline: Timeline
    step_ns: int
    num_ranks: int
    chip: Chip | None
    step_ns_with: Callable[[Substitute], int]  # the step under an edit, simulated


@dataclass(frozen=True)
class SubstituteRow(Plain):
    """One rule against one family."""

    rule: str
    family: str  # "gemm bf16"
    num_shapes: int  # distinct ones that it is for
    num_paying: int  # of these faster
    time_ns: int  # that all these take in a step, mean over ranks
    path_ns: int  # saved on the critical path as it is
    worth_ns: int  # saved of the step, simulated
    worth_share: float
    rank_hours: float  # saved in an hour of the job, over all ranks
    crossover: int | None  # sides of the smallest square from which on it pays; `None`: none
    most_share: float  # of the path that no program of this kind saves more than
    workspace_bytes: int


@dataclass(frozen=True)
class ShapeRow(Plain):
    """One shape, and the rule that is best for it."""

    family: str
    shape: str
    num_calls: int  # in a step, over all ranks that were simulated
    time_ns: int  # of each, mean
    rule: str  # with the least time, whether it pays or not
    factor: float  # of its time; above 1: slower
    grown: float | None  # times as large as all sides must be for it to pay; `None`: beyond 16
    workspace_bytes: int


@dataclass(frozen=True, repr=False)
class Substitutes(Answer):
    """Rules against families, what is worth most first."""

    note = (
        "A rule takes the place of kernels only where it is faster. Saves: the step under "
        "`foretrace whatif --substitute`, simulated; on path: what the critical path loses as "
        "it is; at most: that, were all it adds free. From side: of square products."
    )

    chip: str
    step_ns: int
    num_ranks: int
    rows: tuple[SubstituteRow, ...]
    shapes: tuple[ShapeRow, ...]
    contractions: tuple[ContractionRow, ...]
    kernels: tuple[OwnKernelRow, ...]
    limits: tuple[str, ...]  # what none of them can give

    @property
    def headline(self) -> str:
        """What is worth most."""
        if not self.rows or self.rows[0].worth_ns <= 0:
            tried = len({row.rule for row in self.rows})
            return f"none of {tried} rules shortens the step of {duration_text(self.step_ns)}"
        best = self.rows[0]
        return (
            f"{best.rule} on {best.family} saves {percent_text(100 * best.worth_share)} of the "
            f"step of {duration_text(self.step_ns)}"
        )

    def parts(self) -> tuple[Told, ...]:
        """Rules, shapes, and what none gives."""
        return (
            Table.of(
                "rows",
                self.rows,
                Column("rule", unit=Unit.WORD),
                Column("family", unit=Unit.WORD),
                Column("num_shapes", "shapes"),
                Column("num_paying", "pay"),
                Column("time_ns"),
                Column("worth_ns", "saves ms"),
                Column("worth_share", "of the step", Unit.SHARE),
                Column("path_ns", "on path ms", shown=Shown.WIDE),
                Column("most_share", "at most", Unit.SHARE),
                Column("rank_hours", "rank-hours an hour", Unit.NUMBER, shown=Shown.WIDE),
                Column("crossover", "from side", Unit.IDENTIFIER),
                Column("workspace_bytes", "workspace", Unit.BYTES, shown=Shown.WIDE),
            ),
            Table.of(
                "shapes",
                self.shapes,
                Column("family", unit=Unit.WORD),
                Column("shape", unit=Unit.WORD),
                Column("num_calls", "calls"),
                Column("time_ns", "each ms"),
                Column("rule", "nearest rule", Unit.WORD),
                Column("factor", "takes x", Unit.NUMBER),
                Column("grown", "pays at x", Unit.NUMBER),
                Column("workspace_bytes", "workspace", Unit.BYTES, shown=Shown.WIDE),
                title="shapes, and the rule that comes nearest",
            ),
            Table.of(
                "contractions",
                self.contractions,
                Column("family", unit=Unit.WORD),
                Column("shape", unit=Unit.WORD),
                Column("copied", unit=Unit.TEXT),
                Column("num_calls", "calls"),
                Column("time_ns", "each ms"),
                Column("copies_ns", "copies ms"),
                Column("gain", "without x", Unit.NUMBER),
                Column("worth_ns", "saves ms"),
                Column("worth_share", "of the step", Unit.SHARE),
                title="products with copies beside them, and the step without the copies",
            ),
            Table.of(
                "kernels",
                self.kernels,
                Column("kernel", unit=Unit.NAME),
                Column("grid", unit=Unit.WORD),
                Column("num_calls", "calls"),
                Column("time_ns", "each ms"),
                Column("operator", "line", Unit.WORD),
                Column("work_flops", "FLOP", shown=Shown.WIDE),
                Column("num_bytes", "bytes", shown=Shown.WIDE),
                Column("flops_per_byte", "FLOP/B", Unit.NUMBER),
                Column("bound", unit=Unit.WORD),
                Column("best_ns", "at best ms"),
                Column("reached_share", "reached", Unit.SHARE),
                title="Triton's kernels and those that a line describes, under the roofline",
            ),
            Sentences.of("what none of them can give", self.limits),
        )


@dataclass(frozen=True)
class _Work:
    """The distinct operations of a job's kernels, with their times."""

    operations: tuple[Operation, ...]
    num_calls: Int64s  # int64[operations], in a step
    time_ns: Float64s  # float64[operations], of all ranks in a step
    path_ns: Float64s  # float64[operations], on the way to the step's end
    num_ranks: int  # that were simulated

    @property
    def families(self) -> dict[str, list[int]]:
        """Operations by family."""
        found: dict[str, list[int]] = {}
        for at, one in enumerate(self.operations):
            found.setdefault(f"{one.model or _UNKNOWN} {one.dtype}".strip(), []).append(at)
        return found


def tried_substitutes(subject: Substitutable, lines: Sequence[OwnKernel] = ()) -> Substitutes:
    """Every rule against every family of kernels.

    Args:
        subject: a recording's replay, or an estimate.
        lines: operators in index notation, and the kernels that they describe.

    Raises:
        ScenarioError: if it is not known what the kernels run on, or there are none.
    """
    chip = subject.chip
    if chip is None or not subject.timeline.graph.has_device:
        raise ScenarioError(
            "rules of substitution are costed for a chip's kernels, and this job names no chip "
            "that is known: state the machine that it runs on (--machine), of a job on a GPU."
        )
    work = _work_of(subject.timeline)
    kernels = FittedKernels(chip)
    offers = {rule.name: rule.offers(work.operations, kernels) for rule in substitution_rules()}
    rows = list(_rows(subject, work, offers, kernels))
    rows.sort(key=lambda row: (-row.worth_ns, -row.path_ns, row.family, row.rule))
    return Substitutes(
        chip=chip.name,
        step_ns=subject.step_ns,
        num_ranks=subject.num_ranks,
        rows=tuple(rows),
        shapes=tuple(_shapes(work, offers, kernels)),
        contractions=copied_contractions(subject.timeline),
        kernels=own_kernel_rows(subject.timeline, kernels, lines),
        limits=tuple(_limits(subject, work, offers)),
    )


def _work_of(timeline: Timeline) -> _Work:
    graph = timeline.graph
    span = mean_span(timeline, None, None)
    nodes = np.flatnonzero(graph.is_device & np.isin(graph.step, span.steps))
    operations, rows = node_operations(graph, nodes)
    on_path = np.zeros(graph.num_nodes)
    on_path[way_back(timeline, span.end_node).node] += 1
    on_path[way_back(timeline, span.begin_node).node] -= 1
    spans_ns, size, steps = timeline.duration_ns[nodes], len(operations), len(span.steps)
    return _Work(
        operations=operations,
        num_calls=np.bincount(rows, minlength=size) // steps,
        time_ns=np.bincount(rows, spans_ns, size) / steps,
        path_ns=np.bincount(rows, spans_ns * on_path[nodes], size) / steps,
        num_ranks=len(graph.ranks),
    )


def _rows(
    subject: Substitutable,
    work: _Work,
    offers: dict[str, tuple[Offer | None, ...]],
    kernels: FittedKernels,
) -> Iterator[SubstituteRow]:
    for rule in substitution_rules():
        for family, members in work.families.items():
            mine = [at for at in members if offers[rule.name][at] is not None]
            if mine:
                found = [(at, offers[rule.name][at]) for at in mine]
                yield _row(subject, work, (rule, family), found=found, kernels=kernels)


def _row(
    subject: Substitutable,
    work: _Work,
    of: tuple[SubstitutionRule, str],
    *,
    found: Sequence[tuple[int, Offer | None]],
    kernels: FittedKernels,
) -> SubstituteRow:
    rule, family = of
    known = [(at, offer) for at, offer in found if offer is not None]
    paying = [(at, offer) for at, offer in known if offer.pays]
    dtype = work.operations[known[0][0]].dtype
    worth_ns = 0
    if paying:
        worth_ns = subject.step_ns - subject.step_ns_with(Substitute(rule.name, dtype=dtype))
    share = worth_ns / subject.step_ns
    most_ns = sum(work.path_ns[at] * (1 - offer.least_factor) for at, offer in known)
    return SubstituteRow(
        rule=rule.name,
        family=family,
        num_shapes=len(known),
        num_paying=len(paying),
        time_ns=round(sum(work.time_ns[at] for at, _ in known) / work.num_ranks),
        path_ns=round(sum(work.path_ns[at] * (1 - offer.factor) for at, offer in paying)),
        worth_ns=worth_ns,
        worth_share=share,
        rank_hours=share * subject.num_ranks,
        crossover=_crossover(rule, work.operations[known[0][0]], kernels),
        most_share=float(most_ns) / subject.step_ns,
        workspace_bytes=max((offer.workspace_bytes for _, offer in paying), default=0),
    )


def _crossover(rule: SubstitutionRule, one: Operation, kernels: FittedKernels) -> int | None:
    """The least side of a square product from which on the rule pays."""
    squares = [replace(one, sizes=(1, side, side, side)) for side in _SIDES]
    pays = [offer is not None and offer.pays for offer in rule.offers(squares, kernels)]
    last = max((at for at, each in enumerate(pays) if not each), default=-1)
    return _SIDES[last + 1] if last + 1 < len(_SIDES) else None


def _shapes(
    work: _Work, offers: dict[str, tuple[Offer | None, ...]], kernels: FittedKernels
) -> Iterator[ShapeRow]:
    """Shapes that a rule is for, those first that take most."""
    rules = {rule.name: rule for rule in substitution_rules()}
    for at in np.argsort(-work.time_ns, kind="stable").tolist():
        found = [
            (offer.factor, name, offer) for name, all_ in offers.items() if (offer := all_[at])
        ]
        if not found:
            continue
        factor, name, offer = min(found, key=lambda one: one[:2])
        one = work.operations[at]
        batch, *sides = one.sizes
        grown = [
            replace(one, sizes=(batch, *(round(side * scale) for side in sides)))
            for scale in _SCALES
        ]
        larger = rules[name].offers(grown, kernels)
        yield ShapeRow(
            family=f"{one.model} {one.dtype}",
            shape=shape_text(one.sizes),
            num_calls=int(work.num_calls[at]),
            time_ns=round(work.time_ns[at] / max(1, int(work.num_calls[at]))),
            rule=name,
            factor=factor,
            grown=next(
                (scale for scale, each in zip(_SCALES, larger, strict=True) if each and each.pays),
                None,
            ),
            workspace_bytes=offer.workspace_bytes,
        )


def _limits(
    subject: Substitutable, work: _Work, offers: dict[str, tuple[Offer | None, ...]]
) -> Iterator[str]:
    """What no rule reaches, of the critical path."""
    path_ns = work.path_ns
    has_rule = np.array(
        [any(each[at] for each in offers.values()) for at in range(len(work.operations))], np.bool_
    )
    other_ns = subject.step_ns - float(path_ns.sum())
    yield (
        f"{percent_text(100 * other_ns / subject.step_ns)} of the step's critical path is no "
        "kernel's own work (communication, the host, waiting): no other kernel shortens it"
    )
    for family, members in work.families.items():
        rest_ns = float(sum(path_ns[at] for at in members if not has_rule[at]))
        if rest_ns > 0.001 * subject.step_ns:
            yield (
                f"{family}: no rule is for {percent_text(100 * rest_ns / subject.step_ns)} of the "
                "step's critical path"
            )
    least = [
        min((one.least_factor for each in offers.values() if (one := each[at])), default=1.0)
        for at in range(len(work.operations))
    ]
    bound_ns = float(sum(ns * (1 - each) for ns, each in zip(path_ns.tolist(), least, strict=True)))
    yield (
        "were all that rules add free, all of them together would shorten the path by "
        f"{percent_text(100 * bound_ns / subject.step_ns)} of the step"
    )
