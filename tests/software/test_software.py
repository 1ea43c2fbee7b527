"""Descriptions of software: what is known of a name, which factors follow, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretrace.base import WorkloadError
from foretrace.software import (
    UNKNOWN_SOFTWARE,
    Knowledge,
    kernel_factors,
    known_software,
    load_software,
    software_called,
    software_names,
)
from foretrace.workload import software_draft

_PRODUCTS = "gemm library bf16"


_FORMATS = {"16bit": _PRODUCTS, "fp8": "gemm library fp8", "fp4": "gemm library fp4"}


def _products(name: str, architecture: str, *without: str, of: str = "16bit") -> float:
    return kernel_factors(load_software(name), architecture, without=without)[_FORMATS[of]]


@pytest.mark.parametrize("name", software_names())
def test_every_description_is_a_plan_of_a_class_that_is_described(name: str) -> None:
    found = load_software(name)

    assert software_draft(found).plan().name == name
    assert found.family in software_names()
    assert all(one.source is not None or one.assumed for one in found.kernels)
    assert found.knowledge is not Knowledge.RELEASE or found.date


@pytest.mark.parametrize(
    ("called", "name", "knowledge"),
    [
        ("nemo-25.11", "nemo-25.11", Knowledge.RELEASE),
        ("NeMo-26.02.01", "nemo-26.02", Knowledge.RELEASE),
        ("megatron-bridge-0.4.1", "nemo-26.04", Knowledge.RELEASE),
        ("nemo-31.01", "nemo-26.08", Knowledge.CLASS),
        ("nemo-25.07", "nemo-25.02", Knowledge.CLASS),
        ("nemo-23.01", "megatron", Knowledge.CLASS),
        ("megatron-bridge-0.9", "nemo-26.08", Knowledge.CLASS),
        ("megatron-lm-2022", "megatron-2021", Knowledge.CLASS),
        ("megatron-core-0.12", "megatron", Knowledge.CLASS),
        ("our-fsdp-compiled", "fsdp-compiled", Knowledge.CLASS),
        ("accelerate 1.2", "fsdp-eager", Knowledge.CLASS),
        ("Megatron-DeepSpeed", "deepspeed", Knowledge.CLASS),
        ("hal-9000", UNKNOWN_SOFTWARE, Knowledge.UNKNOWN),
        ("", UNKNOWN_SOFTWARE, Knowledge.UNKNOWN),
    ],
)
def test_a_name_is_a_release_else_its_class_else_unknown(
    called: str, name: str, knowledge: Knowledge
) -> None:
    found = software_called(called)

    assert (found.name, found.knowledge) == (name, knowledge)


def test_classes_have_the_geometric_mean_of_what_sources_taught_of_their_library() -> None:
    classes = [load_software(name) for name in {one.family for one in known_software().rows}]
    taught: dict[tuple[str, str, str], list[float]] = {}
    for each in classes:
        for one in each.learned:
            key = (each.library, one.architecture, one.format)
            taught.setdefault(key, []).append(one.products)
    for each in classes:
        for (library, architecture, dtype), times in taught.items():
            if library == each.library:
                expected = np.exp(np.mean(np.log(times)))
                assert _products(each.name, architecture, of=dtype) == pytest.approx(expected)


def test_what_issues_products_is_a_library_whatever_compiles_around_it() -> None:
    assert _products("fsdp-compiled", "Hopper", "torchtitan") == _products(
        "fsdp-eager", "Hopper", "torchtitan"
    )
    assert load_software("torchtitan").library == load_software("deepspeed").library == "pytorch"
    assert load_software("nemo-25.11").library == "megatron"


def test_narrow_products_are_told_apart_and_take_no_factor_where_nobody_taught_one() -> None:
    wide, narrow = (_products("megatron", "Blackwell", of=one) for one in ("16bit", "fp8"))

    assert narrow < 1 < wide
    assert _products("megatron", "Hopper", of="fp8") > 1
    assert _products("megatron", "Hopper", of="fp4") == 1.0
    assert _products("jax", "Blackwell", of="fp4") == _products("megatron", "Blackwell", of="fp4")


def test_a_library_that_nobody_ran_on_a_chip_takes_all_on_the_one_before() -> None:
    found = _products("megatron", "Blackwell", "simumax-b200")

    assert found == pytest.approx(
        np.exp(
            np.mean(
                [np.log(_products(name, "Hopper")) for name in ("megatron", "fsdp-eager", "jax")]
            )
        )
    )


def test_what_is_said_of_blackwell_holds_for_blackwell_ultra() -> None:
    factors = kernel_factors(load_software("megatron"), "Blackwell Ultra")

    assert factors["attention flash2"] == 0.9
    assert "attention" not in factors


def test_a_source_learns_nothing_from_itself() -> None:
    (taught,) = (one for one in load_software("jax").learned if one.format == "16bit")

    others = [_products(name, "Hopper") for name in ("megatron", "fsdp-eager")]
    found = _products("jax", "Hopper", taught.runs_of)

    assert min(others) <= found <= max(others)
    assert found == pytest.approx(np.exp(np.mean(np.log(others))))


def test_a_format_that_a_library_never_ran_is_carried_from_one_that_it_did() -> None:
    def apart(name: str) -> float:
        return _products(name, "Hopper") / _products(name, "Hopper", of="fp8")

    found = _products("megatron", "Hopper", "dgxc")

    known = _products("megatron", "Hopper", "dgxc", of="fp8")
    assert found == pytest.approx(known * (apart("jax") * apart("fsdp-eager")) ** 0.5)


def test_an_architecture_that_nobody_ran_takes_the_one_before() -> None:
    assert _products("megatron", "Blackwell Ultra") == _products("megatron", "Blackwell")
    assert _products("megatron", "Volta") == 1.0


def test_a_stated_figure_counts_on_its_architecture_alone() -> None:
    assert kernel_factors(load_software("megatron"), "Hopper")["attention"] == 0.63
    # Releases of before such kernels do not have them from their class.
    for architecture in ("Hopper", "Blackwell Ultra"):
        older = kernel_factors(load_software("megatron-2023"), architecture)
        assert {v for name, v in older.items() if name.startswith("attention")} == {1.0}
    assert "attention" not in kernel_factors(load_software("megatron"), "Ampere")
    assert kernel_factors(load_software("llm-foundry"), "Hopper")["attention"] == 1.8


def test_pytorch_s_attention_is_slower_on_amd_alone() -> None:
    for name in ("fsdp-eager", "torchtitan-2024"):
        known = load_software(name)
        assert kernel_factors(known, "CDNA 3")["attention backward"] == 3.6
        assert "attention backward" not in kernel_factors(known, "Hopper")
    # Transformer Engine's is another.
    assert "attention backward" not in kernel_factors(load_software("nemo-automodel"), "CDNA 3")


def test_a_user_s_release_extends_its_class(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(
        'extends = "megatron"\ntitle = "Ours"\ncalled = ["ours-*"]\n'
        '[release]\nname = "ours"\nversion = "3"\ndate = "2026-10"\n'
        "[overlap]\ntensor = false\n"
        '[kernels]\n"gemm library" = { value = 1.1, assumed = "measured here" }\n',
        encoding="utf-8",
    )

    found = software_called("Ours-3.1", (tmp_path,))

    assert (found.name, found.family, found.version) == ("ours", "megatron", "ours 3")
    assert kernel_factors(found, "Hopper")["gemm library"] == 1.1
    assert _PRODUCTS not in kernel_factors(found, "Hopper")  # the stated figure is of all products
    assert not software_draft(found).plan().overlap.tensor


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[release]\nname = 'x'\n", "lacks version, date"),
        ("called = 3\n", "a list of texts"),
        ("[framework]\nfsdp = 'yes'\n", "true or false"),
        ("[kernels]\nattention = { value = 2.0 }\n", "names the source None"),
        ("[[learned]]\narchitecture = 'Hopper'\n", "lacks runs_of, num_runs, products"),
        ("class = ''\n", "'class' of"),
    ],
)
def test_what_no_description_says_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(WorkloadError, match=message):
        load_software(path)


def test_lists_and_descriptions_tell_themselves() -> None:
    listed, shown = known_software(), load_software("nemo-25.11")

    assert "descriptions of software in" in listed.headline
    assert {"megatron", "unknown"} <= {one.name for one in listed.rows}
    assert shown.as_json()["class"] == "megatron"
    assert shown.to_polars("learned").height == len(shown.learned)


def test_a_chip_alone_has_no_factor_that_runs_of_many_taught() -> None:
    known = load_software("llm-foundry")

    alone = kernel_factors(known, "Hopper", is_alone=True)

    assert {alone[name] for name in _FORMATS.values()} == {1.0}
    assert kernel_factors(known, "Hopper")[_PRODUCTS] > 1.1
    assert alone["attention"] == 1.8  # what a description states is its kernels' own


def test_what_a_description_states_of_products_is_so_of_a_chip_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'kind = "software"\nclass = "jax"\n'
        '[kernels]\n"gemm library" = { value = 1.1, assumed = "as we saw" }\n'
    )

    assert kernel_factors(load_software(path), "Hopper", is_alone=True)["gemm library"] == 1.1
