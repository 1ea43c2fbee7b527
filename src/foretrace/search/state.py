"""`SearchState`: what a search knows of every plan, in memory and in a file that outlives it.

The file has a line for its question, then one for every answer: a plan's number and what was
found. A last line that was cut short when the search was killed is left out, so that a search that
goes on looks at the same plans in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from foretrace.base import WorkloadError, write_whole

QUICK, RUN, UNITS, P95 = "quick_ns", "run_ns", "unit_ns", "p95_ns"
_VERSION = 3


@dataclass
class SearchState:
    """Times of plans by rung and by the plan's place in its space."""

    found: dict[str, dict[int, int]] = field(
        default_factory=lambda: {QUICK: {}, RUN: {}, UNITS: {}, P95: {}}
    )
    file: IO[str] | None = None

    def known(self, rung: str, plan: int) -> int | None:
        """What is known of a plan."""
        return self.found[rung].get(plan)

    def tell(self, rung: str, plan: int, time_ns: int) -> None:
        """Remember it, and write it down."""
        self.found[rung][plan] = time_ns
        if self.file is not None:
            self.file.write(f'{{"{rung}": {time_ns}, "plan": {plan}}}\n')
            if rung in {UNITS, P95}:
                self.file.flush()

    def bound_ns(self, plan: int, rungs: Sequence[str] = (QUICK, RUN)) -> int:
        """What no later rung of the plan is below, by what these say."""
        return max(self.found[rung].get(plan, 0) for rung in rungs)


@contextmanager
def kept_state(path: Path | None, question: Mapping[str, object]) -> Iterator[SearchState]:
    """A state that is written to a file, with what the file holds already.

    Args:
        path: of the file; `None`: nothing is kept.
        question: all that the answers depend on.

    Raises:
        WorkloadError: if the file is of another question, none of a search's, or damaged.
    """
    if path is None:
        yield SearchState()
        return
    asked = {"foretrace search": _VERSION, **question}
    state = SearchState()
    if path.is_file() and path.stat().st_size:
        _read(path, asked, state)
    else:
        write_whole(path, json.dumps(asked) + "\n")
    with path.open("a", encoding="utf-8") as file:
        state.file = file
        yield state
        state.file = None


def _read(path: Path, asked: Mapping[str, object], state: SearchState) -> None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        found = json.loads(lines[0])
    except ValueError:
        found = None
    if not isinstance(found, dict) or "foretrace search" not in found:
        raise WorkloadError(
            f"{path} is no file of a search: name one that --resume wrote, or one that does not "
            "exist yet"
        )
    asked = json.loads(json.dumps(asked))
    if found != asked:
        other = [name for name in asked if found.get(name) != asked[name]]
        raise WorkloadError(
            f"{path} is of another search, with other {', '.join(other) or 'keys'}: ask as then, "
            "or name another file"
        )
    whole = lines if lines[-1].endswith("\n") else lines[:-1]
    for number, line in enumerate(whole[1:], 2):
        rung, plan, time_ns = _told(line, f"{path}, line {number}")
        state.found[rung][plan] = time_ns
    if len(whole) < len(lines):  # so that what is cut short is not gone on with
        write_whole(path, "".join(whole))


def _told(line: str, where: str) -> tuple[str, int, int]:
    """Rung, plan and time of a line."""
    try:
        told = json.loads(line)
        plan = told.pop("plan")
        ((rung, time_ns),) = told.items()
    except (AttributeError, KeyError, TypeError, ValueError):
        plan, rung, time_ns = None, "", None
    if rung not in SearchState().found or type(plan) is not int or type(time_ns) is not int:
        raise WorkloadError(
            f"{where} is damaged: found {line.strip()[:60]!r}, expected a plan's number and its "
            f'time, as in {{"{UNITS}": 3340000000, "plan": 12}}; delete that line, and what it '
            "said is found again"
        )
    return rung, plan, time_ns
