"""Launch scripts, read without a shell."""

from __future__ import annotations

import pytest

from foretrace.workload.configurations.arguments import (
    arguments_of,
    read_shell,
    repeated,
    scalar,
    values_by_flag,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\necho; X=$A", "1"),
        ("A='$B'; X=$A", "$B"),
        ("X=${A:-7}", "7"),
        ("A=; X=${A:-7}", "7"),
        ("A=3; X=${A:-7}", "3"),
        ("X=$((2*3 + 4))", "10"),
        ("N=4; G=8; X=$((N * $G))", "32"),
        ("N=4; G=8; X=$(( ${N} * ${G} / 2 ))", "16"),
        ("X=a; X+=b", "a b"),
        ("X=( --one 1 # why\n --two 2 )", "--one 1 --two 2"),
        ("A=( --one ); X=( ${A[@]} --two )", "--one --two"),
        ("X=--one\\\n2", "--one2"),
        ("# X=1\nX=2 # X=3", "2"),
        ("if [ $A == 1 ]; then X=1; else X=2; fi", "2"),
        ("A=1; if [[ $A == 2 ]]; then X=1; elif [ $A -gt 0 ]; then X=3; else X=2; fi", "3"),
        ('A=x; if [[ "$A" == "y" ]] || [[ -n "$A" ]]; then X=1; else X=2; fi', "1"),
        ("if [ -z $A ]; then X=1\nelse\n X=2\nfi", "1"),
        ("X=1; for i in 1 2; do X=9; done", "1"),
        ("X=1; [ -n $A ] && X=2", "1"),
        ("cat <<EOF\nX=3\nEOF\nX=4", "4"),
    ],
)
def test_variables(text: str, expected: str) -> None:
    assert read_shell(text).variables["X"] == expected


def test_an_unset_variable_stays_as_its_name() -> None:
    assert read_shell("X=$UNSET/a").variables["X"] == "$UNSET/a"


def test_strings_without_end_take_no_time_and_no_offence() -> None:
    read_shell('X="' + "$(a" * 5000)
    read_shell("${" * 5000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--tp 8 --swiglu --lr 1e-4", {"tp": 8, "swiglu": True, "lr": 1e-4}),
        ("--tp=8 --under_scored 3", {"tp": 8, "under-scored": 3}),
        ("--many 1 2 a", {"many": [1, 2, "a"]}),
        ("--tp 8 --tp 4", {"tp": 4}),
        ("A=(--tp 8)\ntorchrun --nnodes 2 run.py ${A[@]} --pp 2", {"tp": 8, "pp": 2}),
        ('MODEL_ARGS=" \\\n --tp 8 \\\n --pp 2 "', {"tp": 8, "pp": 2}),
        ('CMD="python run.py --tp 2"\neval $CMD', {"tp": 2}),
    ],
)
def test_arguments(text: str, expected: dict[str, object]) -> None:
    assert arguments_of(text).values == expected


def test_ranks_are_the_launchers() -> None:
    text = "torchrun --nproc_per_node 8 --nnodes 4 run.py --tp 8"
    assert arguments_of(text).num_ranks == 32
    assert arguments_of("WORLD_SIZE=$((8*2)); ARGS=(--tp 8)").num_ranks == 16
    assert arguments_of("--tp 8").num_ranks is None


def test_a_condition_that_only_a_run_decides_is_named() -> None:
    text = 'if [ -f "$A" ]; then ARGS+=(--more 1); fi\npython run.py --tp 2 $ARGS'
    assert arguments_of(text).undecided == ('[ -f "$A" ]',)


def test_files_that_a_script_reads_are_named() -> None:
    assert arguments_of("source common.sh\npython run.py --tp 2").sourced == ("common.sh",)


def test_values() -> None:
    assert values_by_flag(["--a", "-1", "--b"]) == {"a": -1, "b": True}
    assert [scalar(text) for text in ("3", "1e-3", "True", "x")] == [3, 1e-3, True, "x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[0]*3+[1]*2", (0, 0, 0, 1, 1)),
        ("([0,1]*2)", (0, 1, 0, 1)),
        ("[1]*99999999999", None),
        ("__import__('os')", None),
        ("3", None),
    ],
)
def test_lists_of_layers(text: str, expected: tuple[int, ...] | None) -> None:
    assert repeated(text) == expected
