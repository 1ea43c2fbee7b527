"""Linear layers that are divided over tensor ranks: what is refused, and what each rank has."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from foretrace.base import WorkloadError
from foretrace.capture import capture
from tests.capture.module.networks import Classifier, Llama, classifier_inputs, tokens_and_answers

STYLES = {"*.w[qkv]": "column", "*.wo": "row", "*.w[13]": "column", "*.w2": "row"}


@pytest.mark.parametrize("way", ["dispatch", "export"])
def test_sums_are_as_many_as_megatron_s(way: str) -> None:
    found = capture(Llama(2), tokens_and_answers(), tensor=2, divided=STYLES, way=way)

    for layer in found.layers:
        assert [one.name for one in layer.forward if one.is_exchange] == ["all_reduce"] * 2
        assert [one.name for one in layer.backward if one.is_exchange] == ["all_reduce"] * 2
    assert found.tensor == 2


def test_both_ways_divide_alike() -> None:
    found = [
        capture(Llama(2), tokens_and_answers(), tensor=2, divided=STYLES, way=way)
        for way in ("dispatch", "export")
    ]

    assert replace(found[0], way="") == replace(found[1], way="")


@pytest.mark.parametrize(
    ("tensor", "styles", "message"),
    [
        (3, STYLES, "tp 3 does not divide the 64 outputs of layers.0.attention.wq"),
        (2, {}, "nothing says how"),
        (2, {"*.nothing": "row"}, r"no linear layer of the module is called '\*\.nothing'"),
        (2, {"*.wq": "rows"}, "by 'column' or 'row', found 'rows'"),
        (0, STYLES, "divided over 0 tensor ranks"),
        (2, {"*.wo": "row"}, "cannot be captured"),
    ],
)
def test_what_cannot_be_divided_is_an_error(
    tensor: int, styles: Mapping[str, str], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        capture(Llama(1), tokens_and_answers(), tensor=tensor, divided=styles, way="dispatch")


def test_a_divided_module_does_not_run_for_real() -> None:
    with pytest.raises(WorkloadError, match="divided over ranks is not all there"):
        capture(
            Classifier(asks=True),
            classifier_inputs(),
            tensor=2,
            divided={"*.linear1": "column", "*.linear2": "row"},
        )


def test_without_pytorch_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from foretrace.base import MissingExtraError

    # By its module: the package's own name for it is the verb.
    compose = sys.modules["foretrace.capture.module.compose"]
    monkeypatch.setattr(compose, "find_spec", lambda _name: None)

    with pytest.raises(MissingExtraError, match=r'pip install "foretrace\[torch\]"'):
        capture(Llama(1), tokens_and_answers())
