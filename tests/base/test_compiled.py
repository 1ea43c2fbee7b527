"""Compiled loops, their machine code kept, made anew, and kept nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pytest

KEPT = """
import sys
import numpy as np
from foretrace.graph._compiled import counted_order, last_not_after
order = np.empty(3, np.int64)
counted_order(np.array([1, 0, 1]), np.array([0, 1, 3]), order)
print(*order, last_not_after(np.array([2, 4, 6]), 0, 3, 5), "numba" in sys.modules)
"""


def printed_with_code_kept_in(folder: Path) -> list[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", KEPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_kept_code_runs_without_the_compiler_and_beside_code_that_is_not_kept(
    tmp_path: Path,
) -> None:
    compiled = printed_with_code_kept_in(tmp_path)
    kept = printed_with_code_kept_in(tmp_path)
    for path in tmp_path.glob("_compiled.last_not_after-*.code"):
        path.unlink()
    half = printed_with_code_kept_in(tmp_path)

    assert compiled[:-1] == kept[:-1] == half[:-1]
    assert [each[-1] for each in (compiled, kept, half)] == ["True", "False", "True"]


def test_a_process_that_can_keep_no_machine_code_runs(tmp_path: Path) -> None:
    (nowhere := tmp_path / "file").touch()

    assert printed_with_code_kept_in(nowhere)[:-1] == printed_with_code_kept_in(tmp_path)[:-1]


def test_kept_code_is_made_anew_after_a_change_of_a_file_it_takes_functions_from(
    tmp_path: Path,
) -> None:
    inner, outer = (tmp_path / "apart" / name / "_compiled.py" for name in ("inner", "outer"))
    for path in (inner, outer):
        path.parent.mkdir(parents=True)
    head = "from foretrace.base import njit\n"
    outer.write_text(
        f"{head}from foretrace.apart.inner._compiled import one\n\n"
        "@njit\ndef twice(x):\n    return 2 * one() * x\n"
    )
    program = (
        "import sys\nimport foretrace\n"
        f"foretrace.__path__.append({str(tmp_path)!r})\n"
        "from foretrace.apart.outer._compiled import twice\n"
        "print(twice(1), 'numba' in sys.modules)\n"
    )

    said = []
    for value in (1, 1, 7):
        text = f"{head}\n@njit\ndef one():\n    return {value}\n"
        if not inner.exists() or inner.read_text() != text:
            inner.write_text(text)
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said.append(done.stdout.split())

    assert said == [["2", "True"], ["2", "False"], ["14", "True"]]


@pytest.mark.parametrize("damage", [lambda whole: whole[:-40], lambda whole: b"nothing" + whole])
def test_kept_code_that_cannot_be_read_is_made_anew(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    compiled = printed_with_code_kept_in(tmp_path)
    [*kept] = tmp_path.glob("_compiled.last_not_after-*.code")
    for path in kept:
        path.write_bytes(damage(path.read_bytes()))
    anew = printed_with_code_kept_in(tmp_path)
    again = printed_with_code_kept_in(tmp_path)

    assert kept
    assert compiled[:-1] == anew[:-1] == again[:-1]
    assert again[-1] == "False"


LOOPS = """
import numpy as np
from foretrace.base import njit


@njit
def halves(pair, scale, is_negative):
    numbers, weights = pair
    total = numbers.sum() * scale
    return -total if is_negative else total, weights[-1, 0], numbers.size // 2


@njit
def drawn(random, count):
    found = np.empty(count)
    for at in range(count):
        found[at] = random.random()
    return found.sum()


@njit
def quotient(dividend, divisor):
    return dividend // divisor


@njit
def nothing(numbers):
    numbers[0] = 5
"""


@pytest.fixture
def loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "loops.py").write_text(LOOPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "loops", raising=False)
    return import_module("loops")


def test_arrays_of_any_layout_tuples_and_numbers_arrive_and_results_return(
    loops: ModuleType,
) -> None:
    numbers, weights = np.arange(8), np.array([[1.5, 2.0], [3.5, 4.0]], np.float32)

    for pair, scale in (
        ((numbers, weights), 3),
        ((numbers[::2], weights.T), np.float32(2.5)),
        ((numbers[::-1], weights[:, 1:]), np.int32(3)),
    ):
        expected = (-pair[0].sum() * scale, pair[1][-1, 0], pair[0].size // 2)

        assert loops.halves(pair, scale, True) == expected
    assert loops.nothing(numbers) is None
    assert numbers[0] == 5


def test_a_loop_draws_as_numpy_does(loops: ModuleType) -> None:
    ours, numpys = np.random.default_rng(7), np.random.default_rng(7)

    assert loops.drawn(ours, 100) == pytest.approx(numpys.random(100).sum(), rel=1e-14)
    assert ours.random() == numpys.random()


@pytest.mark.compiled
def test_an_error_within_a_loop_is_raised_and_nothing_foreign_is_taken(loops: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError):
        loops.quotient(1, 0)
    if not isinstance(loops.quotient, FunctionType):
        with pytest.raises(TypeError, match="got a str, expected arrays"):
            loops.quotient("one", 0)


def test_an_array_that_must_not_be_written_is_refused(loops: ModuleType) -> None:
    numbers = np.arange(3)
    numbers.flags.writeable = False

    with pytest.raises(Exception, match="readonly"):
        loops.nothing(numbers)
