"""FLOPs per token of the models in published training runs, by both conventions."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.workload import Convention, Transformer, flops
from tests.models import transformer

# How runs call the models; cuts and unstated vocabularies are made below.
NAME_BY_MODEL = {
    "gpt-175b": "gpt3-175b-mlperf",
    "llama-65b": "llama1-65b",
    "llama3.1-405b": "llama3.1-405b",
    "llama3-405b-4layers": "llama3.1-405b",
    "llama3-70b-12layers": "llama3.1-70b",
    "gpt-175b-megascale": "gpt3-175b",
    "mt-nlg-530b": "mt-nlg-530b",
}
SIGNIFICANT = 6  # digits that the file keeps


def model_of(row: dict[str, str]) -> Transformer:
    name = row["model"]
    of_megatron = re.sub(r"^gpt-(\d+(?:\.[1-9])?)(?:\.0)?b$", r"megatron-\1b", name)
    preset = NAME_BY_MODEL.get(name, of_megatron)
    if name == "llama3.1-405b" and row["vocab"] == "32000":
        preset = "llama3.1-405b-mlperf"
    model = transformer(preset)
    if name == "gpt-175b-megascale":
        attention = replace(model.attention, num_heads=128, num_kv_heads=128, head_size=96)
        return replace(model, attention=attention)
    if name.endswith("layers"):  # a few of a larger model's
        attention = replace(model.attention, num_kv_heads=int(row["kv_heads"]))
        return replace(model, num_layers=int(row["layers"]), attention=attention)
    return model


def rows_of(data_dir: Path) -> list[dict[str, str]]:
    path = data_dir / "published" / "runs.csv"
    if not path.is_file():
        pytest.skip(f"no published runs at {path}")
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_flops_per_token_of_every_dense_run_are_reproduced(data_dir: Path) -> None:
    wrong, seen = [], set()
    for row in rows_of(data_dir):
        if not row["flops_per_token_causal"]:
            continue
        model = model_of(row)
        seen.add(row["model"])
        for convention in (Convention.CAUSAL, Convention.FULL):
            found = flops(
                model,
                int(row["seq_len"]),
                convention=convention,
                # Where nobody states the vocabulary, the file leaves the output out.
                has_output=bool(row["vocab"]),
            ).training
            expected = float(row[f"flops_per_token_{convention}"])
            if f"{found:.{SIGNIFICANT - 1}e}" != f"{expected:.{SIGNIFICANT - 1}e}":
                wrong.append((row["id"], convention, found, expected))

    assert len(seen) > 20
    assert wrong == []


def test_shapes_of_runs_are_those_of_their_models(data_dir: Path) -> None:
    wrong = set()
    for row in rows_of(data_dir):
        model = model_of(row)
        attention = model.attention
        found = (model.num_layers, model.hidden, attention.num_heads, attention.num_kv_heads)
        expected = tuple(int(row[key]) for key in ("layers", "hidden", "heads", "kv_heads"))
        if found != expected:
            wrong.add((row["model"], found, expected))

    assert wrong == set()
