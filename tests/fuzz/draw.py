"""Cases that a seed draws."""

from __future__ import annotations

import random

from tests.fuzz.changes import drawn, drawn_of_line
from tests.fuzz.inputs import inputs, kinds
from tests.fuzz.trial import Case, line

_AS_JSON = (
    "analyze", "breakdown", "idle", "critical-path", "sensitivity", "stragglers", "stalls", "hang",
    "operators", "memory", "compare", "whatif", "inspect", "replay", "estimate", "risk", "machine",
    "model", "anonymise", "search", "plan", "serve", "balance", "throughput", "trend",
)  # fmt: skip
_JSON_SHARE = 0.5


def cases(kind: str, chance: random.Random) -> list[Case]:
    """One changed input of a kind, and the lines that are tried with it."""
    name = chance.choice(kinds()[kind])
    of = inputs()[name]
    drawn_lines = chance.sample(of.lines, min(of.num_drawn, len(of.lines)))
    lines = [line(text) for text in (*of.always, *drawn_lines)]
    if of.files:
        changes = drawn(next(iter(of.files.values())), chance)
    else:
        changes = []
        lines = [drawn_of_line(words, chance) for words in lines]
    for words in lines:
        if words[0] in _AS_JSON and "--json" not in words and chance.random() < _JSON_SHARE:
            words.append("--json")
    return [Case(name, changes, words) for words in lines]
