"""Logs of nccl-tests, as that tool prints them, become rows of measured collectives.

Read are the lines of devices, which tell ranks and hosts, and the table's rows, whose columns the
table's own header names: older releases have no root, newer ones more columns behind. Out of
place counts. https://github.com/NVIDIA/nccl-tests, src/common.cu and src/util.cu, 2022 to 2025;
rccl-tests prints the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from foretrace.base import NS_PER_US, ModelError, is_number, number_format
from foretrace.cost.network.domain import collective_named

Row = dict[str, object]

MARK = "algbw"  # of every log's header, and hardly of anything else
_DEVICE = re.compile(
    r"#\s*Rank\s+(?P<rank>\d+)(?:\s+Group\s+(?P<group>\d+))?\s+Pid\s+\d+\s+on\s+(?P<host>\S+)"
    r"\s+device\s+\d+\s+\[[^\]]*\]\s+(?P<device>.+?)\s*$"
)
_TEST = re.compile(r"\b([a-z_]+)_perf")
_LIBRARY = re.compile(r"nccl-library=(\d+)|NCCL version ([\d.]+)")
_LEAST_NUMBERS = 3  # time, algbw, busbw


def read_log(path: Path) -> list[Row]:
    """Rows of a log, with the columns of a table of collectives.

    Raises:
        ModelError: if the log does not say which collective, on which devices, or has no row.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    devices = [found for line in lines if (found := _DEVICE.search(line))]
    ranks = {int(found["rank"]) for found in devices if found["group"] in {None, "0"}}
    hosts = {found["host"] for found in devices}
    kinds = {found["device"] for found in devices}
    if len(kinds) != 1 or len(ranks) < 2:  # noqa: PLR2004 - a collective takes two
        raise ModelError(
            f"{str(path)!r} names {len(ranks)} ranks on {len(kinds)} kinds of device, where one "
            "run of nccl-tests names two ranks or more on one kind: give the log of one run whole."
        )
    device = kinds.pop()
    shared: Row = {
        "system": f"{device}, {'one host' if len(hosts) == 1 else 'several hosts'}",
        "gpu": device,
        "num_gpus": len(ranks),
        "num_nodes": len(hosts),
        "collective": _collective(text, path),
        "software": _software(text),
        "source": "nccl-tests",
        "notes": "out-of-place",
    }
    rows = [shared | row for row in _rows(lines)]
    if not rows:
        raise ModelError(f"{str(path)!r} has no row of results: did the test end before the first?")
    return rows


def _collective(text: str, path: Path) -> str:
    """Newer releases print the test's name; older ones leave it to the command or the file."""
    for where in (text, path.name):
        for found in _TEST.findall(where):
            known = collective_named(found)
            if known is not None:
                return known.in_tables
    known = collective_named(path.stem)
    if known is None:
        raise ModelError(
            f"{str(path)!r} does not say which test it is the log of: put the test's name into "
            "the file's, as in all_reduce_perf.log."
        )
    return known.in_tables


def _software(text: str) -> str:
    found = _LIBRARY.search(text)
    return f"NCCL {found[1] or found[2]}" if found else ""


def _rows(lines: list[str]) -> list[Row]:
    rows: list[Row] = []
    has_root = True
    for line in lines:
        if line.startswith("#") or MARK in line:
            if MARK in line:
                has_root = "root" in line
            continue
        row = _row(line.split(), has_root=has_root)
        if row is not None:
            rows.append(row)
    return rows


def _row(words: list[str], *, has_root: bool) -> Row | None:
    """One line's size, format and out-of-place time; nothing for any other line."""
    if len(words) < 3 + _LEAST_NUMBERS or not (words[0].isdigit() and words[1].isdigit()):
        return None
    rest = words[3:]
    if not _is_known(rest[0]):  # the reduction
        rest = rest[1:]
    if has_root:
        rest = rest[1:]
    if len(rest) < _LEAST_NUMBERS or not all(map(_is_known, rest[:_LEAST_NUMBERS])):
        return None
    time_us, algbw, busbw = map(float, rest[:_LEAST_NUMBERS])
    if int(words[0]) == 0 or time_us <= 0:
        return None
    known = number_format(words[2])
    return {
        "message_bytes": int(words[0]),
        "dtype": known.rated_as if known is not None else words[2],
        "time_ns": time_us * NS_PER_US,
        "algbw_gbs": algbw,
        "busbw_gbs": busbw,
    }


def _is_known(word: str) -> bool:
    return is_number(word) and word.casefold() != "nan"
