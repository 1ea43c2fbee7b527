"""`Batches`: steps of a serving engine by what their requests are at, as its marks say.

A step that decodes has little in common with one that takes a prompt in, so their times are told
apart, and only steps of alike batches are held against each other (`batch_labels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.analyze.windows import windows
from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Place,
    Plain,
    Table,
    Told,
    Unit,
    count_text,
    duration_text,
    per_second_text,
    question,
)
from foretrace.base import NS_PER_S, Int64s
from foretrace.graph import MEASURED, Timeline
from foretrace.trace import BatchKind, EngineBatch, batch_of_mark


@dataclass(frozen=True)
class BatchRow(Plain):
    """Steps of one kind of batch."""

    kind: str  # "decode", "prefill", "mixed"; "idle"
    num_steps: int
    median_ns: int  # of the job's steps
    shortest_ns: int
    longest_ns: int
    share: float  # of the time of all marked steps
    requests: float  # in a step, mean
    prompt_tokens: int | None  # of all its steps; None: a mark does not say
    reply_tokens: int  # likewise, one of each request that decodes


@dataclass(frozen=True, repr=False)
class Batches(Answer):
    """One row for each kind of batch, most time first."""

    rows: tuple[BatchRow, ...]
    length_ns: int  # of all marked steps
    num_unmarked: int  # steps of which no mark says what they work on

    @property
    def num_steps(self) -> int:
        """Steps whose marks say what they work on."""
        return sum(row.num_steps for row in self.rows)

    @property
    def prompt_tokens_per_s(self) -> float | None:
        """Tokens of prompts taken in; None: a mark does not say."""
        tokens = [row.prompt_tokens for row in self.rows]
        if not tokens or None in tokens:
            return None
        return NS_PER_S * sum(one or 0 for one in tokens) / max(self.length_ns, 1)

    @property
    def reply_tokens_per_s(self) -> float | None:
        """Tokens of replies made, one of each request that decodes; None without marks."""
        made = sum(row.reply_tokens for row in self.rows)
        return NS_PER_S * made / max(self.length_ns, 1) if self.rows else None

    @property
    def counts(self) -> str:
        """How many steps are of which kind: "10 of decode, 2 of prefill"."""
        return ", ".join(f"{row.num_steps:,} of {row.kind}" for row in self.rows)

    @property
    def headline(self) -> str:
        """How many steps of which kind, and how long those of the first take."""
        if not self.rows:
            return "no mark says what a step works on: the recording is of no serving engine"
        first = self.rows[0]
        steps = count_text(self.num_steps, "step")
        took = f"{duration_text(first.median_ns)} each in the median"
        return f"{steps} of a serving engine, {self.counts}; {first.kind} takes {took}"

    @property
    def is_empty(self) -> bool:
        """Whether no mark says what a step works on."""
        return not self.rows

    def parts(self) -> tuple[Told, ...]:
        """Rates, then a row for each kind."""
        rates = (
            ("replies", self.reply_tokens_per_s, "one token of each request that decodes"),
            ("prompts", self.prompt_tokens_per_s, "tokens taken in"),
        )
        told = [
            Fact(name, "not known" if rate is None else f"{per_second_text(rate)} tokens/s", words)
            for name, rate, words in rates
            if self.rows
        ]
        return Facts(tuple(told)), self._table()

    def _table(self) -> Table:
        return Table.of(
            "batches",
            self.rows,
            Column("kind", "batch", Unit.WORD),
            Column("num_steps", "steps", Unit.COUNT),
            Column("median_ns", "median ms"),
            Column("shortest_ns", "shortest ms"),
            Column("longest_ns", "longest ms"),
            Column("share", "of time"),
            Column("requests", "requests", Unit.NUMBER),
            Column("prompt_tokens", "prompt tokens", Unit.COUNT),
            Column("reply_tokens", "reply tokens", Unit.COUNT),
            title="",
        )

    def tables(self) -> tuple[Table, ...]:
        """One row for each kind."""
        return (self._table(),)


def batch_labels(step_names: Sequence[str]) -> tuple[str, ...]:
    """What batch each step works on, in words; steps of equal words are alike.

    Batches are alike if their requests are at the same, and their numbers, of tokens of prompts
    and of requests that decode, lie between the same powers of two. "": no mark says it.
    """
    return tuple(_label(batch_of_mark(name)) for name in step_names)


def alike_steps(step_names: Sequence[str]) -> Int64s:
    """Number of what batch each step works on, int64[steps + 1]; the last is of no step."""
    labels = np.array([*batch_labels(step_names), ""])
    found: Int64s = np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return found


def _label(batch: EngineBatch | None) -> str:
    if batch is None:
        return ""
    told = [batch.kind.value]
    for count, of in ((batch.prefill_tokens or 0, "tokens"), (batch.num_decodes, "requests")):
        if count > 0:
            first = 1 << (count.bit_length() - 1)
            told.append(f"{first:,} to {2 * first - 1:,} {of}" if first > 1 else f"1 {of[:-1]}")
    return f"{told[0]} of {' and '.join(told[1:])}" if len(told) > 1 else told[0]


@question(
    MEASURED,
    help="Steps of a serving engine by what they work on: prompts, next tokens, or both.",
    doing="reading marks of batches",
    place=Place(15, "Batches of the engine", "Batches"),
)
def batches(timeline: Timeline) -> Batches:
    """Steps of a serving engine by what their requests are at; no rows for other recordings.

    A step's time is the job's: from the end of the step before to its own.

    Args:
        timeline: of a job, what was measured.
    """
    table = windows(timeline)
    told = [batch_of_mark(table.step_names[step]) for step in table.step.tolist()]
    rows = sorted(_rows(told, table.duration_ns), key=lambda row: -row.share)
    marked = np.array([one is not None for one in told], np.bool_)
    length_ns = int(table.duration_ns[marked].sum()) if len(marked) else 0
    return Batches(tuple(rows), length_ns, int(np.count_nonzero(~marked)))


def _rows(told: Sequence[EngineBatch | None], duration_ns: Int64s) -> Iterator[BatchRow]:
    whole_ns = sum(
        took_ns for one, took_ns in zip(told, duration_ns.tolist(), strict=True) if one is not None
    )
    for kind in BatchKind:
        at = [row for row, one in enumerate(told) if one is not None and one.kind is kind]
        if not at:
            continue
        mine = [one for one in told if one is not None and one.kind is kind]
        took_ns = duration_ns[at]
        tokens = [one.prefill_tokens for one in mine]
        yield BatchRow(
            kind=kind.value,
            num_steps=len(at),
            median_ns=int(np.median(took_ns)),
            shortest_ns=int(took_ns.min()),
            longest_ns=int(took_ns.max()),
            share=float(took_ns.sum() / max(whole_ns, 1)),
            requests=sum(one.num_requests for one in mine) / len(mine),
            prompt_tokens=None if None in tokens else sum(one or 0 for one in tokens),
            reply_tokens=sum(one.num_decodes for one in mine),
        )
