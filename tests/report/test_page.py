from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from foretrace.answer import Chart, ChartKind, Column, Fact, Series, Table, Unit, number_text
from foretrace.report import write_page
from foretrace.report.document import MAX_KEPT_ROWS, three_digits
from foretrace.report.sheet import one_bar, prose
from foretrace.whatif import Remedies, Remedy
from tests.report.sample import Sample, many_ranks, sample

VOID = {"meta", "br", "link", "img", "input", "hr"}
# What stands in the vendored library: names of XML, and the address of a licence.
NAMES_OF_XML = r"https?://(?!www\.w3\.org/|github\.com/ecomfe/zrender/blob/master/LICENSE)"


class Outline(HTMLParser):
    """Tags that are open, links that leave the page, and text by tag."""

    def __init__(self) -> None:
        super().__init__()
        self.open_tags: list[str] = []
        self.wrongly_closed: list[str] = []
        self.links: list[str] = []
        self.text_by_tag: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in {"src", "href", "action"}]
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that closes itself has nothing inside."""

    def handle_endtag(self, tag: str) -> None:
        if not self.open_tags or self.open_tags.pop() != tag:
            self.wrongly_closed.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open_tags:
            self.text_by_tag.setdefault(self.open_tags[-1], []).append(data.strip())


def html_of(made: Sample, folder: Path) -> str:
    write_page(folder / "page.html", made.page)
    return (folder / "page.html").read_text(encoding="utf-8")


def texts_of(facts: Iterable[Fact]) -> set[str]:
    """Names, values and remarks of figures as cards on a page write them."""
    return {
        text
        for fact in facts
        for text in (
            f"{fact.name[0].upper()}{fact.name[1:]}",
            three_digits(fact.value).replace(" ", "\N{NO-BREAK SPACE}"),
            fact.remark,
        )
    }


def outline_of(html: str) -> Outline:
    outline = Outline()
    outline.feed(html)
    return outline


@pytest.fixture
def html(tmp_path: Path) -> str:
    return html_of(sample(), tmp_path)


def test_page_is_well_formed(html: str) -> None:
    outline = outline_of(html)

    assert outline.open_tags == []
    assert outline.wrongly_closed == []


def test_page_asks_for_nothing(html: str) -> None:
    links = outline_of(html).links

    assert [link for link in links if not link.startswith("#")] == []
    assert re.findall(NAMES_OF_XML + r"|@import|\bfetch\(|XMLHttpRequest", html) == []
    assert "default-src 'none'" in html


def test_links_in_the_page_lead_somewhere(html: str) -> None:
    links = {link.removeprefix("#") for link in outline_of(html).links}

    assert len(links) > 5
    assert links <= set(re.findall(r' id="([^"]+)"', html))


def test_every_id_is_used_once(html: str) -> None:
    ids = re.findall(r' id="([^"]+)"', html)

    assert len(ids) == len(set(ids))


def test_page_has_every_section(html: str) -> None:
    assert outline_of(html).text_by_tag["h2"] == [
        "Where the time goes",
        "What would help most",
        "Timeline",
        "Critical path",
        "Idle and waiting",
        "Stragglers",
        "Collectives",
        "Operators",
        "Sensitivity",
        "Can it be believed?",
        "The recording",
    ]


def test_texts_from_files_cannot_become_markup(html: str) -> None:
    assert "alert(1)</script>" not in html
    assert "sample &lt;run&gt;" in html
    assert len(re.findall(r"</script>", html)) == len(re.findall(r"<script", html))


def test_numbers_of_the_replay_are_shown(html: str) -> None:
    made = sample()
    texts = [text for texts in outline_of(html).text_by_tag.values() for text in texts]

    for step in made.replay.steps:
        assert step.name in texts
        for rank in step.ranks:
            assert number_text(rank.measured_ns / 1e6) in texts
            assert number_text(rank.replayed_ns / 1e6) in texts
    assert "without rendezvous" in texts
    assert any("No event ids: waits were inferred." in text for text in texts)
    assert any("1.55\N{NO-BREAK SPACE}ms" in text for text in texts)


def test_page_without_optional_parts_says_so(tmp_path: Path) -> None:
    made = sample()
    bare = replace(made, replay=replace(made.replay, findings=(), unprofiled_step_ns={}))

    html = html_of(bare, tmp_path)

    assert "not recorded" in html
    assert "Nothing was found missing." in html


def test_the_same_answers_make_the_same_page(html: str, tmp_path: Path) -> None:
    assert html_of(sample(), tmp_path) == html


def test_a_name_on_disk_that_is_no_text_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    made = sample()
    name = os.fsdecode(b"run\xff.json")
    metas = (replace(made.page.metas[0], path=Path(name)),)

    write_page(tmp_path / "page.html", replace(made.page, title=name, metas=metas))

    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>run?.json</h1>" in html
    assert '<td class="w">run?.json</td>' in html


def test_ablation_is_said(tmp_path: Path) -> None:
    page = replace(sample().page, left_out=("rendezvous",))

    write_page(tmp_path / "page.html", page)

    assert "Replayed without: rendezvous." in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_of_many_ranks_some_are_drawn_and_the_page_stays_small(tmp_path: Path) -> None:
    page = many_ranks(64)

    write_page(tmp_path / "page.html", page)

    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(html) < 2_000_000
    assert "The first 40 of 64 are drawn." in html
    assert '"num_ranks_left_out":48' in html


def test_a_table_that_is_too_long_says_so(tmp_path: Path) -> None:
    made = sample()
    (step, *_) = made.replay.steps
    steps = tuple(replace(step, name=f"step {number}") for number in range(MAX_KEPT_ROWS))

    write_page(tmp_path / "page.html", replace(made.page, replay=replace(made.replay, steps=steps)))

    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"{2 * MAX_KEPT_ROWS:,} rows; the downloads hold the first {MAX_KEPT_ROWS:,}" in html


def test_the_page_begins_with_the_run(html: str) -> None:
    main = html[html.index("<main") :]

    assert "-bound: GPUs compute" in main[: main.index("<section")]
    assert main.index("Biggest saving") < main.index('id="step"') < main.index('id="trust"')
    assert "replayed step" not in main[: main.index('id="trust"')]


def test_what_only_some_want_is_folded(html: str) -> None:
    for key in ("sensitivity", "trust", "recording"):
        section = html[html.index(f'<section id="{key}"') :]
        assert section.index('<details class="fold">') < section.index("</h2>"), key


def test_findings_name_their_interval(html: str) -> None:
    places = [text.split('"')[0] for text in html.split('data-stretch="')[1:]]

    assert places
    for place in places:
        rank, begin_ns, end_ns = map(int, place.split(","))
        assert rank in sample().recording.graph.ranks
        assert 0 <= begin_ns < end_ns <= sample().recording.measured.end_ns.max()


def test_times_have_three_digits() -> None:
    text = "rank 0 loses 176.896 ms of 1,234.567 ms, 4.1 us and 12 calls"

    assert three_digits(text) == "rank 0 loses 177 ms of 1,235 ms, 4.10 us and 12 calls"


def bars(*lengths: int) -> Table:
    chart = Chart(
        kind=ChartKind.BARS,
        label="time",
        category="rank",
        category_unit=Unit.RANK,
        series=(Series("work_ns", "work", "compute"),),
        unit=Unit.NS,
    )
    columns = (Column("rank"), Column("work_ns"))
    return Table("work", "", columns, tuple(enumerate(lengths)), chart)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (bars(5_000), "0: work 5.00 us."),
        (bars(0, 5_000, 3), "1: work 5.00 us."),
        (bars(5_000, 2_000), ""),
    ],
)
def test_a_chart_with_one_bar_is_a_sentence(table: Table, sentence: str) -> None:
    assert one_bar(table) == sentence


@pytest.mark.parametrize(
    ("name", "said"),
    [("CUDA graphs", "CUDA graphs"), ("no host stalls", "having no host stalls")],
)
def test_the_change_that_pays_most_is_the_biggest_saving(
    name: str, said: str, tmp_path: Path
) -> None:
    made = sample()
    pays = Remedy(name, (), "days", "shapes repeat", 1, 1, 1, 900, 0.59)
    remedies = Remedies(1_000, (pays,), (), 3)
    page = replace(made.page, answers=replace(made.answers, remedies=remedies))

    write_page(tmp_path / "page.html", page)

    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"{said} would save 59\N{NO-BREAK SPACE}%." in text
    assert f"{name}: -59.0 %" in text
    assert "takes days, if shapes repeat" in text


def test_what_stands_between_backticks_is_code_and_nothing_else_is_markup() -> None:
    assert prose("`a_<b>` of 1.2345 ms") == "<code>a_&lt;b&gt;</code> of 1.23 ms"
