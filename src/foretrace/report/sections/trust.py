"""Can it be believed: the null models, what durations rest on, constants, findings, files."""

from __future__ import annotations

from dataclasses import replace

from foretrace.analyze import COLOUR_OF_SHOWN
from foretrace.answer import (
    Column,
    Facts,
    Legend,
    Paragraph,
    Sentences,
    Share,
    ShareBar,
    SideBySide,
    Table,
    Unit,
    percent_text,
    readable,
)
from foretrace.graph import Clock
from foretrace.report.document import Section
from foretrace.trace import TraceMeta
from foretrace.validate import ReplayReport

RESTS_ON = (
    "Shares of the critical path to the end of every step. Waits are in none of them: waiting for "
    "other ranks, for the device and for a place in the launch queue is never taken from the "
    "recording but simulated."
)
_NULL_MODELS = (
    "The replay beside replays that each leave out one class of dependency. A model that is close "
    "for the wrong reason is close in one column and far off in another."
)
COLOUR_OF_ORIGIN = ("host", "compute", "communication", "warn", "constant")


def trust_section(replay: ReplayReport) -> Section:
    """How well the replay fits beside its null models, and how much rests on inference."""
    shares = tuple(
        Share(
            str(name),
            100 * float(share or 0),
            percent_text(100 * float(share or 0)),
            colour,
            str(text),
        )
        for (name, share, text), colour in zip(
            replay.origins_table().rows, COLOUR_OF_ORIGIN, strict=True
        )
    )
    return Section(
        key="trust",
        title="Can it be believed?",
        short="Trust",
        lead="What was measured, rebuilt from the dependencies alone.",
        parts=(
            *(part for part in replay.parts() if isinstance(part, Facts)),
            replace(
                replay.components_table(),
                title="Measured and replayed",
                lead="Mean over all steps and ranks.",
                colours=tuple(COLOUR_OF_SHOWN.values()),
            ),
            replace(replay.null_models_table(), title="Beside null models", lead=_NULL_MODELS),
            Paragraph("What the replayed time rests on", RESTS_ON),
            ShareBar("", shares, is_thin=True),
            Legend(shares),
            replace(replay.steps_table(), title="Every step on every rank"),
        ),
        is_folded=True,
    )


def recording_section(
    replay: ReplayReport,
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
    fitted = [replace(replay.constants_table(), title="Fitted constants")]
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
        is_folded=True,
    )


def _names(names: tuple[str, ...]) -> str:
    """Names of files, at most three of them."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004  as stated
    return f"({', '.join(names[:3])}{rest})" if names else ""


def _clocks(clocks: tuple[Clock, ...]) -> Table:
    return Table.of(
        "clocks",
        clocks,
        Column("rank"),
        Column("offset_ns", "offset", Unit.SIGNED_NS),
        Column("drift_ppb", "drift, ppb", Unit.NUMBER),
        Column("spread_ns", "residual", Unit.NS),
        Column("num_matches", "matches", Unit.COUNT),
        title="Clocks",
        max_rows=32,
    )


def _files(metas: tuple[TraceMeta, ...]) -> Table:
    return Table.of(
        "files",
        metas,
        Column("rank"),
        Column("file", "file", Unit.WORD, lambda one: readable(one.path.name)),
        Column("file_bytes", "size", Unit.BYTES),
        Column("num_events", "records", Unit.COUNT),
        Column("is_cut_off", "cut off", Unit.WORD, lambda one: "yes" if one.is_truncated else "no"),
        Column("not_kept", "not kept", value=_not_kept),
        title="Files",
        max_rows=64,
    )


def _not_kept(meta: TraceMeta) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(meta.dropped.items()))
