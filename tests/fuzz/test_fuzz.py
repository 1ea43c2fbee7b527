"""Changed inputs of every reader and command end in an answer or a sentence.

`make fuzz` tries more of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.draw import cases
from tests.fuzz.inputs import inputs, kinds
from tests.fuzz.trial import Case, good_recording, line, tried

BUDGET = {"recordings": 8, "graphs": 8, "descriptions": 16}  # inputs
FOUND = Path(__file__).parent / "corpus" / "found.jsonl"


@pytest.fixture(scope="module")
def good() -> Iterator[Path]:
    with good_recording() as folder:
        yield folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("kind", BUDGET)
def test_what_is_changed_ends_in_an_answer_or_a_sentence(
    kind: str, good: Path, folder: Path
) -> None:
    @settings(max_examples=BUDGET[kind], suppress_health_check=[HealthCheck.too_slow])
    @given(st.integers(0, 2**32))
    def one(seed: int) -> None:
        for case in cases(kind, random.Random(seed)):
            assert tried(case, good=good, folder=folder) is None, case.as_json()

    one()


@pytest.mark.parametrize("kept", FOUND.read_text().splitlines(), ids=lambda kept: kept[-40:])
def test_what_was_found_stays_mended(kept: str, good: Path, folder: Path) -> None:
    assert tried(Case(**json.loads(kept)), good=good, folder=folder) is None


@pytest.mark.parametrize("name", [name for of in kinds().values() for name in of])
def test_inputs_are_good_before_they_are_changed(name: str, good: Path, folder: Path) -> None:
    of = inputs()[name]

    for text in (*of.always, *of.lines)[:1]:
        assert tried(Case(name, [], line(text)), good=good, folder=folder) is None
