"""Model files: what they say, what they extend, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    Diffusion,
    Recommender,
    TotalsOnly,
    load_model,
    model_names,
    parameters,
)
from tests.models import transformer

OWN = """
kind = "transformer"
title = "Own"

[sources]
memo = { title = "Own memo", url = "https://example.com/memo" }

[shape]
source = "memo"
layers = 4
hidden = 64
vocabulary = { value = 100, assumed = "not decided" }

[attention]
heads = 8
kv_heads = 2
head_size = 16

[feed_forward]
width = 256
gated = true
"""
RECOMMENDER = """
kind = "recommender"
[features]
dense = 13
rows = [10, 20, 30]
pooling = [1]
size = 8
[networks]
bottom = [16, 8]
top = [4, 1]
"""
UNET = """
kind = "diffusion"
[unet]
in_channels = 4
out_channels = 4
channels = [8, 16]
blocks_per_level = 1
attention = [1, 0]
text_width = 8
text_tokens = 7
height = 8
width = 8
"""


def written(folder: Path, text: str, name: str = "own") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_says_what_a_model_is(tmp_path: Path) -> None:
    model = transformer(written(tmp_path, OWN))

    assert (model.name, model.title, model.num_layers) == ("own", "Own", 4)
    assert model.attention.num_kv_heads == 2
    # 4 layers of 64 x (8 + 2 + 2 + 8) x 16 + 3 x 64 x 256 + 2 x 64, two tables of 100, a norm.
    layer = 64 * 20 * 16 + 3 * 64 * 256 + 2 * 64
    assert parameters(model).total == 4 * layer + 2 * 100 * 64 + 64


def test_a_source_of_a_table_counts_for_what_names_none(tmp_path: Path) -> None:
    model = transformer(written(tmp_path, OWN))
    by_key = {entry.key: entry for entry in model.entries}

    layers, vocabulary = by_key["shape.layers"], by_key["shape.vocabulary"]
    assert layers.source is not None
    assert layers.source.title == "Own memo"
    assert (vocabulary.source, vocabulary.assumed) == (None, "not decided")
    assert by_key["attention.heads"].source is None


def test_a_file_changes_what_it_extends(tmp_path: Path) -> None:
    path = written(tmp_path, 'extends = "llama3.1-405b"\n[shape]\nlayers = 12\n')

    model, base = transformer(path), transformer("llama3.1-405b")

    assert (model.num_layers, model.hidden, model.parent) == (12, 16384, "llama3.1-405b")
    by_key = {entry.key: entry for entry in model.entries}
    assert by_key["shape.layers"].source is None
    assert by_key["shape.hidden"] in base.entries


def test_a_users_file_hides_the_preset_of_its_name_and_may_extend_it(tmp_path: Path) -> None:
    written(tmp_path, 'extends = "llama3-8b"\n[shape]\nlayers = 2\n', "llama3-8b")
    written(tmp_path, OWN)

    assert transformer("llama3-8b", (tmp_path,)).num_layers == 2
    assert {"own", "llama3-8b", "gpt2"} <= set(model_names((tmp_path,)))
    assert transformer("llama3-8b").num_layers == 32


def test_one_number_stands_for_all_tables(tmp_path: Path) -> None:
    model = load_model(written(tmp_path, RECOMMENDER))
    assert isinstance(model, Recommender)

    assert model.pooling == (1, 1, 1)
    assert model.interaction_width == 8 + 6
    assert parameters(model).total == 60 * 8 + (14 * 16 + 17 * 8) + (15 * 4 + 5)


def test_other_kinds_are_read(tmp_path: Path) -> None:
    totals = 'kind = "totals"\n[totals]\nparameters = "1.5T"\nactive_parameters = "30B"\n'

    assert isinstance(load_model(written(tmp_path, UNET)), Diffusion)
    found = load_model(written(tmp_path, totals))
    assert isinstance(found, TotalsOnly)
    assert (found.parameters, found.active_parameters) == (1.5e12, 30e9)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("layers = 4", "layer = 4", r"\[shape\] of model file .*own.toml' has the key 'layer', "),
        ("layers = 4", "layer = 4", r"allowed are layers, .*did you mean 'layers'\?"),
        ("[shape]", "[shapes]", r"model file .* has the key 'shapes'.*did you mean 'shape'\?"),
        ("layers = 4", "", r"\[shape\] of .* lacks layers: add them, or extend a preset"),
        ("layers = 4", 'layers = "4"', r"'layers' of .* is '4', where a whole number of at least"),
        ("layers = 4", "layers = 0", r"is 0, where a whole number of at least 1 and at most 10000"),
        ("layers = 4", "layers = true", r"is True, where a whole number"),
        ("layers = 4", 'layers = { source = "memo" }', r"has no value: write it as \{ value"),
        ("layers = 4", 'layers = { value = 4, source = "mem" }', r"names the source 'mem', .*memo"),
        ("gated = true", 'gated = "yes"', r"'gated' of .* is 'yes', where true or false"),
        (
            "layers = 4",
            'layers = 4\nnorm = "rsm"',
            r"one of rms, .* is expected; did you mean 'rms",
        ),
        ("kv_heads = 2", "kv_heads = 3", r"8 heads cannot share 3 kv_heads evenly"),
        ("width = 256\n", "", r"4 of 4 layers have no experts, and \[feed_forward\] has no width"),
        ("heads = 8", 'heads = 8\nreach = "chunk"', r"reach 'chunk' but no reach_tokens"),
        ("heads = 8", "heads = 8\nlatent_rank = 4", r"lacks rotary_size, value_size: state all"),
        ("layers = 4", 'layers = 4\npositions = "learned"', r"learned positions need a context"),
        ('kind = "transformer"', 'kind = "former"', r"kind 'former' where a model is expected"),
        ('kind = "transformer"', "", r"has no kind: begin it with kind"),
        ('title = "Own"', "title = 3", r"'title' of .* is 3, where a text is expected"),
        ("[sources]", "[sources", r"is not a TOML file"),
        (
            "gated = true",
            "gated = true\n[experts]\ncount = 2\nactive = 3\nwidth = 8",
            r"a token is sent to 3 experts of 2: active cannot exceed count",
        ),
        (
            "gated = true",
            'gated = true\n[published]\nparameters = "4b"',
            r"'parameters' of \[published\] .* is '4b', where a whole number, or a text like",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    path = written(tmp_path, OWN.replace(old, new, 1))

    with pytest.raises(WorkloadError, match=sentence) as caught:
        load_model(path)

    assert "\n" not in str(caught.value).split(": ")[0]


@pytest.mark.parametrize(
    ("text", "old", "new", "sentence"),
    [
        (RECOMMENDER, "pooling = [1]", "pooling = [1, 2]", "pooling .* has 2 numbers for 3 tables"),
        (RECOMMENDER, "[16, 8]", "[16, 9]", "ends with 9 numbers where a vector has 8"),
        (RECOMMENDER, "[4, 1]", '[4, 1]\ninteraction = "cross"', "needs cross_layers and cross"),
        (RECOMMENDER, "rows = [10, 20, 30]", "rows = []", "where a list of whole numbers"),
        (UNET, "attention = [1, 0]", "attention = [1]", "2 channels and 1 numbers in attention"),
        (UNET, "height = 8", "height = 8\ntime_layers = true", "needs a head_size"),
    ],
)
def test_other_kinds_are_checked_too(
    tmp_path: Path, text: str, old: str, new: str, sentence: str
) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        load_model(written(tmp_path, text.replace(old, new, 1)))


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    with pytest.raises(
        WorkloadError, match=r"no model is called 'lama3-8b'.*did you mean llama3-8b"
    ):
        load_model("lama3-8b")


def test_a_file_that_extends_itself_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 'extends = "two"\n', "one")
    written(tmp_path, 'extends = "one"\n', "two")

    with pytest.raises(WorkloadError, match="extends itself"):
        load_model(tmp_path / "one.toml")


def test_totals_cannot_have_more_active_than_all(tmp_path: Path) -> None:
    text = 'kind = "totals"\n[totals]\nparameters = "1B"\nactive_parameters = "2B"\n'

    with pytest.raises(WorkloadError, match="active_parameters exceed parameters"):
        load_model(written(tmp_path, text))
