"""`ReplayPage`: a replay and all that is shown of it, as one HTML file.

The file holds its style, its script and its data: it opens offline and asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from foretrace.analyze import COMPONENTS, BusyFraction, CollectiveTable, StepTable
from foretrace.base import written_beside
from foretrace.graph import Timeline
from foretrace.report import numbers
from foretrace.report.sections import (
    BUSY_POINTS,
    busy_rows,
    component_rows,
    constant_rows,
    duration_shares,
    glance,
    null_model_rows,
    step_rows,
    top_collectives,
)
from foretrace.report.strip import strip
from foretrace.trace import TraceMeta
from foretrace.validate import ReplayReport

NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class ReplayPage:
    """Everything the page of a replay shows; made by `foretrace.api`."""

    title: str
    version: str  # of foretrace
    replay: ReplayReport
    metas: tuple[TraceMeta, ...]
    timeline_by_title: Mapping[str, Timeline]  # "measured" and "replayed", of one graph
    collectives_by_title: Mapping[str, CollectiveTable]
    steps_by_title: Mapping[str, StepTable]
    busy_by_title: Mapping[str, BusyFraction]
    left_out: tuple[str, ...] = ()  # classes of dependency that this replay does without


def write_page(path: Path, page: ReplayPage) -> None:
    """Write the page as one self-contained HTML file."""
    html = _environment().get_template("replay.html.j2").render(_content(page))
    with written_beside(path) as beside:
        beside.write_text(html, encoding="utf-8")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("foretrace.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "ms": numbers.milliseconds_text,
        "duration": _unbroken(numbers.duration_text),
        "percent": _unbroken(numbers.percent_text),
        "signed_percent": _unbroken(numbers.signed_percent_text),
        "bytes": _unbroken(numbers.bytes_text),
        "component": numbers.component_text,
    }
    return environment


def _content(page: ReplayPage) -> dict[str, object]:
    replay = page.replay
    collectives = page.collectives_by_title["measured"]
    drawn = strip(page.timeline_by_title, page.collectives_by_title, page.steps_by_title)
    return {
        "page": page,
        "replay": replay,
        "summary": replay.summary,
        "components": COMPONENTS,
        "glance": glance(replay, page.metas),
        "component_rows": component_rows(replay),
        "step_rows": step_rows(replay),
        "null_rows": null_model_rows(replay),
        "shares": duration_shares(replay.mix),
        "constants": constant_rows(page.timeline_by_title["measured"].graph),
        "rank_collectives": collectives.by_rank() if len(collectives) else (),
        "longest_waits": top_collectives(collectives, by="wait"),
        "longest_transfers": top_collectives(collectives, by="transfer"),
        "busy_rows": busy_rows(page.busy_by_title["measured"], page.busy_by_title["replayed"]),
        "busy_points": BUSY_POINTS,
        "busy_bin_ns": page.busy_by_title["measured"].bin_ns,
        "style": _asset("page.css"),
        "script": _asset("strip.js"),
        "strip": _embedded(drawn.as_json()),
        "kinds_shown": drawn.kinds_shown,
    }


def _unbroken(text_of: Callable[[Any], str]) -> Callable[[Any], str]:
    """The same text with its number and its unit kept on one line."""
    return lambda value: text_of(value).replace(" ", NO_BREAK_SPACE)


def _asset(name: str) -> Markup:
    """A file of ours, which needs no escaping."""
    text = files("foretrace.report").joinpath("templates", name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704  our own file, not a user's text


def _embedded(value: object) -> Markup:
    """JSON that may stand inside a script element: no `<` survives."""
    text = msgspec.json.encode(value).decode().replace("<", "\\u003c")
    return Markup(text)  # noqa: S704  escaped above
