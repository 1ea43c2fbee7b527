"""Recordings whose names steer terminals, or whose clocks are far apart."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.commands import command_tree
from tests.fuzz.changes import INJECTED

ESC = "\x1b[31m"
STEERING = f"{ESC}\x1b]0;title\x07\x9b2J\r"
STEERS = set("\x1b\x07\x9b\r")


LOG = "\n".join(["time,host,component", *(f"2026-01-0{day},h{ESC},g{ESC}" for day in range(1, 9))])


def changed(traces: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The small job's files with every event changed."""
    folder.mkdir()
    for path in traces.iterdir():
        is_packed = path.suffix == ".gz"
        raw = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
        content = json.loads(raw)
        for event in content.get("traceEvents", ()):
            change(event)
        text = json.dumps(content).encode()
        (folder / path.name).write_bytes(gzip.compress(text) if is_packed else text)
    return folder


def steers(event: dict[str, Any]) -> None:
    if event.get("cat") in ("kernel", "cpu_op", "gpu_memcpy", "cuda_runtime"):
        event["name"] += STEERING
    group = event.get("args", {}).get("Process Group Name")
    if group is not None:
        event["args"]["Process Group Name"] = f"{group}{STEERING}"


def about_a_run() -> list[tuple[str, ...]]:
    """Every command that needs nothing but the files of a run."""
    subjects = {"PATH...", "FILES...", "BEFORE"}
    return [
        one.path
        for one in command_tree()
        if subjects & {each.name for each in one.options}
        and {each.name for each in one.options if each.is_required} <= subjects
        and one.path != ("report",)  # a page: tests/report
    ]


def runs_late(event: dict[str, Any]) -> None:
    if str(event.get("cat")) in ("kernel", "gpu_memcpy", "gpu_memset"):
        event["ts"] += 3_000_000


@pytest.fixture(scope="module")
def steering(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small job, its names written to steer a terminal."""
    return changed(traces, tmp_path_factory.mktemp("steering") / "job", steers)


@pytest.mark.parametrize(
    "line",
    [
        *about_a_run(),
        ("operators", "--attention"),
        ("inspect", "--blocks"),
        ("sensitivity", "--change", "gemm=0.5"),
        ("whatif", "--speed", "gemm=0.5"),
        ("breakdown", "--json"),
        ("inspect", "--json"),
        ("analyze", "--json"),
    ],
    ids=" ".join,
)
def test_names_do_not_steer_the_terminal(run: Run, steering: Path, line: tuple[str, ...]) -> None:
    done = run(*line, steering)

    assert done.code == 0, done.err
    assert not STEERS & set(done.out + done.err)


@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        ("model show", "a.toml", 'extends = "llama3-8b"\ntitle = "b\\u001b[31m"'),
        ("machine show", "a.toml", 'kind = "chip"\nextends = "t4"\ntitle = "b\\u001b[31m"'),
        ("machine check", "a.toml", 'kind = "chip"\nextends = "t4"\ntitle = "b\\u001b[31m"'),
        ("risk failures --nodes 9", "a.csv", LOG),
    ],
)
def test_descriptions_do_not_steer_the_terminal(
    run: Run, tmp_path: Path, line: str, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")

    done = run(*line.split(), tmp_path / name)

    assert done.code == 0, done.err
    assert not STEERS & set(done.out + done.err)


def test_names_do_not_steer_what_is_drawn(run: Run, traces: Path, tmp_path: Path) -> None:
    job = changed(traces, tmp_path / "job", steers)
    for name in ("drawn.svg", "drawn.dot"):
        done = run("draw", job, "--around", "cutlass", "--depth", 1, "-o", tmp_path / name)

        assert done.code == 0, done.err
        assert not STEERS & set((tmp_path / name).read_text(encoding="utf-8"))


def test_a_folder_whose_name_is_no_utf8_is_told(run: Run, traces: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff"))
    try:
        changed(traces, folder, lambda _: None)
    except OSError:
        pytest.skip("this file system holds UTF-8 names only")

    for end in ((), ("--json",)):
        for line in ("inspect", "breakdown", "replay"):
            done = run(line, folder, *end)
            assert done.code == 0, done.err
            if end:
                json.loads(done.out)


def test_clocks_that_are_seconds_apart_are_a_sentence(
    run: Run, traces: Path, tmp_path: Path
) -> None:
    done = run("breakdown", changed(traces, tmp_path / "job", runs_late))

    assert done.code == 1
    assert "the clocks of host and device differ" in done.err


def test_a_kernel_before_the_epoch_of_all_others_takes_no_page_of_gigabytes(
    run: Run, traces: Path, tmp_path: Path
) -> None:
    moved: list[str] = []

    def starts_at_zero(event: dict[str, Any]) -> None:
        if event.get("cat") == "kernel" and not moved:
            event["ts"] = 0
            moved.append(event["name"])
        elif "ts" in event:
            event["ts"] += 1e15

    job = changed(traces, tmp_path / "job", starts_at_zero)
    done = run("report", job, "-o", tmp_path / "page.html")

    assert moved
    assert done.code == 1
    assert "error: " in done.err
    assert not (tmp_path / "page.html").exists()


def injects(event: dict[str, Any]) -> None:
    """Every text of an event that a page, a drawing or a timeline shows."""
    if event.get("cat") in ("kernel", "cpu_op") or "dims" in str(event.get("args")):
        event["name"] = f"{event['name']}{INJECTED}{STEERING}"
    elif event.get("ph") == "M" and "name" in event.get("args", {}):
        event["args"]["name"] += INJECTED
    for key in ("Process Group Name", "Process Group Description", "Input Dims"):
        if key in event.get("args", {}):
            event["args"][key] = f"{event['args'][key]}{INJECTED}{STEERING}"


def scripts(page: str) -> int:
    """Elements of a page that run code, as a browser finds them."""
    found: list[str] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: found.extend(  # type: ignore[method-assign]
        [tag] * (tag in ("script", "iframe", "object"))
        + [name for name, _ in attrs if name.startswith("on")]
    )
    reader.feed(page)
    return len(found)


@pytest.mark.parametrize(
    "line",
    [
        "report {job} -o {page}",
        "replay {job} --report {page}",
        "whatif {job} --speed gemm=2 --report {page}",
    ],
)
def test_names_are_no_code_on_a_page(run: Run, traces: Path, tmp_path: Path, line: str) -> None:
    hostile = changed(traces, tmp_path / "<img src=x onerror=alert(1)>", injects)
    pages = []
    for job in (hostile, traces):
        words = [one.format(job=job, page=tmp_path / "page.html") for one in line.split()]
        assert run(*words).code == 0
        pages.append((tmp_path / "page.html").read_text(encoding="utf-8"))

    assert INJECTED not in pages[0]
    assert "<img src=x" not in pages[0]
    assert not set("\x1b\x07\x9b") & set(pages[0])
    assert scripts(pages[0]) == scripts(pages[1])


@pytest.mark.parametrize("end", ["json.gz", "pftrace"])
def test_names_leave_timelines_whole(run: Run, traces: Path, tmp_path: Path, end: str) -> None:
    out = tmp_path / f"timeline.{end}"

    done = run("replay", changed(traces, tmp_path / "job", injects), "--trace", out)

    assert done.code == 0, done.err
    if end == "json.gz":
        names = {event.get("name") for event in read_json(out)["traceEvents"]}
        assert any(INJECTED in str(name) for name in names)
    else:
        assert INJECTED.encode() in out.read_bytes()


def read_json(path: Path) -> Any:
    """What JSON of a file says, numbers that JSON has not refused."""

    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(gzip.decompress(path.read_bytes()), parse_constant=refused)
