"""Lists and descriptions in a pipe: whole, in 80 columns, without trailing blanks."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize(
    "line",
    [
        "machine list",
        "machine show llama3-24k",
        "machine check dgx-h100",
        "model list",
        "model show deepseek-v3",
        "risk failures",
        "risk failures llama3",
        "risk ettr llama3-405b --samples 5",
        "risk compare ft-hsdp-98k --samples 5 --days 20 --scale",
    ],
)
def test_nothing_is_cut_and_no_line_ends_in_blanks(run: Run, line: str) -> None:
    done = run(*line.split())

    lines = done.out.splitlines()
    assert done.code == 0, done.err
    assert max(len(one) for one in lines if "://" not in one) <= 80
    assert [one for one in lines if one != one.rstrip()] == []
    assert not any("..." in one or one.startswith("and ") for one in lines)
