"""Of runs with one planted cause, the first sentence of a diagnosis names it, or cannot tell."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from foretrace.analyze import Diagnosis, diagnosis
from foretrace.answer import cell_text, duration_text, percent_text
from foretrace.graph import build_recording
from foretrace.trace import load_traces
from tests.acceptance.planting import PLANTERS, SEED, VARIANTS, planted
from tests.acceptance.plants.runs import RUNS

WORDS = {
    "stall": "host stalls, cause not recorded",
    "garbage collection": "garbage collection",
    "late loader": "data loading",
    "slow operator": "slow operator",
    "uneven work": "uneven work",
}
LEAST_RIGHT = 47  # of 50
_NUMBER = re.compile(r"\d[\d,.]* (?:ns|us|ms|s|%)(?![\w])|\d+\.\d+(?= times)|(?<=on )\d+(?= rank)")


@cache
def diagnosed(cause: str, variant: int, seed: int) -> tuple[Diagnosis, tuple[str, int]]:
    """What is found of a generated run; of what was planted the words and the rank."""
    plant = planted(cause, variant, seed=seed)
    return diagnosis(plant.recording), (plant.words, plant.rank)


def generated(cause: str, variant: int, seed: int = SEED) -> tuple[str, bool]:
    """The first sentence about a generated run, and whether it is right."""
    found, plant = diagnosed(cause, variant, seed)
    return _judged(found, *plant)


@cache
def recorded(name: str) -> tuple[str, bool]:
    """The same of a recorded run."""
    run = RUNS[name]
    traces = load_traces(Path(__file__).parent / "plants" / name, cache_folder=None)
    return _judged(diagnosis(build_recording(traces)), WORDS[run.cause], run.rank)


def _judged(found: Diagnosis, words: str, rank: int) -> tuple[str, bool]:
    first = found.causes[0]
    is_there = rank < 0 or first.rank == rank or first.topic == "link"
    return found.headline, found.is_told and words in found.headline and is_there


def table() -> Counter[tuple[str, str]]:
    """How often each planted cause was called what."""
    found: Counter[tuple[str, str]] = Counter()
    for cause in PLANTERS:
        for variant in range(VARIANTS):
            found[cause, _called(*generated(cause, variant))] += 1
    for name, run in RUNS.items():
        found[f"{run.cause} (recorded)", _called(*recorded(name))] += 1
    return found


def _called(sentence: str, is_right: bool) -> str:
    if is_right:
        return "right"
    return "cannot tell" if sentence.startswith("cannot tell") else "wrong"


@pytest.mark.slow
def test_the_first_sentence_names_what_was_planted_or_cannot_tell() -> None:
    found = table()

    called = Counter[str]()
    for (_, how), count in found.items():
        called[how] += count
    assert called.total() == len(PLANTERS) * VARIANTS + len(RUNS)
    assert called["right"] >= LEAST_RIGHT, found
    assert called["wrong"] == 0, found


@pytest.mark.slow
@pytest.mark.parametrize("cause", PLANTERS)
def test_another_seed_is_judged_as_well(cause: str) -> None:
    called = Counter(_called(*generated(cause, variant, 7)) for variant in range(VARIANTS))

    assert called["right"] >= VARIANTS - 1
    assert called["wrong"] == 0


def test_every_number_of_every_sentence_is_that_of_its_row() -> None:
    for cause in PLANTERS:
        found, _ = diagnosed(cause, 0, SEED)
        keys = found.table("causes").columns
        assert found.causes
        for one, cells in zip(found.causes, found.table("causes").rows, strict=True):
            row: dict[str, Any] = dict(zip((column.key for column in keys), cells, strict=True))
            stated = {duration_text(row[key]) for key in row if key.endswith("_ns")}
            stated |= {percent_text(100 * row["share"]), f"{row['factor']:.2f}"}
            stated.add(cell_text(row["num_ranks"], "count"))
            rest = one.sentence.replace(one.subject, "") if one.subject else one.sentence
            numbers = _NUMBER.findall(rest)
            assert numbers
            assert set(numbers) <= stated, (one.sentence, stated)


def test_parts_of_a_cause_sum_to_it() -> None:
    for cause in PLANTERS:
        for one in diagnosed(cause, 1, SEED)[0].causes:
            if one.topic in {"idle", "straggler", "pipeline"}:
                parts_ns = one.waiting_ns + one.idle_ns + one.inside_ns
                assert abs(parts_ns - one.lost_ns) <= 1  # rounding of a mean
            assert 0 <= one.subject_ns <= one.lost_ns
