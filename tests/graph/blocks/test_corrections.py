"""A user's file about blocks: what it may say, and what is said about mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import GraphError
from foretrace.graph import Part, Phase, read_corrections


def written(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_says_layers_parts_phases_and_stages(tmp_path: Path) -> None:
    found = read_corrections(
        written(
            tmp_path,
            """
            layers_per_stage = [20, 12]
            [[rule]]
            annotation = "block_*"
            part = "layer"
            [[rule]]
            operator = "my::begin"
            begins_layer = true
            [[rule]]
            kernel = "*gather*"
            part = "bucket"
            phase = "forward"
            """,
        )
    )

    assert found.layers_per_stage == (20, 12)
    assert found.is_layer("annotation", "block_7", begins=False)
    assert not found.is_layer("operator", "block_7", begins=False)
    assert found.is_layer("operator", "my::begin", begins=True)
    assert found.part("kernel", "all_gather_k") == Part.BUCKET
    assert found.phase("kernel", "all_gather_k") == Phase.FORWARD
    assert found.part("kernel", "gemm") == Part.UNKNOWN


def test_the_first_rule_that_says_something_wins(tmp_path: Path) -> None:
    found = read_corrections(
        written(
            tmp_path,
            """
            rule = [
                {operator = "a*", phase = "data"},
                {operator = "ab", part = "head"},
                {operator = "*", part = "loss", phase = "forward"},
            ]
            """,
        )
    )

    assert found.part("operator", "ab") == Part.HEAD
    assert found.phase("operator", "ab") == Phase.DATA
    assert found.part("operator", "c") == Part.LOSS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layers = 3", ["the key 'layers'", "layers_per_stage, rule"]),
        ("layers_per_stage = 3", ["'layers_per_stage'", "is 3", "list of numbers above 0"]),
        ("layers_per_stage = [4, 0]", ["is [4, 0]"]),
        ("rule = 3", ["'rule'", "is 3", "[[rule]]"]),
        ("rule = [3]", ["'rule'", "is [3]"]),
        ('[[rule]]\npart = "layer"', ["no pattern", "operator, annotation, module, kernel"]),
        ('[[rule]]\noperator = "a"\nkernel = "b"\npart = "loss"', ["operator, kernel", "one of"]),
        ('[[rule]]\noperator = ""\npart = "loss"', ["'operator' of rule 1", "is ''"]),
        ('[[rule]]\noperator = "a"', ["says nothing about 'a'", "begins_layer"]),
        (
            '[[rule]]\noperator = "a"\npart = "layers"',
            ["one of data, embedding", "mean 'layer'"],
        ),
        ('[[rule]]\noperator = "a"\nphase = 1', ["'phase'", "data, forward, backward"]),
        ('[[rule]]\noperator = "a"\nbegins_layer = 1', ["begins_layer", "true or false"]),
        ('[[rule]]\nkernel = "a"\nbegins_layer = true', ["a kernel cannot begin a layer"]),
        (
            '[[rule]]\noperator = "a"\nparts = "loss"',
            ["rule 1", "key 'parts'", "mean 'part'"],
        ),
        ("layers_per_stage = [", ["is not a TOML file"]),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    path = written(tmp_path, text)

    with pytest.raises(GraphError) as caught:
        read_corrections(path)

    message = str(caught.value)
    assert str(path) in message
    for word in words:
        assert word in message
