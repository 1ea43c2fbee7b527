"""Every number of every sentence is that of what the sentence names, in every answer that says why.

Sentences are taken apart: each number with a unit must be a cell of the row that it is about, and
the row is summed again from the intervals behind it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import StallKind, idle, stalls, stragglers
from foretrace.answer import count_text, duration_text, percent_text
from foretrace.graph import Timeline
from foretrace.simulate import simulate
from tests.acceptance.planting import PLANTERS, planted

_NUMBER = re.compile(r"\d[\d,.]* (?:ns|us|ms|s|%)(?![\w])")
_TIMES = re.compile(r"\((\d+) of (\d+) collectives, ([\d.]+) expected\)")


def numbers(text: str, *names: str) -> set[str]:
    """Numbers with a unit that a text states, those in names left out."""
    for name in names:
        text = text.replace(name, "") if name else text
    return set(_NUMBER.findall(text))


def cells(rows: Iterable[object]) -> set[str]:
    """What every time and share of some rows reads as."""
    found: set[str] = set()
    for row in rows:
        assert is_dataclass(row)
        for field in fields(row):
            value = getattr(row, field.name)
            if field.name.endswith("_ns") and isinstance(value, int):
                found.add(duration_text(value))
            elif field.name == "share":
                found.add(percent_text(100 * value))
    return found


@pytest.fixture(params=PLANTERS, scope="module")
def timeline(request: pytest.FixtureRequest) -> Timeline:
    return simulate(planted(request.param, 0).recording.graph)


def test_idle_time(timeline: Timeline) -> None:
    found = idle(timeline)

    for row in found.offenders():
        same = [
            one
            for one in found.rows()
            if (one.step_name, one.rank, one.kind, one.cause, one.culprit_rank)
            == (row.step_name, row.rank, row.kind, row.cause, row.culprit_rank)
        ]
        assert row.lost_ns == sum(one.lost_ns for one in same)
        assert row.subject_ns == sum(one.lost_ns for one in same if one.subject == row.subject)
        stated = numbers(row.sentence, row.subject, row.step_name)
        assert stated
        assert stated <= cells([row]), row.sentence


def test_stragglers(timeline: Timeline) -> None:
    found = stragglers(timeline)

    for rank in found.ranks:
        assert sum(one.waiting_ns for one in rank.causes) == rank.blame_ns
        if not rank.causes:
            continue
        first = rank.causes[0]
        assert first.waiting_ns == max(one.waiting_ns for one in rank.causes)
        assert first.subject_ns <= first.waiting_ns
        assert numbers(rank.sentence, first.subject) <= cells([first]), rank.sentence
        for last, of, expected in _TIMES.findall(rank.sentence):
            assert (int(last), int(of)) == (rank.num_last, rank.num_collectives)
            assert float(expected) == pytest.approx(rank.expected_last, abs=0.05)
    assert sum(rank.own_wait_ns for rank in found.ranks) == found.waiting_ns_of_all
    assert numbers(found.headline) <= {duration_text(found.waiting_ns_of_all)}


def test_stalls(timeline: Timeline) -> None:
    found = stalls(timeline)
    if not found.rows:
        return
    kinds = found.by_kind()

    beyond = {
        kind.words: [row for row in found.rows if row.kind == kind] for kind in StallKind if kind
    }
    for one in kinds:
        rows = beyond[str(one.label)]
        assert one.over_ns == sum(row.took_ns - row.usual_ns for row in rows)
        assert one.num_stalls == len(rows)
    assert sum(one.over_ns for one in kinds) == found.over_ns
    share = f"{100 * found.over_ns / sum(found.host_ns.values()):.1f} %"
    allowed = {duration_text(found.over_ns), duration_text(kinds[0].over_ns), share}
    assert numbers(found.headline) <= allowed
    assert count_text(kinds[0].num_stalls, "stall") in found.headline


@pytest.mark.parametrize("name", ["slow-loader", "slow-forward"])
def test_the_first_screen_and_the_page_say_what_the_diagnosis_does(
    name: str, repository: Path, tmp_path: Path
) -> None:
    job = ft.load(repository / "examples" / "planted" / name, cache=False)
    wrong, tried = ft.diagnose(job), ft.remedies(job)

    screen = ft.overview(job)
    ft.report(job, tmp_path / "page.html")

    told = [line.text for line in screen.of("what is wrong")]
    assert told == list(wrong.sentences())
    assert screen.verdict == wrong.headline
    for one in wrong.causes:
        stated = numbers(one.sentence, one.subject)
        assert stated <= cells([one]) | {f"{one.factor:.2f}"}, one.sentence
    for change in (*tried.rows, *tried.together):
        assert numbers(change.sentence, change.name, change.needs) <= cells([change])
    page = html.unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert said_in(text, wrong.sentences()[0])


def said_in(page: str, sentence: str) -> bool:
    """Whether a page has a sentence, its numbers to three digits."""
    parts = re.split(r"(\d[\d,.]*)(?= (?:ns|us|ms|s|%))", " ".join(sentence.split()))
    words, values = parts[::2], [float(one.replace(",", "")) for one in parts[1::2]]
    found = re.search(r"([\d,.]+)".join(map(re.escape, words)), page)
    shown = [] if found is None else [float(one.replace(",", "")) for one in found.groups()]
    return shown == pytest.approx(values, rel=0.006)
