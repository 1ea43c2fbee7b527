"""The page in headless Chromium; `opener` also asserts that it stays silent and offline."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page

from foretrace.analyze import Roofline, RooflinePoint
from foretrace.report import write_page
from foretrace.report.slices import TRACKS
from tests.report.conftest import Opened, Opener
from tests.report.sample import SCRIPT_IN_A_NAME, many_ranks, sample


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("report") / "page.html"
    write_page(made, sample().page)
    return made


@pytest.fixture
def opened(opener: Opener, path: Path) -> Opened:
    return opener(path)


def focus(page: Page) -> str:
    """The element that has the focus, as `tag#id` or `tag`."""
    what: str = page.evaluate(
        "document.activeElement.tagName.toLowerCase()"
        " + (document.activeElement.id ? '#' + document.activeElement.id : '')"
    )
    return what


def first_kernel(page: Page) -> tuple[float, float]:
    """A point of the canvas that lies on the first rank's first kernel."""
    box = page.locator("#timeline-canvas").bounding_box()
    assert box is not None
    # rows: Python, operators and host, gaps between, then compute
    return box["x"] + 148 + 0.2 * (box["width"] - 148), box["y"] + 24 + 3 * (18 + 5) + 9


def test_it_asks_for_itself_and_nothing_else(opened: Opened, path: Path) -> None:
    assert opened.requests == [path.as_uri()]


def test_every_chart_is_drawn(opened: Opened) -> None:
    charts = opened.page.locator("[data-chart]")
    shapes = charts.evaluate_all("all => all.map(e => e.querySelectorAll('svg path').length)")

    assert shapes
    assert min(shapes) > 4


def test_a_chart_tells_its_numbers_under_the_pointer(opened: Opened) -> None:
    chart = opened.page.locator('[data-chart="rank-components"]')
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None

    opened.page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)

    opened.until(
        "document.querySelector('[data-chart=\"rank-components\"]').innerText.includes('measured')"
    )


def test_buttons_and_keys_zoom_and_move(opened: Opened) -> None:
    page = opened.page
    start, end = opened.view()

    page.click('[data-act="in"]')
    zoomed = opened.view()
    page.locator("#timeline-canvas").focus()
    page.keyboard.press("ArrowRight")
    moved = opened.view()
    page.keyboard.press("-")
    page.keyboard.press("Home")

    assert zoomed[1] - zoomed[0] == pytest.approx((end - start) / 2)
    assert moved[0] == pytest.approx(zoomed[0] + (zoomed[1] - zoomed[0]) / 8)
    assert opened.view() == (start, end)


def test_the_wheel_zooms_what_has_the_focus_and_scrolls_otherwise(opened: Opened) -> None:
    page = opened.page
    canvas = page.locator("#timeline-canvas")
    canvas.scroll_into_view_if_needed()
    whole = opened.view()
    x, y = first_kernel(page)
    page.mouse.move(x, y)

    page.mouse.wheel(0, -120)
    unfocused = opened.view()
    canvas.scroll_into_view_if_needed()
    page.mouse.move(*first_kernel(page))
    canvas.focus()
    page.mouse.wheel(0, -300)
    opened.until("Number(document.getElementById('timeline').dataset.from) > 0")

    assert unfocused == whole
    assert opened.view()[1] - opened.view()[0] < 0.6 * (whole[1] - whole[0])


def test_dragging_along_the_axis_measures_a_span(opened: Opened) -> None:
    page = opened.page
    page.locator("#timeline-canvas").scroll_into_view_if_needed()
    box = page.locator("#timeline-canvas").bounding_box()
    assert box is not None
    wide = box["width"] - 148
    _, end = opened.view()

    page.mouse.move(box["x"] + 148 + wide / 4, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + 148 + wide / 2, box["y"] + 8, steps=4)
    page.mouse.up()
    measured_ns = float(page.locator("#timeline").get_attribute("data-stretch") or 0)
    told = page.locator("#timeline-picked").inner_text()
    page.locator("#timeline-canvas").focus()
    page.keyboard.press("Enter")

    assert measured_ns == pytest.approx(sample().recording.measured.end_ns.max() / 4, rel=0.02)
    assert "into ProfilerStep#" in told
    assert opened.view() == pytest.approx((end / 8, end * 5 / 8), rel=0.02)


def test_keys_of_other_viewers_zoom_and_move(opened: Opened) -> None:
    page = opened.page
    start, end = opened.view()
    page.locator("#timeline-canvas").focus()

    page.keyboard.press("w")
    zoomed = opened.view()
    page.keyboard.press("d")
    moved = opened.view()
    page.keyboard.press("a")
    page.keyboard.press("s")

    assert zoomed[1] - zoomed[0] == pytest.approx((end - start) / 1.5)
    assert moved[0] > zoomed[0]
    assert opened.view() == pytest.approx((start, end))


def test_there_is_an_end_to_zooming(opened: Opened) -> None:
    page = opened.page
    page.locator("#timeline-canvas").focus()
    for _ in range(60):
        page.keyboard.press("w")

    start, end = opened.view()

    assert end - start == 2_000  # ns; a tick of this page is one


def test_zooming_clears_the_tooltip(opened: Opened) -> None:
    page = opened.page
    page.locator("#timeline-canvas").scroll_into_view_if_needed()
    page.mouse.move(*first_kernel(page))
    was_shown = page.locator("#timeline-tip").is_visible()
    page.locator("#timeline-canvas").focus()

    page.keyboard.press("w")

    assert was_shown
    assert not page.locator("#timeline-tip").is_visible()


def test_time_is_told_from_the_steps_begin(opened: Opened) -> None:
    page = opened.page
    page.locator("#timeline-canvas").focus()
    page.locator("#timeline-canvas").scroll_into_view_if_needed()
    page.mouse.move(*first_kernel(page))  # a fifth of the run
    for _ in range(30):
        page.keyboard.press("w")

    origin = "document.getElementById('timeline').dataset.origin"
    opened.until(f"/^ProfilerStep#1 [+] 7[0-9.]+ us$/.test({origin})")


def test_operators_and_python_are_found(opened: Opened) -> None:
    page = opened.page

    found = []
    for name in ("reshape", "train.py"):
        page.fill("#timeline-filter", name)
        found.append(page.locator("#timeline-count").inner_text())

    assert found == ["1 found, 6.00 us measured", "1 found, 9.00 us measured"]
    assert "7 operators and functions of at most 900 ns" in page.inner_text("#timeline-note")


def test_a_finding_leads_to_its_interval(opened: Opened) -> None:
    page = opened.page
    whole = opened.view()
    link = page.locator("a.at").first
    rank, begin_ns, end_ns = map(int, str(link.get_attribute("data-stretch")).split(","))

    link.click()

    opened.until("document.getElementById('timeline').dataset.stretch !== undefined")
    start, end = opened.view()
    assert start <= begin_ns
    assert end_ns <= end
    assert end - start < whole[1] - whole[0]
    assert f"rank {rank}, measured" in page.locator("#timeline-picked").inner_text()


def test_what_was_waited_for_is_named(opened: Opened) -> None:
    page = opened.page
    page.select_option("#timeline-rank", "0")
    page.fill("#timeline-filter", "allreduce")
    page.locator("#timeline-canvas").focus()

    told = []
    for _ in range(6):
        page.keyboard.press("n")
        told.append(page.locator("#timeline-picked").inner_text())

    # the kernel of rank 1 takes longer: it comes last
    assert any("waited for rank 1, compute" in one for one in told)


def test_hovering_names_the_operation_as_text(opened: Opened) -> None:
    page = opened.page
    page.locator("#timeline-canvas").scroll_into_view_if_needed()

    page.mouse.move(*first_kernel(page))

    assert SCRIPT_IN_A_NAME in page.locator("#timeline-tip").inner_text()
    assert "rank 0" in page.locator("#timeline-tip").inner_text()


def test_a_click_keeps_what_was_found(opened: Opened) -> None:
    page = opened.page
    page.locator("#timeline-canvas").scroll_into_view_if_needed()

    page.mouse.click(*first_kernel(page))
    page.keyboard.press("Enter")

    assert SCRIPT_IN_A_NAME in page.locator("#timeline-picked").inner_text()
    start, end = opened.view()
    assert end - start < 0.9 * sample().replayed.end_ns.max()


def test_a_name_that_is_a_script_never_runs(opened: Opened) -> None:
    page = opened.page
    num_scripts = page.locator("script").count()

    page.fill("#timeline-filter", "script")
    page.locator("#timeline-canvas").focus()
    for _ in range(4):
        page.keyboard.press("n")

    assert page.locator("script").count() == num_scripts
    assert opened.complaints == []


def test_the_filter_counts_what_it_finds(opened: Opened) -> None:
    page = opened.page

    page.fill("#timeline-filter", "ALERT")
    found = page.locator("#timeline-count").inner_text()
    page.fill("#timeline-filter", "no such thing")
    nothing = page.locator("#timeline-count").inner_text()

    assert found.startswith("4 found, ")  # one kernel on two ranks in two steps
    assert nothing.startswith("0 found")


def test_rank_and_side_can_be_chosen(opened: Opened) -> None:
    page = opened.page
    tall = page.locator("#timeline-canvas").evaluate("e => e.clientHeight")

    page.select_option("#timeline-rank", "1")
    page.select_option("#timeline-title", "measured")

    opened.until(f"document.getElementById('timeline-canvas').clientHeight < {tall}")


def test_tables_are_downloaded_as_they_are(opened: Opened, tmp_path: Path) -> None:
    page = opened.page
    table = page.locator('figure[data-table="rank-components"]')

    texts = {}
    for ending in ("csv", "json"):
        with page.expect_download() as download:
            table.locator(f'[data-act="{ending}"]').click()
        download.value.save_as(tmp_path / f"table.{ending}")
        assert download.value.suggested_filename == f"sample-run-rank-components.{ending}"
        texts[ending] = (tmp_path / f"table.{ending}").read_text(encoding="utf-8")

    rows = json.loads(texts["json"])
    assert [row["rank"] for row in rows] == [0, 1]
    assert [{key: str(value) for key, value in row.items()} for row in rows] == list(
        csv.DictReader(texts["csv"].splitlines())
    )


def test_a_table_can_be_copied(opener: Opener, path: Path) -> None:
    opened = opener(path, permissions=["clipboard-read", "clipboard-write"])
    page = opened.page

    page.locator("#trust summary").first.click()
    button = page.locator('figure[data-table="components"] [data-act="copy"]')
    button.click()
    opened.until(
        "document.querySelector('figure[data-table=\"components\"] [data-act=copy]')"
        ".textContent === 'copied'"
    )

    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines()[0].split("\t")[:2] == ["component", "measured_ns"]
    assert len(copied.splitlines()) == 7


def background(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def test_the_theme_follows_the_system_until_one_is_chosen(opener: Opener, path: Path) -> None:
    page = opener(path, color_scheme="dark").page
    dark = background(page)

    page.click("#theme")
    light = background(page)
    page.reload()

    assert dark != light
    assert background(page) == light
    assert page.locator("#theme").inner_text() == "theme: light"


def test_charts_follow_the_theme(opener: Opener, path: Path) -> None:
    opened = opener(path, color_scheme="light")
    page = opened.page
    fills = (
        "[...document.querySelectorAll('[data-chart=\"rank-components\"] svg path')]"
        ".map(e => e.getAttribute('fill')).join()"
    )
    light = page.evaluate(fills)

    page.emulate_media(color_scheme="dark")

    opened.until(f"{fills} !== {json.dumps(light)}")


def test_paper_is_light_and_holds_no_controls(opener: Opener, path: Path) -> None:
    page = opener(path, color_scheme="dark").page

    page.emulate_media(media="print")

    assert background(page) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert not page.locator(".timeline-tools").is_visible()
    assert page.locator('[data-chart="rank-components"] svg').is_visible()
    assert len(page.pdf()) > 10_000


def test_everything_is_reached_by_keyboard(opened: Opened) -> None:
    page = opened.page
    reached = []
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.append(focus(page))
        if reached[-1] == "body":
            break

    wanted = {"button#theme", "input#timeline-filter", "canvas#timeline-canvas", "summary"}
    assert wanted <= set(reached)
    assert reached.count("a") >= 6
    num_buttons = page.locator("button:visible").count()
    assert sum(what.startswith("button") for what in reached) == num_buttons


def test_the_focus_is_seen(opened: Opened) -> None:
    opened.page.keyboard.press("Tab")
    opened.page.keyboard.press("Tab")

    style = opened.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")

    assert style == "solid"


def test_what_is_drawn_has_a_name_and_a_table(opened: Opened) -> None:
    unnamed = opened.page.evaluate(
        "[...document.querySelectorAll('canvas, [data-chart], button, select, input')]"
        ".filter(e => !(e.ariaLabel || e.textContent.trim() || e.closest('label')"
        " || e.getAttribute('aria-label'))).map(e => e.outerHTML)"
    )
    charts = opened.page.locator("figure:has([data-chart])")

    assert unnamed == []
    for index in range(charts.count()):
        assert charts.nth(index).locator("details table").count() == 1


def test_a_narrow_screen_needs_no_sideways_scrolling(opener: Opener, path: Path) -> None:
    page = opener(path, viewport={"width": 390, "height": 800}).page

    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_the_tables_are_there(opener: Opener, path: Path) -> None:
    page = opener(path, java_script_enabled=False).page

    assert page.locator('figure[data-table="components"] tbody tr').count() == 6
    assert "need JavaScript" in page.locator("main").inner_text()


def test_the_replay_is_drawn_where_it_is_asked_for(opened: Opened) -> None:
    page = opened.page
    alone = page.locator('[data-chart="rank-components"]').evaluate("e => e.clientHeight")
    side = page.locator("#timeline-title").input_value()

    page.click("#twins")

    assert side == "measured"
    assert page.locator("#timeline-title").input_value() == ""
    chart = "document.querySelector('[data-chart=\"rank-components\"]')"
    opened.until(f"{chart}.clientHeight > {alone}")


def test_a_narrow_screen_has_a_menu_of_sections(opener: Opener, path: Path) -> None:
    page = opener(path, viewport={"width": 390, "height": 800}).page
    assert not page.locator("#sections").is_visible()

    page.click("#menu")
    num_links = page.locator("#sections a:visible").count()
    page.click('#sections a[href="#sensitivity"]')

    assert num_links == page.locator("#sections a").count()
    assert not page.locator("#sections").is_visible()
    assert page.locator("#sensitivity table").first.is_visible()


_TEXTS_DRAWN = """() => {
  const drawn = [], plain = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    drawn.push(text);
    return plain.call(this, text, ...place);
  };
  document.querySelector('#timeline [data-act="in"]').click();
  const next = requestAnimationFrame;
  return new Promise((done) => next(() => next(() => done(drawn))));
}"""


def test_a_narrow_timeline_names_the_rows_that_the_wide_one_does(
    opener: Opener, path: Path
) -> None:
    wide, narrow = (
        opener(path, viewport={"width": width, "height": 900}).page.evaluate(_TEXTS_DRAWN)
        for width in (1280, 390)
    )
    short = {"optimizer": "optim", "operators": "ops", "compute": "comp", "communication": "comm"}
    short |= {"why idle": "idle"}
    labels = [text for text in wide if text in TRACKS]

    assert {"host", "compute", "why idle"} <= set(labels)
    assert [text for text in narrow if text in {*TRACKS, *short.values()}] == [
        short.get(label, label) for label in labels
    ]


def test_no_label_of_a_share_is_cut(opener: Opener, path: Path) -> None:
    page = opener(path, viewport={"width": 390, "height": 800}).page

    cut = page.locator(".share span:visible").evaluate_all(
        "all => all.filter(e => e.offsetWidth > e.parentElement.clientWidth).length"
    )

    assert cut == 0


def test_folded_sections_are_printed(opened: Opened) -> None:
    page = opened.page
    assert not page.locator("#trust table").first.is_visible()

    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")

    assert page.locator("#trust table").first.is_visible()


def test_points_are_named_and_empty_decades_left_out(opener: Opener, tmp_path: Path) -> None:
    points = tuple(
        RooflinePoint("gemm", "cuBLAS gemm", name, "", "fp16", 3, 1_000, flops, 10**6, 3e5, 2e3)
        for name, flops in (("aten::mm", 2 * 10**8), ("aten::bmm", 3 * 10**6))
    )
    made = sample()
    roofline = Roofline("some chip", 2e3, {"fp16": 3e5}, points, 0.9)
    page = replace(made.page, answers=replace(made.answers, roofline=roofline))
    write_page(tmp_path / "page.html", page)

    chart = opener(tmp_path / "page.html").page.locator('[data-chart="roofline-points"]')
    texts = chart.locator("svg text").all_text_contents()

    assert {"mm", "bmm"} <= set(texts)
    assert "1 PFLOP/s" not in texts
    assert "1 FLOP/B" not in texts


def test_a_long_table_shows_its_first_rows(opener: Opener, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", many_ranks(12))
    page = opener(tmp_path / "page.html").page
    rows = page.locator('figure[data-table="collectives-by-rank"] tbody tr:visible')
    num_first = rows.count()

    page.locator('figure[data-table="collectives-by-rank"] summary').click()

    assert (num_first, rows.count()) == (5, 12)
