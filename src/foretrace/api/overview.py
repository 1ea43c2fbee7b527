"""`overview`: the answers about a run that matter first, on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from foretrace.analyze import (
    Batches,
    Breakdown,
    Diagnosis,
    IdleCause,
    IdleCauses,
    Stillness,
    bound,
    of_no_step_ns,
    operators_of_all_steps,
    step_name,
    step_time_ns,
)
from foretrace.analyze.questions import batches, breakdown, critical_path, idle, operators
from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Json,
    Paragraph,
    Plain,
    Sentences,
    SideBySide,
    Table,
    Told,
    Unit,
    columns_of,
    component_text,
    count_text,
    duration_text,
    milliseconds_text,
    number_text,
    per_second_text,
    percent_text,
    plain,
    short_name,
    signed_percent_text,
)
from foretrace.api.analyses import diagnose, throughput, what_helps
from foretrace.api.edited import Edited, remedies
from foretrace.api.job import Job
from foretrace.base import ScenarioError
from foretrace.graph import WHOLE
from foretrace.whatif import profiler_cost

# Times of these are of the mean rank and step; of the path, of one step.
BREAKDOWN, DEVICE_TIME, PATH, IDLE = "breakdown", "device time", "critical path", "idle or waiting"
HELPS, CHANGES, DONE = "what would help most", "changes that pay", "throughput"
# What shares are of.
_OF_TRAINING = frozenset({"tokens/s", "samples/s"})  # marks of a serving engine say more
_WHOLE = {
    BREAKDOWN: "own step", DEVICE_TIME: "it", PATH: "its step", IDLE: "both",
}  # fmt: skip
_MAX_ROWS = 5
_OF_NO_STEP = 0.01  # of a step: device work of no step is said from here on
_LABEL_WIDTH = 26
_SHORTER = {IdleCause.EDGE: "recording's ends"}
_MAX_CAUSES = 3  # of idle time, and of waiting


@dataclass(frozen=True)
class OverviewLine(Plain):
    """One answer."""

    topic: str
    label: str
    time_ns: float | None
    share: float | None  # of what the topic is about
    text: str = ""  # a sentence, where one says more
    per_s: float | None = None  # of what the label counts


@dataclass(frozen=True, repr=False)
class Overview(Answer):
    """The answers, in the order in which they matter."""

    title: str
    lines: tuple[OverviewLine, ...]
    verdict: str  # what holds the step up, or that it cannot be told

    @property
    def headline(self) -> str:
        """What was looked at."""
        return self.title

    def of(self, topic: str) -> tuple[OverviewLine, ...]:
        """The answers to one question."""
        return tuple(line for line in self.lines if line.topic == topic)

    def parts(self) -> tuple[Told, ...]:
        """Each topic in one table or list."""
        facts = (
            *(
                Fact(line.label, f"{milliseconds_text(line.time_ns or 0)} ms", line.text)
                for line in self.of("step")
            ),
            *(Fact(line.label, _figure(line), line.text) for line in self.of(DONE)),
        )
        first = (self.verdict, *(line.text for line in self.of("bound")))
        return (
            Sentences.of("", (line.text for line in self.of("hang"))),
            Paragraph("", " ".join(f"{one[:1].upper()}{one[1:]}." for one in first)),
            Facts(facts),
            SideBySide((self._shares(BREAKDOWN), self._shares(DEVICE_TIME))),
            SideBySide((self._shares(PATH), self._shares(IDLE))),
            Table.of(
                CHANGES,
                self.of(CHANGES),
                Column("label", CHANGES, Unit.WORD),
                Column("share", "step", Unit.SIGNED_SHARE, lambda line: -(line.share or 0)),
                Column("time_ns", "ms", Unit.SIGNED_MS, lambda line: -(line.time_ns or 0)),
                Column("text", "takes", Unit.WORD),
            ),
            Table.of(
                HELPS,
                self.of(HELPS),
                Column("label", HELPS, Unit.NAME),
                Column("share", "step", Unit.SIGNED_SHARE, lambda line: -(line.share or 0)),
                Column("time_ns", "ms", Unit.SIGNED_MS, lambda line: -(line.time_ns or 0)),
            ),
            *(
                Sentences.of(topic, (line.text for line in self.of(topic)))
                for topic in ("what is wrong", "to know")
            ),
        )

    def tables(self) -> tuple[Table, ...]:
        """One row per answer."""
        return (Table.of("lines", self.lines, *columns_of(OverviewLine)),)

    def as_json(self) -> Json:
        """The verdict, and answers by topic; times in ns."""
        topics = dict.fromkeys(line.topic for line in self.lines)
        told = {topic: plain(self.of(topic)) for topic in topics}
        return {"verdict": self.verdict, "step_time_ns": self.of("step")[0].time_ns, **told}

    def _shares(self, topic: str) -> Table:
        """What each label takes, and its share."""
        label = Column("label", topic, Unit.WORD, lambda line: short_name(line.label, _LABEL_WIDTH))
        share = Column("share", f"of {_WHOLE[topic]}")
        return Table.of(topic, self.of(topic), label, Column("time_ns", "ms"), share)


def _figure(line: OverviewLine) -> str:
    """A rate, or a share."""
    if line.per_s is not None:
        return per_second_text(line.per_s)
    return "not known" if line.share is None else percent_text(100 * line.share)


def overview(job: Job, *, step: str | int | None = None) -> Overview:
    """What a step is made of, what is wrong, and what would help most.

    Args:
        step: by name or number; each answer's own choice, if left out.

    Raises:
        TraceError: if nothing in the files says how long anything took.
        GraphError: if there is no such step.
    """
    job.check_times("analyze")
    wrong = diagnose(job)
    return Overview(_title(job), tuple(_lines(job, wrong, step)), wrong.headline)


def _title(job: Job) -> str:
    """Which run this is about, how much of it, and on what."""
    devices = sorted({name for meta in job.metas for name in meta.device_names})
    ranks, steps = count_text(len(job.ranks), "rank"), count_text(len(job.steps), "step")
    served = batches(job)
    if served.rows:
        steps += f" ({served.counts})"
    return f"{job.title}: {', '.join((ranks, steps, *devices[:2]))}"


def _lines(job: Job, diagnosis: Diagnosis, step: str | int | None) -> Iterator[OverviewLine]:
    """Every answer of which the recording allows one."""
    replayed = job.replayed
    split, path = breakdown(job, step=step), critical_path(replayed, step=step)
    yield from _step_lines(job, split, step)
    if step is None:
        yield from _batch_lines(job)
    if step is None and len(job.steps) > 1:
        text = f"of {path.span.step_name}, nearest the median"
        yield OverviewLine("step", "critical path", path.step_ns, None, text)
    stated = job.edit()
    yield from _done_lines(stated, step, batches(job))
    lost = idle(job.measured, step=step)
    held = bound(split, lost, is_on_device=bool(job.graph.is_device.any()))
    if held is not None:
        yield OverviewLine("bound", held.by, None, held.share, held.sentence)
    num_cells = max(len(split.rows), 1)
    for part, part_ns in split.overall.shown().items():
        of_own = part_ns / max(split.overall.total_ns, 1)
        yield OverviewLine(BREAKDOWN, component_text(part), part_ns / num_cells, of_own)
    whole = operators_of_all_steps(job.measured) if step is None else operators(job, step=step)
    for row in whole.by("class")[:_MAX_ROWS]:
        yield OverviewLine(DEVICE_TIME, row.kind, row.time_ns / num_cells, row.share)
    unknown = whole.unrecognised
    yield OverviewLine(DEVICE_TIME, "not recognised", unknown.time_ns / num_cells, unknown.share)
    for share in path.by_class()[:_MAX_ROWS]:
        yield OverviewLine(PATH, share.label, share.time_ns, share.share)
    yield from _idle_lines(lost, num_cells)
    yield from _changes(stated)
    for one in what_helps(replayed, step=step, top=_MAX_ROWS).rows:
        label = one.text.split(": step")[0]
        yield OverviewLine(HELPS, label, one.gain_ns, one.share, one.text)
    for wrong in diagnosis.told(_MAX_ROWS):
        topic = "hang" if wrong.topic == "hang" else "what is wrong"
        yield OverviewLine(topic, wrong.what, wrong.lost_ns, wrong.share, wrong.sentence)
    yield from _profiler_lines(job, split.step_time_ns)
    yield from _foreign_lines(job, split)
    for finding in job.findings:
        yield OverviewLine("to know", finding.topic, None, None, f"{finding.topic}: {finding.text}")


def _batch_lines(job: Job) -> Iterator[OverviewLine]:
    """Of a serving engine, how long steps of each kind of batch take."""
    for row in batches(job).rows:
        steps = f"median of {row.num_steps:,}" if row.num_steps > 1 else "one"
        told = [f"{number_text(row.requests)} requests"]
        if row.prompt_tokens:
            told.append(f"{number_text(row.prompt_tokens / row.num_steps)} tokens of prompts")
        text = f"{steps}, {' and '.join(told)} each"
        yield OverviewLine("step", f"{row.kind} step", row.median_ns, row.share, text)


def _profiler_lines(job: Job, measured_ns: float) -> Iterator[OverviewLine]:
    """What the profiler itself costs, where it distorts all else."""
    found = profiler_cost(job.recording, measured_ns)
    if found is not None:
        more = found.cost_ns / found.without_ns
        text = f"profiler: {found.sentence}, so that causes on the host are overstated"
        yield OverviewLine("to know", "profiler", found.cost_ns, more, text)


def _foreign_lines(job: Job, split: Breakdown) -> Iterator[OverviewLine]:
    """Work that devices still had when a step began, where it makes tables differ."""
    each_ns = of_no_step_ns(job.measured)
    foreign_ns = float(each_ns.sum()) / max(len(each_ns), 1)
    share = foreign_ns / max(split.own_step_ns, 1)
    if share < _OF_NO_STEP:
        return
    text = (
        f"device time: {duration_text(foreign_ns)} of each step are device work that no recorded "
        "step launched, such as what ran when the recording began: the breakdown has it, device "
        "time has not"
    )
    yield OverviewLine("to know", "device time", foreign_ns, share, text)


def _changes(stated: Edited) -> Iterator[OverviewLine]:
    """Changes that pay, then the best together."""
    with suppress(ScenarioError):
        found = remedies(stated)
        for one in (*found.rows[:_MAX_ROWS], *found.together):
            yield OverviewLine(CHANGES, one.name, one.gain_ns, one.share, one.effort)


def _done_lines(stated: Edited, step: str | int | None, served: Batches) -> Iterator[OverviewLine]:
    """What a step gets done, and what cannot be known of it with the reason."""
    is_served = bool(served.rows)
    if is_served and step is None:
        made = served.reply_tokens_per_s
        yield OverviewLine(DONE, "reply tokens/s", None, None, "one of each that decodes", made)
        taken = served.prompt_tokens_per_s
        words = "tokens taken in" if taken is not None else "marks do not say how many"
        yield OverviewLine(DONE, "prompt tokens/s", None, None, words, taken)
    with suppress(ScenarioError):
        found = throughput(stated, step=step)
        for fact, (per_s, share) in zip(
            found.facts(),
            (
                (found.tokens_per_s, None),
                (found.samples_per_s, None),
                (None, found.mfu),
                (None, found.busy_share),
            ),
            strict=True,
        ):
            if not (is_served and fact.name in _OF_TRAINING):
                yield OverviewLine(DONE, fact.name, None, share, fact.remark, per_s)


def _idle_lines(lost: IdleCauses, num_rows: int) -> Iterator[OverviewLine]:
    """The main causes of idle time, then of waiting, over so many steps of ranks.

    All of a kind sum to what the breakdown has of it, since both are of what was measured.
    """
    whole_ns = max(lost.total_ns(), 1)
    for kind in Stillness:
        prefix = "waiting: " if kind is Stillness.WAITING else "idle: "
        causes = [(_SHORTER.get(one, one.words), ns) for one, ns in lost.by_cause(kind).items()]
        others = causes[_MAX_CAUSES:]
        if others:
            causes[_MAX_CAUSES:] = [(f"{len(others)} other", sum(ns for _, ns in others))]
        for words, lost_ns in causes:
            yield OverviewLine(IDLE, prefix + words, lost_ns / num_rows, lost_ns / whole_ns)


def _step_lines(job: Job, split: Breakdown, step: str | int | None) -> Iterator[OverviewLine]:
    """The step time: measured, replayed and, if recorded, without the profiler; ranks' own."""
    names = job.steps if step is None else (step_name(step, job.steps) or "",)
    which = names[0] if len(names) == 1 else f"mean of {len(names)} steps"
    if names == (WHOLE,):
        which = "the whole recording: it marks no steps; --step-mark states what does"
    replayed_ns = step_time_ns(job.replayed, step)
    error = 100 * (replayed_ns / max(split.step_time_ns, 1) - 1)
    yield OverviewLine("step", "step time", split.step_time_ns, None, which)
    yield OverviewLine("step", "replayed", replayed_ns, None, signed_percent_text(error))
    unprofiled_ns = job.recording.unprofiled_step_ns.values()
    if unprofiled_ns:
        yield OverviewLine(
            "step", "without profiler", median(unprofiled_ns), None, "median over ranks"
        )
    own = "of a rank, mean: what the breakdown is of"
    yield OverviewLine("step", "own step", split.own_step_ns, None, own)
