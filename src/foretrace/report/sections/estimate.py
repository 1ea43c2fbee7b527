"""A step that has not been run: its parts, memory, and what all of it rests on."""

from __future__ import annotations

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
    Table,
    Told,
    Unit,
    bytes_text,
    cell_text,
    duration_text,
    percent_text,
)
from foretrace.estimate import Estimate, Where
from foretrace.report.document import Section
from foretrace.report.estimate_rows import assumption_text, part_text, source_text
from foretrace.workload import Footprint, plan_table

MAX_BARS = 16
MAX_TENSORS = 12
_COLOURS = {"compute": "compute", "overlapped": "overlapped", "waiting": "wait", "idle": "idle"}
# Of groups that have exposed transfers, those with the most time first.
_TRANSFERS = ("communication", "category-1", "category-3", "category-5", "category-6")
COLOUR_OF_SOURCE = {
    "measured": "compute",
    "table": "overlapped",
    "scaled": "copy",
    "fitted": "host",
    "transferred": "communication",
    "roofline": "warn",
    "unknown": "constant",
}
_HELD = (
    ("parameters", "parameters", "compute"),
    ("gradients", "gradients", "overlapped"),
    ("optimizer", "optimizer", "copy"),
    ("activations", "activations", "communication"),
    ("buffers", "buffers", "wait"),
    ("context", "context", "constant"),
)


def estimate_section(found: Estimate) -> Section:
    """Where the step's time goes: the mean rank, then every rank of the graph."""
    where, colours = found.where, _colours(found.where)
    shares = tuple(
        Share(part_text(name), 100 * ns / where.step_ns, duration_text(ns), colours[name])
        for name, ns in where.mean.by_name().items()
    )
    by_rank = (_by_rank(where),) if len(where.rows) > 1 else ()
    return Section(
        key="step",
        title="Where the time goes",
        short="Breakdown",
        lead=(
            f"Mean over {found.plan.num_ranks:,} ranks, of which "
            f"{len(where.rows):,} were simulated, each for those that do the same."
        ),
        parts=(ShareBar("", shares), Legend(shares), _parts(where), *by_rank),
        note=(
            "Exposed: a transfer with no computation beside it, under the group whose transfer "
            "ends last before computation goes on. Waiting: neither, because another stage is not "
            "ready; in a pipeline this is its bubble. The parts sum to the step exactly."
        ),
    )


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
        share = 100 * time_ns / where.step_ns
        rows.append((part_text(name), time_ns, share, min(of_ranks), max(of_ranks)))
    rows.append(("step", where.step_ns, 100.0, where.step_ns, where.step_ns))
    return Table(
        key="parts",
        title="",
        columns=(
            Column("part", "part", Unit.WORD),
            Column("mean_ns", "mean ms", Unit.MS),
            Column("share_percent", "share of step", Unit.PERCENT),
            Column("least_ns", "least ms", Unit.MS),
            Column("most_ns", "most ms", Unit.MS),
        ),
        rows=tuple(rows),
        strong_rows=frozenset({len(rows) - 1}),
        colours=tuple(_colours(where).values()),
    )


def _by_rank(where: Where) -> Table:
    names = list(where.mean.by_name())
    keys = [f"{name.replace(' ', '_')}_ns" for name in names]
    return Table(
        key="rank-parts",
        title="Per rank that was simulated",
        columns=(
            Column("rank", "rank", Unit.WORD),
            Column("num_ranks", "stands for", Unit.COUNT),
            *(
                Column(key, f"{part_text(name)}, ms", Unit.MS)
                for key, name in zip(keys, names, strict=True)
            ),
        ),
        rows=tuple(
            (
                f"rank {row.rank}, stage {row.stage}",
                row.num_ranks,
                *(row.parts.by_name().get(name, 0) for name in names),
            )
            for row in where.rows
        ),
        chart=Chart(
            kind=ChartKind.BARS,
            label="time of every simulated rank in parts",
            category="rank",
            series=tuple(
                Series(key, name, colour, group="step")
                for key, (name, colour) in zip(keys, _colours(where).items(), strict=True)
            ),
            unit=Unit.NS,
            max_rows=MAX_BARS,
        ),
    )


def footprint_section(memory: Footprint | None) -> Section | None:
    """Memory by stage; `None` where it is not known."""
    if memory is None:
        return None
    parts: list[Told] = [_stages(memory)]
    if memory.tensors:
        parts.append(_tensors(memory))
    return Section(
        key="memory",
        title="Memory",
        short="Memory",
        lead=_memory_lead(memory),
        parts=tuple(parts),
        note="; ".join(memory.notes),
        warning="It does not fit." if memory.fits is False else "",
    )


def _memory_lead(memory: Footprint) -> str:
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
    return Table(
        key="memory-stages",
        title="By stage",
        columns=(
            Column("stage", "stage", Unit.WORD),
            Column("total_bytes", "total", Unit.BYTES),
            *(Column(f"{key}_bytes", title, Unit.BYTES) for key, title, _ in _HELD),
            Column("num_in_flight", "in flight", Unit.NUMBER),
        ),
        rows=tuple(
            (
                f"stage {stage.stage}",
                stage.total,
                *(getattr(stage, key) for key, _, _ in _HELD),
                stage.num_in_flight,
            )
            for stage in memory.stages
        ),
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
    return Table(
        key="memory-tensors",
        title="Kept by the first layer for its backward pass, one microbatch",
        columns=(Column("tensor", "tensor"), Column("num_bytes", "bytes", Unit.BYTES)),
        rows=tuple((one.label, one.num_bytes) for one in largest),
        max_rows=MAX_TENSORS,
    )


def certainty_section(found: Estimate) -> Section:
    """How wide the interval is and why, and where durations come from."""
    interval = found.interval
    shares = tuple(
        Share(name, 100 * share, percent_text(100 * share), COLOUR_OF_SOURCE[name],
              source_text(name))
        for name, share in found.share_by_source.items()
    )  # fmt: skip
    return Section(
        key="certainty",
        title="How sure is it?",
        short="Certainty",
        lead=(
            f"The middle 80 % of what is expected: {duration_text(interval.low_ns)} to "
            f"{duration_text(interval.high_ns)}. Every model of a family of operations came with "
            "its error on measurements that were left out when it was fitted; operations of one "
            "family err together, families apart."
        ),
        parts=(_families(found), ShareBar("device time", shares, is_thin=True), Legend(shares)),
        note="To first order: by what of a family lies on the critical path.",
    )


def _families(found: Estimate) -> Table:
    return Table(
        key="uncertainty",
        title="What each family may move the step by",
        columns=(
            Column("family", "family"),
            Column("critical_ns", "on the critical path, ms", Unit.MS),
            Column("low_ns", "less, ms", Unit.MS),
            Column("high_ns", "more, ms", Unit.MS),
        ),
        rows=tuple(
            (one.family, one.critical_ns, one.low_ns, one.high_ns)
            for one in found.interval.families
        ),
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


def plan_section(found: Estimate) -> Section:
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
        parts += [Sentences("Assumed", texts), _alternatives(found)]
    parts.append(
        Table(
            key="plan",
            title="The plan",
            columns=(Column("key", "key", Unit.WORD), Column("value", "value"), Column("note", "")),
            rows=tuple(rows),
            max_rows=len(rows),
        )
    )
    if found.notes:
        parts.append(Sentences("Notes", tuple(("", note) for note in found.notes)))
    return Section(key="plan-section", title="Plan", short="Plan", parts=tuple(parts))


def _alternatives(found: Estimate) -> Table:
    """Steps and memory of all plans that were tried."""
    tried = () if found.assumed is None else found.assumed.alternatives
    keys = list(tried[0].values) if tried else []
    return Table(
        key="alternatives",
        title="Legal plans that agree with what was stated, the answer first",
        columns=(
            *(Column(key, key.partition(".")[2], Unit.WORD) for key in keys),
            Column("step_ns", "step ms", Unit.MS),
            Column("low_ns", "10th ms", Unit.MS),
            Column("high_ns", "90th ms", Unit.MS),
            Column("peak_bytes", "memory", Unit.BYTES),
        ),
        rows=tuple(
            (
                *(_value(one.values[key]) for key in keys),
                one.step_ns,
                one.low_ns,
                one.high_ns,
                one.peak_bytes,
            )
            for one in tried
        ),
        strong_rows=frozenset({0}),
    )


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    if isinstance(value, float):
        return cell_text(value, Unit.NUMBER)
    return str(value).lower() if isinstance(value, bool) else str(value)
