from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.analyze import Selection
from foretrace.base import ScenarioError
from foretrace.whatif import Layers, NamedEdits, Parallelism, Speed, read_scenarios

FILE = """
[[scenario]]
name = "deep and wide"
layers = 96
dp = 8

[[scenario]]
name = "fast products"
speed = { gemm = 1.5, "kernels:*flash*" = 2 }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "what.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_scenarios_keep_their_order_and_names(tmp_path: Path) -> None:
    assert read_scenarios(written(tmp_path, FILE)) == (
        NamedEdits("deep and wide", (Layers(96), Parallelism(dp=8))),
        NamedEdits(
            "fast products",
            (Speed(1.5, Selection(named="gemm")), Speed(2.0, Selection(kernels="*flash*"))),
        ),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no scenario"),
        ("scenario = 3", "where a list of tables is expected"),
        ("scenario = [3]", "is [3], where a list of tables is expected"),
        ("[[scenarios]]", "did you mean 'scenario'"),
        ("[[scenario]]\nlayers = 4", "scenario 1 of scenario file"),
        ("[[scenario]]\nname = ''", "'name' of scenario 1"),
        ("[[scenario]]\nname = 'a'", "scenario 'a' of scenario file"),
        ("[[scenario]]\nname = 'a'\nlayer = 4", "did you mean 'layers'"),
        ("[[scenario]]\nname = 'a'\nlayers = 'x'", "'layers' of scenario 'a' of scenario file"),
        (
            "[[scenario]]\nname = 'a'\nlayers = 4\n[[scenario]]\nname = 'a'\nlayers = 5",
            "two scenarios called 'a'",
        ),
        ("[[scenario]\n", "is not a TOML file"),
    ],
)
def test_an_error_names_file_entry_and_key(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(ScenarioError, match=r"what\.toml") as refused:
        read_scenarios(path)

    assert told in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
