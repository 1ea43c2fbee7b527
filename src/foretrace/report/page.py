"""`ReportPage`: a job, its replay and every answer about them, as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretrace.analyze import (
    UNRECORDED_RANK,
    Bound,
    BusyFraction,
    CollectiveTable,
    HostFrames,
    IdleCause,
    NodeLabels,
    StepTable,
    Stragglers,
    questions,
)
from foretrace.answer import Question, Sentences, Table, Unit, cell_text, count_text
from foretrace.graph import Timeline
from foretrace.report.answers import Answers, OptimizerSeen
from foretrace.report.document import (
    NO_BREAK_SPACE,
    Card,
    Section,
    card_of,
    section_of,
    three_digits,
    told_section,
)
from foretrace.report.sections import (
    collective_section,
    help_section,
    longest_wait_for,
    recording_section,
    step_section,
    timeline_section,
    trust_section,
)
from foretrace.report.sheet import Sheet, path_spans, write_sheet
from foretrace.report.strip import DrawnTimeline
from foretrace.trace import TraceMeta
from foretrace.validate import ReplayReport
from foretrace.whatif import subject_of

_MEASURED_PATH = (
    "Paler: on the measured timeline, where unexplained time is time that no dependency explains."
)


@dataclass(frozen=True)
class ReportPage:
    """Everything the page shows; made by `foretrace.api`."""

    title: str
    version: str  # of foretrace
    replay: ReplayReport
    metas: tuple[TraceMeta, ...]
    timeline_by_title: Mapping[str, Timeline]  # "measured" and "replayed", of one graph
    collectives_by_title: Mapping[str, CollectiveTable]
    steps_by_title: Mapping[str, StepTable]
    busy_by_title: Mapping[str, BusyFraction]
    labels: NodeLabels  # of the graph
    answers: Answers
    step_ns: int  # the job's step time, measured
    frames: HostFrames | None = None  # of the measured timeline
    bound: Bound | None = None  # of the measured steps; `None` without any
    left_out: tuple[str, ...] = ()  # classes of dependency that this replay does without


def write_page(path: Path, page: ReportPage) -> None:
    """Write the page as one self-contained HTML file."""
    paths = page.answers.path_by_title
    sheet = Sheet(
        title=page.title,
        kind="Training step report",
        subject=_subject(page),
        version=page.version,
        cards=_cards(page),
        sections=sections_of(page),
        drawn_by_title={
            title: DrawnTimeline(
                timeline=timeline,
                collectives=page.collectives_by_title[title],
                steps=page.steps_by_title[title],
                path=path_spans(paths.get(title)),
                idle=page.answers.idle_by_title.get(title),
                frames=page.frames if title == "measured" else None,
            )
            for title, timeline in page.timeline_by_title.items()
        },
        busy_by_title=page.busy_by_title,
        labels=page.labels,
        path=paths.get("replayed"),
        lead=_lead(page),
        twin="replayed",
        warning=f"Replayed without: {', '.join(page.left_out)}." if page.left_out else "",
    )
    write_sheet(path, sheet)


def _subject(page: ReportPage) -> str:
    """Ranks, steps and devices: `8 ranks of 8, 1 step, NVIDIA A100-SXM4-80GB`."""
    num_ranks = len({row.rank for row in page.replay.rows})
    world_sizes = {meta.world_size for meta in page.metas if meta.world_size}
    text = count_text(num_ranks, "rank")
    if len(world_sizes) == 1 and world_sizes != {num_ranks}:
        text += f" of {world_sizes.pop()}"
    devices = sorted({name for meta in page.metas for name in meta.device_names})
    return ", ".join([text, count_text(len(page.replay.steps), "step"), *devices[:3]])


def _lead(page: ReportPage) -> str:
    """What a reader should know if it reads one sentence alone."""
    said = [] if page.bound is None else [page.bound.sentence]
    best = _best_saving(page.answers)
    if said and best is not None:
        what, share = best
        said.append(f"{subject_of(what)} would save {share:.0%}".replace("%", " %"))
    return f"{'; '.join(said)}.".replace(" %", f"{NO_BREAK_SPACE}%") if said else ""


def _best_saving(answers: Answers) -> tuple[str, float] | None:
    """The change that pays most, and its share of the step; without any, the best lever."""
    remedies, helps = answers.remedies, answers.helps
    if remedies is not None and remedies.rows:
        return remedies.rows[0].name, remedies.rows[0].share
    if helps is not None and helps.rows:
        return helps.rows[0].text.split(": step")[0], helps.rows[0].share
    return None


def _cards(page: ReportPage) -> tuple[Card, ...]:
    """The run in a few figures; none of the replay."""
    cards = [_step_card(page)]
    if page.bound is not None:
        remark = "computing or transferring, mean over ranks and steps; waiting is not counted"
        who = "GPUs busy" if page.bound.is_on_device else "Ranks busy"
        cards.append(Card(who, _percent(page.bound.busy), remark))
    done = page.answers.throughput
    if done is not None:
        tokens, samples, mfu, _ = done.facts()
        told = (samples if tokens.is_missing else tokens, mfu)
        cards += [card_of(one) for one in told if not one.is_missing]
    blamed = page.answers.by_question.get("stragglers")
    if isinstance(blamed, Stragglers):
        cards += _slowest_card(blamed)
    best = _best_saving(page.answers)
    if best is not None:
        what, share = best
        cards.append(Card("Biggest saving", f"-{_percent(share)}", f"of the step: {what}"))
    return tuple(cards)


def _slowest_card(blamed: Stragglers) -> list[Card]:
    """Which rank the others waited for most while it was recorded; a late begin is not slow."""
    late = {
        one.rank: [why for why in one.causes if why.cause is not IdleCause.EDGE]
        for one in blamed.ranks
    }
    waited_ns = {rank: sum(why.waiting_ns for why in causes) for rank, causes in late.items()}
    worst = max(waited_ns, key=waited_ns.__getitem__, default=None)
    if worst is None or waited_ns[worst] == 0:
        return []
    waited = three_digits(cell_text(waited_ns[worst], Unit.NS))
    cause = late[worst][0].cause
    is_untold = cause is IdleCause.UNRECORDED
    reason = "what was not recorded" if is_untold else f"its {cause.words}"
    who = "not recorded" if worst == UNRECORDED_RANK else f"rank{NO_BREAK_SPACE}{worst}"
    (whole,) = (one for one in blamed.ranks if one.rank == worst)
    begins = len(whole.causes) > len(late[worst])
    beside = ", its late begin left out;" if begins else ","
    remark = f"others wait {waited} in all for it{beside} most for {reason}"
    return [Card("Slowest rank", who, remark)]


def _step_card(page: ReportPage) -> Card:
    """The job's step, and how it was found."""
    replay = page.replay
    said = [f"{count_text(len(replay.steps), 'step')}, measured with the profiler on"]
    if replay.unprofiled_ns is not None:
        said.append(f"{three_digits(cell_text(replay.unprofiled_ns, Unit.NS))} without")
    value = three_digits(cell_text(page.step_ns, Unit.NS)).replace(" ", NO_BREAK_SPACE)
    return Card("Step of the job", value, "; ".join(said))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}{NO_BREAK_SPACE}%"


def sections_of(page: ReportPage) -> tuple[Section, ...]:
    """The page's answers, those first that a reader asks first; without those that are missing."""
    answers, collectives = page.answers, page.collectives_by_title["measured"]
    measured = answers.idle_by_title.get("measured")
    placed = [
        (0, told_section("hang", ("This run hangs", "Hang"), answers.hang)),
        (10, step_section(page.replay)),
        (20, help_section(answers.helps, answers.lost, idle=measured, remedies=answers.remedies)),
        (30, timeline_section(("measured",))),
        (80, collective_section(collectives)),
        (90, told_section("blocks", ("Blocks", ""), answers.blocks)),
        (105, told_section("throughput", ("Throughput and MFU", "Throughput"), answers.throughput)),
        (110, told_section("roofline", ("Roofline", ""), answers.roofline)),
        (130, told_section("memory", ("Memory", ""), answers.memory)),
        (140, _optimizer_section(answers.optimizer)),
        (150, trust_section(page.replay)),
        (160, recording_section(page.replay, page.metas, refusals=answers.refusals)),
    ]
    for name, found in answers.by_question.items():
        question: Question[Any, Any, ..., Any] = getattr(questions, name)
        path = answers.path_by_title.get("measured") if name == "critical_path" else None
        section = section_of(question, found, beside=path, note=_MEASURED_PATH if path else "")
        if section is not None and isinstance(found, Stragglers):
            section = _with_stretches(section, found, collectives)
        placed.append((question.place.order if question.place else 0, section))
    placed.sort(key=lambda one: one[0])
    return tuple(section for _, section in placed if section is not None)


def _optimizer_section(seen: OptimizerSeen | None) -> Section | None:
    """What an optimizer's monitor saw; its alarms lead to their steps."""
    titles = ("The optimizer", "Optimizer")
    section = None if seen is None else told_section("optimizer", titles, seen.run, note=seen.note)
    if seen is None or section is None:
        return None
    parts = tuple(
        replace(part, stretches=seen.stretches)
        if isinstance(part, Table) and part.key == "optimizer-alarms"
        else part
        for part in section.parts
    )
    return replace(
        section, parts=parts, lead=f"{seen.run.headline[:1].upper()}{seen.run.headline[1:]}."
    )


def _with_stretches(section: Section, found: Stragglers, collectives: CollectiveTable) -> Section:
    """Sentences about ranks that are waited for, each with the longest wait for that rank."""
    blamed = [one.rank for one in found.ranks if one.causes]
    stretches = tuple(longest_wait_for(collectives, rank) for rank in blamed)
    parts = tuple(
        replace(part, stretches=stretches[: len(part.texts)])
        if isinstance(part, Sentences)
        else part
        for part in section.parts
    )
    return replace(section, parts=parts)
