"""Can it be believed: the null models, what durations rest on, constants, findings, files."""

from __future__ import annotations

from foretrace.answer import (
    Cell,
    Column,
    Legend,
    Paragraph,
    Sentences,
    Share,
    ShareBar,
    SideBySide,
    Table,
    Unit,
    component_text,
    percent_text,
    readable,
)
from foretrace.graph import Clock, ExecutionGraph
from foretrace.report.document import Section
from foretrace.report.replay_rows import constant_rows, duration_shares, null_model_rows
from foretrace.trace import TraceMeta
from foretrace.validate import ReplayReport

RESTS_ON = (
    "Shares of the critical path to the end of every step. Waits are in none of them: waiting for "
    "other ranks, for the device and for a place in the launch queue is never taken from the "
    "recording but simulated."
)
COLOUR_OF_ORIGIN = ("host", "compute", "communication", "warn", "constant")


def trust_section(replay: ReplayReport) -> Section:
    """How well the replay fits beside its null models, and how much rests on inference."""
    shares = tuple(
        Share(one.name, one.percent, percent_text(one.percent), colour, one.text)
        for one, colour in zip(duration_shares(replay.mix), COLOUR_OF_ORIGIN, strict=True)
    )
    return Section(
        key="trust",
        title="Can it be believed?",
        short="Trust",
        lead=(
            "The replay beside replays that each leave out one class of dependency. A model that "
            "is close for the wrong reason is close in one column and far off in another."
        ),
        parts=(
            _null_models(replay),
            Paragraph("What the replayed time rests on", RESTS_ON),
            ShareBar("", shares, is_thin=True),
            Legend(shares),
            _per_step(replay),
        ),
    )


def recording_section(
    replay: ReplayReport,
    graph: ExecutionGraph,
    metas: tuple[TraceMeta, ...],
    *,
    refusals: tuple[str, ...] = (),
) -> Section:
    """What the recording lacks, what was fitted to it, and its files.

    Args:
        refusals: why an answer is missing from the page, a sentence each.
    """
    findings = tuple(
        (
            one.topic,
            f"{one.text} {_names(tuple(readable(path.name) for path in one.paths))}".rstrip(),
        )
        for one in replay.findings
    )
    unanswered = tuple(("", refusal) for refusal in refusals)
    fitted = [_constants(graph)]
    if len(replay.clocks) > 1:
        fitted.append(_clocks(replay.clocks))
    return Section(
        key="recording",
        title="The recording",
        short="Recording",
        parts=(
            Sentences("What it lacks", findings or (("Nothing was found missing.", ""),)),
            *([Sentences("Not answered", unanswered)] if unanswered else []),
            SideBySide(tuple(table for table in fitted if table.rows)),
            _files(metas),
        ),
    )


def _names(names: tuple[str, ...]) -> str:
    """Names of files, at most three of them."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004  as stated
    return f"({', '.join(names[:3])}{rest})" if names else ""


def _null_models(replay: ReplayReport) -> Table:
    rows = null_model_rows(replay)
    return Table(
        key="null-models",
        title="",
        columns=(
            Column("model", "model", Unit.WORD),
            Column("leaves_out", "what is missing"),
            Column("mean_step_error_percent", "step's end, mean", Unit.PERCENT),
            Column("worst_step_error_percent", "step's end, worst", Unit.PERCENT),
            Column("worst_component_error_percent", "component, worst", Unit.PERCENT),
            Column("worst_component", "which", Unit.WORD),
            Column("p95_kernel_start_error_percent", "kernel starts, p95", Unit.PERCENT),
            Column("worst_collective_error_percent", "collective time, worst", Unit.PERCENT),
        ),
        rows=tuple(
            (
                row.short,
                row.title,
                row.summary.mean_step_error_percent,
                row.summary.worst_step_error_percent,
                row.summary.worst_component_error_percent,
                component_text(row.summary.worst_component),
                row.summary.p95_kernel_start_error_percent,
                row.summary.worst_collective_error_percent,
            )
            for row in rows
        ),
        strong_rows=frozenset(index for index, row in enumerate(rows) if row.is_replay),
        note=(
            "Errors of steps, components and kernel starts in percent of the step on that rank; "
            "of collectives in percent of the rank's collective time."
        ),
    )


def _per_step(replay: ReplayReport) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for step in replay.steps:
        for rank in step.ranks:
            step_ns = max(rank.measured_ns, 1)
            has_starts = bool(rank.kernel_start_error.count)
            rows.append(
                (
                    step.name,
                    rank.rank,
                    rank.measured_ns,
                    rank.replayed_ns,
                    100 * (rank.replayed_ns - rank.measured_ns) / step_ns,
                    rank.host_measured_ns,
                    100 * rank.kernel_start_error.p95_ns / step_ns if has_starts else None,
                )
            )
    return Table(
        key="steps",
        title="Every step on every rank",
        columns=(
            Column("step", "step", Unit.WORD),
            Column("rank", "rank", Unit.IDENTIFIER),
            Column("measured_ns", "measured ms", Unit.MS),
            Column("replayed_ns", "replayed ms", Unit.MS),
            Column("error_percent", "error", Unit.SIGNED_PERCENT),
            Column("host_mark_ns", "host mark ms", Unit.MS),
            Column("kernel_start_error_p95_percent", "kernel starts p95", Unit.PERCENT),
        ),
        rows=tuple(rows),
        max_rows=16,
    )


def _constants(graph: ExecutionGraph) -> Table:
    rows = constant_rows(graph)
    return Table(
        key="constants",
        title="Fitted constants",
        columns=(
            Column("edge", "time along an edge"),
            Column("lag_ns", "constant", Unit.NS),
            Column("low_ns", "10th percentile", Unit.NS),
            Column("high_ns", "90th", Unit.NS),
            Column("num_samples", "samples", Unit.COUNT),
        ),
        rows=tuple(
            (
                row.text,
                row.constant.lag_ns,
                row.constant.low_ns,
                row.constant.high_ns,
                row.constant.num_samples,
            )
            for row in rows
        ),
        note=(
            "Without samples the constant is the stated default."
            if any(not row.constant.num_samples for row in rows)
            else ""
        ),
    )


def _clocks(clocks: tuple[Clock, ...]) -> Table:
    return Table(
        key="clocks",
        title="Clocks",
        columns=(
            Column("rank", "rank", Unit.IDENTIFIER),
            Column("offset_ns", "offset", Unit.SIGNED_NS),
            Column("drift_ppb", "drift, ppb", Unit.NUMBER),
            Column("spread_ns", "residual", Unit.NS),
            Column("num_matches", "matches", Unit.COUNT),
        ),
        rows=tuple(
            (clock.rank, clock.offset_ns, clock.drift_ppb, clock.spread_ns, clock.num_matches)
            for clock in clocks
        ),
        max_rows=32,
    )


def _files(metas: tuple[TraceMeta, ...]) -> Table:
    return Table(
        key="files",
        title="Files",
        columns=(
            Column("rank", "rank", Unit.IDENTIFIER),
            Column("file", "file", Unit.WORD),
            Column("file_bytes", "size", Unit.BYTES),
            Column("num_events", "records", Unit.COUNT),
            Column("is_cut_off", "cut off", Unit.WORD),
            Column("not_kept", "not kept"),
        ),
        rows=tuple(
            (
                meta.rank,
                readable(meta.path.name),
                meta.file_bytes,
                meta.num_events,
                "yes" if meta.is_truncated else "no",
                ", ".join(f"{reason} {count:,}" for reason, count in sorted(meta.dropped.items())),
            )
            for meta in metas
        ),
        max_rows=64,
    )
