from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import ScenarioError
from foretrace.graph import Part, Phase
from foretrace.whatif import Selection
from foretrace.whatif.edits.edit import duration_ns_of
from foretrace.whatif.edits.selection import selection_of


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("all", Selection()),
        ("gemm", Selection(family="gemm")),
        ("flash attention", Selection(family="flash attention")),
        ("family:gemm", Selection(family="gemm")),
        ("kernels:*flash*", Selection(kernels="*flash*")),
        ("operators:aten::addmm", Selection(operators="aten::addmm")),
        ("operator:aten::addmm rank:3", Selection(operators="aten::addmm", ranks=(3,))),
        (
            "gemm layers:0-2,7 phase:forward part:layer",
            Selection(family="gemm", layers=(0, 1, 2, 7), phase=Phase.FORWARD, part=Part.LAYER),
        ),
        ("all with-host ranks:1", Selection(ranks=(1,), with_host=True)),
    ],
)
def test_work_is_named_in_words(text: str, selection: Selection) -> None:
    assert selection_of(text) == selection


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names no work"),
        ("aten::addmm", "an operator is 'operators:aten::addmm'"),
        ("layres:3", "did you mean 'layers'"),
        ("layers:3-1", "are no numbers"),
        ("layers:1-99999999", "are no numbers"),
        ("ranks:x", "write them as in 0,4-7"),
        ("phase:forwards", "did you mean 'forward'"),
        ("part:wheel", "expected one of data, embedding, layer"),
        ("kernels:", "a selection names nothing"),
        ("rank:1 ranks:2", "states ranks twice"),
    ],
)
def test_words_that_mean_nothing_are_refused(text: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        selection_of(text)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("2ms", 2_000_000), ("1.5 us", 1_500), ("-300 ns", -300), (" 1 s ", 10**9), ("0ms", 0)],
)
def test_times_have_units(text: str, duration_ns: int) -> None:
    assert duration_ns_of(text) == duration_ns


@pytest.mark.parametrize("text", ["2", "ms", "2 m", "2,5 ms", 2, None])
def test_a_time_without_a_unit_is_refused(text: object) -> None:
    with pytest.raises(ScenarioError, match="write a number with its unit"):
        duration_ns_of(text)


@given(st.integers(-(10**15), 10**15))
def test_whole_nanoseconds_are_kept(duration_ns: int) -> None:
    assert duration_ns_of(f"{duration_ns} ns") == duration_ns
