"""The page on models: its tables are the presets, its files and its Python are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from foretrace.workload import (
    Diffusion,
    ModelAccount,
    Recommender,
    TotalsOnly,
    Transformer,
    account,
    load_model,
    model_names,
)
from foretrace.workload.models.hugging_face import _TABLES
from tests.models import transformer
from tests.pages import check_made, table

PAGE = Path(__file__).parents[3] / "docs" / "models.md"


def accounts() -> list[ModelAccount]:
    return [account(load_model(name)) for name in model_names()]


def number(value: float) -> str:
    return f"{value:.4g}"


def differences() -> str:
    rows = [
        [f"`{one.model.name}`", each.what, each.text, number(each.counted / 1e9), each.why or ""]
        for one in accounts()
        for each in one.comparisons
        if not each.agrees
    ]
    return table(["model", "what", "published", "counted, 1e9", "why"], rows)


def transformers() -> str:
    rows = []
    for one in accounts():
        model = one.model
        if isinstance(model, Transformer):
            attention = model.attention
            rows.append(
                [
                    f"`{model.name}`",
                    number(one.parameters.total / 1e9),
                    number(one.parameters.active / 1e9),
                    str(model.num_layers),
                    str(model.hidden),
                    f"{attention.num_heads}/{attention.num_kv_heads} x {attention.head_size}",
                    number(one.flops[0].training / 1e9),
                    number((one.cache_bytes_per_token or 0) / 2**10),
                ]
            )
    heads = ["model", "1e9 parameters", "active", "layers", "hidden", "heads", "GFLOP", "KV KiB"]
    return table(heads, rows)


def recommenders() -> str:
    rows = [
        [
            f"`{one.model.name}`",
            number(one.parameters.total / 1e9),
            f"{one.model.num_tables} x {one.model.size}",
            str(one.model.num_lookups),
            one.model.interaction.value,
            number(one.flops[0].forward / 1e6),
        ]
        for one in accounts()
        if isinstance(one.model, Recommender)
    ]
    heads = ["model", "1e9 parameters", "tables", "lookups", "interaction", "forward MFLOP"]
    return table(heads, rows)


def diffusion() -> str:
    rows = [
        [
            f"`{one.model.name}`",
            number(one.parameters.total / 1e9),
            f"{one.model.frames} x {one.model.height} x {one.model.width}",
            ", ".join(map(str, one.model.sequence_lengths)),
            number(one.flops[0].forward / 1e12),
        ]
        for one in accounts()
        if isinstance(one.model, Diffusion)
    ]
    heads = ["model", "1e9 parameters", "latent", "positions by level", "forward TFLOP"]
    return table(heads, rows)


def totals() -> str:
    rows = [
        [
            f"`{one.model.name}`",
            number(one.model.parameters / 1e9),
            number((one.model.active_parameters or one.model.parameters) / 1e9),
            f"{number(one.flops[0].forward)} per {one.flops[0].unit}",
        ]
        for one in accounts()
        if isinstance(one.model, TotalsOnly)
    ]
    return table(["model", "1e9 parameters", "active", "forward FLOP"], rows)


@pytest.mark.parametrize("build", [differences, transformers, recommenders, diffusion, totals])
def test_the_tables_of_the_page_are_the_presets(
    request: pytest.FixtureRequest, build: Callable[[], str]
) -> None:
    check_made(PAGE, build, request)


def test_the_page_names_every_type_that_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert [name for name in _TABLES if f"`{name}`" not in text] == []


def test_the_files_of_the_page_are_right(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2

    layers = []
    for example in examples:
        path = tmp_path / "own.toml"
        path.write_text(example)
        model = transformer(path)
        layers.append(model.num_layers)

    assert layers == [24, 4]
