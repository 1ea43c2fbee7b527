from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from foretrace.report import write_page
from tests.report.sample import Sample, sample

VOID = {"meta", "br", "link", "img", "input", "hr"}


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
    assert outline_of(html).links == []
    assert re.findall(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", html) == []


def test_page_has_every_section(html: str) -> None:
    assert outline_of(html).text_by_tag["h2"] == [
        "Where the time goes",
        "Timeline",
        "Can it be believed?",
        "Every step on every rank",
        "Collectives",
        "What the recording lacks",
        "Fitted constants and clocks",
        "Files",
    ]


def test_texts_from_files_cannot_become_markup(html: str) -> None:
    assert "alert(1)</script>" not in html
    assert "sample &lt;run&gt;" in html
    assert len(re.findall(r"</script>", html)) == 2


def test_numbers_of_the_replay_are_shown(html: str) -> None:
    made = sample()
    texts = [text for texts in outline_of(html).text_by_tag.values() for text in texts]

    for step in made.replay.steps:
        assert step.name in texts
        for rank in step.ranks:
            assert f"{rank.measured_ns / 1e6:.3f}" in texts
            assert f"{rank.replayed_ns / 1e6:.3f}" in texts
    assert "without rendezvous" in texts
    assert any("No event ids: waits were inferred." in text for text in texts)
    assert any("1.55\N{NO-BREAK SPACE}ms" in text for text in texts)


def test_page_without_optional_parts_says_so(tmp_path: Path) -> None:
    made = sample()
    bare = replace(made, replay=replace(made.replay, findings=(), unprofiled_step_ns={}))

    html = html_of(bare, tmp_path)

    assert "not recorded" in html
    assert "Nothing was found missing." in html


def test_ablation_is_said(tmp_path: Path) -> None:
    page = replace(sample().page, left_out=("rendezvous",))

    write_page(tmp_path / "page.html", page)

    assert "Replayed without: rendezvous." in (tmp_path / "page.html").read_text(encoding="utf-8")
