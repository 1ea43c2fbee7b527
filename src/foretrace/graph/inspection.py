"""`Inspection`: what profiler files contain, what they lack for a replay, and their joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from foretrace.answer import (
    Answer,
    Column,
    Json,
    Sentences,
    SideBySide,
    Table,
    Told,
    Unit,
    columns_of,
    count_text,
    duration_text,
)
from foretrace.graph.link import Links
from foretrace.trace import Contents

_PARTS = (
    *("device_work", "launches", "sync_events", "event_records", "stream_waits"),
    *("collective_metadata", "shapes", "backward", "forward_backward_arrows", "stacks", "memory"),
)
_SEVERAL = (
    *("device_names", "events_by_category", "dropped", "steps", "communication"),
    *("notes", "lacks", "advice"),
)


@dataclass(frozen=True, repr=False)
class Inspection(Answer):
    """What files contain, in the order named."""

    files: tuple[Contents, ...]  # one for each rank of a file into which several were merged
    links: Links  # of those with an execution trace beside them

    @property
    def headline(self) -> str:
        """How many files, of which ranks, and on what they were recorded."""
        ranks = {one.rank for one in self.files if one.rank is not None}
        sizes = {one.world_size for one in self.files if one.world_size is not None}
        devices = sorted({name for one in self.files for name in one.device_names})
        text = f": {count_text(len(ranks), 'rank')}" if ranks else ""
        if ranks and len(sizes) == 1:
            text += f" of {sizes.pop()}"
        num_files = len({one.path for one in self.files})  # several ranks may be merged into one
        return ", ".join((f"{count_text(num_files, 'file')}{text}", *devices[:3]))

    @property
    def note(self) -> str:
        """Whether anything is missing."""
        return "" if any(one.lacks for one in self.files) else "nothing is missing for a replay"

    def parts(self) -> tuple[Told, ...]:
        """The files, what they contain and lack, and how to record better ones."""
        advice = dict.fromkeys(sentence for one in self.files for sentence in one.advice)
        return (
            self._files(),
            SideBySide((self._contained(), self._steps())),
            self._dropped(),
            Sentences.of("notes", self._said(lambda one: one.notes)),
            Sentences.of("what a replay must do without", self._said(lambda one: one.lacks)),
            Sentences.of("how to record a better one", advice),
            *self.links.parts(),
        )

    def tables(self) -> tuple[Table, ...]:
        """The files; their counts, one row each; their steps; their execution traces."""
        return (
            Table.of("files", self.files, *columns_of(Contents, without=_SEVERAL)),
            Table.of(
                "counts",
                [
                    (one.path, what, name, count)
                    for one in self.files
                    for what in ("events_by_category", "dropped", "communication")
                    for name, count in getattr(one, what).items()
                ],
                *(Column(key, value=_at(at)) for at, key in enumerate(("path", "what", "name"))),
                Column("count", unit=Unit.COUNT, value=_at(3)),
            ),
            Table.of(
                "steps",
                [(one.path, mark) for one in self.files for mark in one.steps],
                Column("path", value=_at(0)),
                Column("name", value=lambda item: item[1].name),
                Column("duration_ns", value=lambda item: item[1].duration_ns),
            ),
            *self.links.tables(),
        )

    def as_json(self) -> Json:
        """One mapping per file, its execution trace in it."""
        by_rank = {one.rank: one.as_json() for one in self.links.by_rank}
        return [
            one.as_json() | ({"execution_trace": by_rank[one.rank]} if one.rank in by_rank else {})
            for one in self.files
        ]

    def _files(self) -> Table:
        return Table.of(
            "files",
            self.files,
            Column("rank"),
            Column("file", value=_file_name),
            Column("file_bytes", "size"),
            Column("num_events", "records"),
            Column("num_kept"),
            Column("kernels", unit=Unit.COUNT, value=_num_kernels),
            Column("communication", "comm.", Unit.COUNT, _num_communications),
            Column("steps", unit=Unit.COUNT, value=lambda one: len(one.steps)),
        )

    def _contained(self) -> Table:
        return Table.of(
            "contains",
            [(name, sum(getattr(one, f"has_{name}") for one in self.files)) for name in _PARTS],
            Column("contains", value=lambda row: _words(row[0])),
            Column("recorded", " ", value=lambda row: self._how_many(row[1])),
        )

    def _how_many(self, count: int) -> str:
        return "yes" if count == len(self.files) else "no" if not count else f"in {count} files"

    def _steps(self) -> Table:
        """Each step's mark on the host, over the files that have it."""
        lengths_ns: dict[str, list[int]] = {}
        for one in self.files:
            for mark in one.steps:
                lengths_ns.setdefault(mark.name, []).append(mark.duration_ns)
        return Table.of(
            "steps",
            lengths_ns.items(),
            Column("step", unit=Unit.NAME, value=_at(0)),
            Column("length", unit=Unit.WORD, value=lambda item: _range(item[1])),
        )

    def _dropped(self) -> Table:
        total: Counter[str] = Counter()
        for one in self.files:
            total.update(one.dropped)
        return Table.of(
            "dropped",
            total.most_common(),
            Column("reason", "read but not kept", value=_at(0)),
            Column("num_records", value=_at(1)),
        )

    def _said(self, sentences_of: Callable[[Contents], Sequence[str]]) -> Iterable[str]:
        """Each sentence once, with how many files it is about where that is not all."""
        count = Counter(sentence for one in self.files for sentence in sentences_of(one))
        for sentence, number in count.items():
            what = "rank" if len({one.path for one in self.files}) < len(self.files) else "file"
            of = f" ({count_text(number, what)} of {len(self.files)})"
            yield sentence + ("" if number == len(self.files) else of)


def _at(place: int) -> Callable[[Any], Any]:
    return itemgetter(place)


def _file_name(one: Contents) -> str:
    return Path(one.path).name + (" (cut off)" if one.is_truncated else "")


def _num_kernels(one: Contents) -> int:
    return one.events_by_category.get("kernel", 0)


def _num_communications(one: Contents) -> int:
    return sum(one.communication.values())


def _words(part: str) -> str:
    return {"backward": "backward pass", "stacks": "Python stacks", "memory": "memory events"}.get(
        part, part.replace("forward_backward", "forward to backward").replace("_", " ")
    )


def _range(lengths_ns: Sequence[int]) -> str:
    low, high = duration_text(min(lengths_ns)), duration_text(max(lengths_ns))
    return low if low == high else f"{low} to {high}"
