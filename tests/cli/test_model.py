from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.workload import load_model, model_names, parameters
from tests.cli.conftest import Run


def test_model_alone_names_its_verbs(run: Run) -> None:
    outcome = run("model")

    assert outcome.code == 0
    for verb in ("list", "show"):
        assert f"  {verb} " in outcome.out


def test_list_names_every_model_in_80_columns(run: Run) -> None:
    outcome = run("model", "list")

    assert outcome.code == 0
    for name in model_names():
        assert f"\n{name} " in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80


def test_list_as_json_has_all_models(run: Run) -> None:
    found = json.loads(run("model", "list", "--json").out)["models"]

    assert [one["name"] for one in found] == list(model_names())
    assert all(one["parameters"]["total"] > 0 for one in found)


@pytest.mark.parametrize(
    "name",
    ["llama4-scout", "deepseek-v3-mtp", "dlrm-mlperf-v2", "modelscope-video", "llama4-behemoth"],
)
def test_show_has_every_part_and_every_number_with_its_source(run: Run, name: str) -> None:
    found = json.loads(run("model", "show", name, "--json").out)

    outcome = run("model", "show", name)

    assert outcome.code == 0
    assert max(len(line) for line in outcome.out.splitlines() if "://" not in line) <= 80
    for part in found["parameters"]["parts"]:
        assert f"{part['total']:,}" in outcome.out
    for entry in found["entries"]:
        assert entry["key"] in outcome.out
        assert entry["source"] in " ".join(outcome.out.split())
        assert entry["url"] in outcome.out


def test_tokens_set_the_sequence(run: Run) -> None:
    short, long = (
        json.loads(run("model", "show", "llama3-8b", "--tokens", tokens, "--json").out)
        for tokens in ("2048", "4096")
    )

    assert (short["sequence"], long["sequence"]) == (2048, 4096)
    difference = long["flops"][0]["forward"] - short["flops"][0]["forward"]
    assert difference == 2 * 32 * 4096 * 2048
    assert long["cache_bytes"] == 2 * short["cache_bytes"] == 4096 * long["cache_bytes_per_token"]


def test_a_configuration_of_hugging_face_is_shown(run: Run, tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "max_position_embeddings": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))

    outcome = run("model", "show", str(path))

    assert outcome.code == 0
    assert f"{parameters(load_model('llama2-7b')).total:,}" in outcome.out


def test_a_users_folder_is_looked_through_first(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text('extends = "llama3-8b"\n[shape]\nlayers = 2\n')
    monkeypatch.setenv("FORETRACE_MODELS", str(tmp_path))

    assert "\nown " in run("model", "list").out
    assert json.loads(run("model", "show", "own", "--json").out)["extends"] == "llama3-8b"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("show", "lama3-8b"), 1, "did you mean"),
        (("show", "nowhere/config.json"), 1, "cannot be read"),
        (("show", "llama3-8b", "--tokens", "0"), 2, "--tokens"),
    ],
)
def test_what_is_wrong_is_one_sentence_on_stderr(
    run: Run, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    outcome = run("model", *arguments)

    assert outcome.code == code
    assert outcome.out == ""
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err
