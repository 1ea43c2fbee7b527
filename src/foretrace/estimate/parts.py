"""What an estimate tells: where the step goes, memory, how sure it is, the plan in full."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Legend,
    Sentences,
    Series,
    Share,
    ShareBar,
    Shown,
    Table,
    Told,
    Unit,
    bytes_text,
    cell_text,
    duration_text,
    percent_text,
)
from foretrace.base import key_text
from foretrace.cost import source_parts
from foretrace.estimate.words import assumption_text, part_text
from foretrace.workload import Footprint, plan_table

if TYPE_CHECKING:
    from foretrace.estimate.estimate import Alternative, Estimate
    from foretrace.estimate.where import RankParts, Where


MAX_BARS = 16
MAX_TENSORS = 12
_COLOURS = {"compute": "compute", "overlapped": "overlapped", "waiting": "wait", "idle": "idle"}
# Of groups that have exposed transfers, those with the most time first.
_TRANSFERS = ("communication", "category-1", "category-3", "category-5", "category-6")
_HELD = (
    ("parameters", "parameters", "compute"),
    ("gradients", "gradients", "overlapped"),
    ("optimizer", "optimizer", "copy"),
    ("activations", "activations", "communication"),
    ("buffers", "buffers", "wait"),
    ("context", "context", "constant"),
)


def step_parts(found: Estimate) -> tuple[Told, ...]:
    """Where the step's time goes: the mean rank, then every rank of the graph."""
    where, colours = found.where, _colours(found.where)
    shares = tuple(
        Share(part_text(name), 100 * ns / where.step_ns, duration_text(ns), colours[name])
        for name, ns in where.mean.by_name().items()
    )
    by_rank = (ranks_table(where),) if len(where.rows) > 1 else ()
    return ShareBar("", shares), Legend(shares), _parts(where), *by_rank


def _colours(where: Where) -> dict[str, str]:
    """Colour of every part; groups beyond the colours share the last one."""
    found = {}
    num_groups = 0
    for name in where.mean.by_name():
        found[name] = _COLOURS.get(name) or _TRANSFERS[min(num_groups, len(_TRANSFERS) - 1)]
        num_groups += name not in _COLOURS
    return found


def _parts(where: Where) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, time_ns in where.mean.by_name().items():
        of_ranks = [row.parts.by_name().get(name, 0) for row in where.rows]
        share = time_ns / where.step_ns
        rows.append((part_text(name), time_ns, share, min(of_ranks), max(of_ranks)))
    rows.append(("step", where.step_ns, 1.0, where.step_ns, where.step_ns))
    return Table(
        key="parts",
        title="where the time goes, mean over ranks",
        columns=(
            Column("part", " ", Unit.WORD),
            Column("mean_ns", "mean ms", Unit.MS),
            Column("share"),
            Column("least_ns", "least ms", Unit.MS),
            Column("most_ns", "most ms", Unit.MS),
        ),
        rows=tuple(rows),
        strong_rows=frozenset({len(rows) - 1}),
        colours=tuple(_colours(where).values()),
    )


def ranks_table(where: Where) -> Table:
    """Every rank that was simulated, in parts."""
    names = list(where.mean.by_name())
    keys = [f"{name.replace(' ', '_')}_ns" for name in names]
    return Table.of(
        "rank-parts",
        where.rows,
        Column("rank"),
        Column("stage"),
        Column("num_ranks", "stands for"),
        Column("step_ns", value=lambda _: where.step_ns, shown=Shown.FILES),
        *(
            Column(key, f"{part_text(name)}, ms", Unit.MS, partial(_part_ns, name))
            for key, name in zip(keys, names, strict=True)
        ),
        title="per rank that was simulated",
        shown=Shown.WIDE,
        chart=Chart(
            kind=ChartKind.BARS,
            label="time of every simulated rank in parts",
            category="rank",
            category_unit=Unit.RANK,
            series=tuple(
                Series(key, name, colour, group="step")
                for key, (name, colour) in zip(keys, _colours(where).items(), strict=True)
            ),
            unit=Unit.NS,
            max_rows=MAX_BARS,
        ),
    )


def _part_ns(name: str, row: RankParts) -> int:
    return row.parts.by_name().get(name, 0)


def memory_parts(memory: Footprint | None) -> tuple[Told, ...]:
    """Memory by stage; nothing where it is not known."""
    if memory is None:
        return ()
    parts: list[Told] = [_stages(memory)]
    if memory.tensors:
        parts.append(_tensors(memory))
    return tuple(parts)


def memory_lead(memory: Footprint) -> str:
    """How full the fullest stage is, and what is left."""
    peak = memory.peak
    lead = (
        f"Bytes of one rank of every stage at its worst moment; the fullest is stage {peak.stage} "
        f"with {bytes_text(peak.total)}"
    )
    if memory.capacity is None or memory.margin is None:
        return f"{lead}."
    says = "to spare" if memory.margin >= 0 else "too much"
    return f"{lead} of {bytes_text(memory.capacity)}: {bytes_text(abs(memory.margin))} {says}."


def _stages(memory: Footprint) -> Table:
    stages = sorted(memory.stages, key=lambda one: (-one.total, one.stage))
    return Table.of(
        "memory-stages",
        stages,
        Column("stage", "stage", Unit.WORD, lambda one: f"stage {one.stage}"),
        Column("total_bytes", "total", Unit.BYTES, "total"),
        *(Column(f"{key}_bytes", title, value=key) for key, title, _ in _HELD),
        Column("num_in_flight", "in flight", Unit.NUMBER, shown=Shown.WIDE),
        title="memory, fullest stages first",
        chart=Chart(
            kind=ChartKind.BARS,
            label="bytes of every stage by what they are for",
            category="stage",
            series=tuple(
                Series(f"{key}_bytes", title, colour, group="memory")
                for key, title, colour in _HELD
            ),
            unit=Unit.BYTES,
            max_rows=MAX_BARS,
        ),
    )


def _tensors(memory: Footprint) -> Table:
    largest = sorted(memory.tensors, key=lambda one: -one.num_bytes)
    return Table.of(
        "memory-tensors",
        largest,
        Column("tensor", "tensor", value="label"),
        Column("num_bytes", "bytes", Unit.BYTES),
        title="kept by the first layer for its backward pass, one microbatch",
        shown=Shown.WIDE,
        max_rows=MAX_TENSORS,
    )


def certainty_parts(found: Estimate) -> tuple[Told, ...]:
    """How wide the interval is and why, and where durations come from."""
    return (
        _families(found),
        *source_parts(found.share_by_source, of="device time", title="durations come from"),
    )


def certainty_lead(found: Estimate) -> str:
    """How wide the interval is, and why."""
    low, high = duration_text(found.interval.low_ns), duration_text(found.interval.high_ns)
    return (
        f"The middle 80 % of what is expected: {low} to {high}. Every model of a family of "
        "operations came with its error on measurements that were left out when it was fitted; "
        "operations of one family err together, families apart."
    )


def _families(found: Estimate) -> Table:
    return Table.of(
        "uncertainty",
        found.interval.families,
        Column("family", "family"),
        Column("critical_ns", "on the critical path, ms", Unit.MS),
        Column("low_ns", "less, ms", Unit.MS),
        Column("high_ns", "more, ms", Unit.MS),
        title="what each family may move the step by",
        chart=Chart(
            kind=ChartKind.BARS,
            label="by how much the step may be shorter or longer, by family",
            category="family",
            series=(
                Series("high_ns", "longer", "communication"),
                Series("low_ns", "shorter", "compute"),
            ),
            unit=Unit.NS,
            max_rows=MAX_BARS,
        ),
    )


def plan_parts(found: Estimate) -> tuple[Told, ...]:
    """The plan in full, what of it was assumed, and what else a reader has to know."""
    open_keys = set() if found.assumed is None else {one.key for one in found.assumed.assumptions}
    rows: list[tuple[Cell, ...]] = [
        (f"{table}.{key}", _value(value), "assumed" if f"{table}.{key}" in open_keys else "")
        for table, entries in plan_table(found.plan).items()
        for key, value in entries.items()
    ]
    rows.sort(key=lambda row: row[2] != "assumed")
    parts: list[Told] = []
    if found.assumed is not None:
        texts = tuple(("", assumption_text(one)) for one in found.assumed.assumptions)
        spread = spread_text(found)
        said = (("", spread), *texts) if spread else texts
        parts += [Sentences("assumed", said), _alternatives(found)]
    parts.append(
        Table(
            key="plan",
            title="the plan",
            shown=Shown.WIDE,
            columns=(Column("key", "key", Unit.WORD), Column("value", "value"), Column("note", "")),
            rows=tuple(rows),
            max_rows=len(rows),
        )
    )
    if found.notes:
        parts.append(Sentences.of("notes", found.notes))
    return tuple(parts)


def spread_text(found: Estimate) -> str:
    """How far the legal plans are apart; "" if there is one alone."""
    assumed = found.assumed
    if assumed is None or len(assumed.alternatives) == 1:
        return ""
    low, high = assumed.low_ns, assumed.high_ns
    return (
        f"the step takes {duration_text(low)} to {duration_text(high)} under the "
        f"{len(assumed.alternatives)} legal plans, "
        f"{percent_text(100 * (high - low) / found.step_ns)} of the answer apart"
    )


def _alternatives(found: Estimate) -> Table:
    """Steps and memory of all plans that were tried."""
    tried = () if found.assumed is None else found.assumed.alternatives
    open_keys = list(tried[0].values) if tried else []
    keys = [key for key in open_keys if len({str(one.values[key]) for one in tried}) > 1]
    if len(tried) < 2:  # noqa: PLR2004  one plan is the answer itself
        tried = ()
    return Table.of(
        "alternatives",
        tried,
        *(Column(key, key.partition(".")[2], Unit.WORD, partial(_tried, key)) for key in keys),
        Column("step_ns", "step ms", Unit.MS),
        Column("low_ns", "10th ms", Unit.MS, shown=Shown.WIDE),
        Column("high_ns", "90th ms", Unit.MS, shown=Shown.WIDE),
        Column("peak_bytes", "memory", Unit.BYTES),
        Column("fits"),
        title="legal plans that agree with what was stated, the answer first",
        is_strong=lambda one: one is tried[0],
    )


def _tried(key: str, one: Alternative) -> str:
    return _value(one.values[key])


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    if isinstance(value, float):
        return cell_text(value, Unit.NUMBER)
    return key_text(value)
