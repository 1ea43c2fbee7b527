"""What a description of runs says of rows, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.cost.in_steps import PRODUCTS_IN_STEPS
from foretrace.estimate import UNMODELLED
from foretrace.validate import read_description, undescribed_software
from tests.validate.runs.sample import DESCRIPTION, published


@pytest.mark.parametrize("architecture", sorted(PRODUCTS_IN_STEPS))
def test_a_new_source_is_given_what_an_estimate_takes(architecture: str) -> None:
    taught = DESCRIPTION.products_factor(architecture, source="a source of its own")

    # Both are written with two decimals, and a mean of rounded numbers is off by as much again.
    assert taught == pytest.approx(PRODUCTS_IN_STEPS[architecture], abs=0.01)


def test_a_source_learns_nothing_from_itself() -> None:
    for one in DESCRIPTION.taught:
        others = [
            other.products
            for other in DESCRIPTION.taught
            if other.architecture == one.architecture and other.source != one.source
        ]
        found = DESCRIPTION.products_factor(one.architecture, one.source)
        if others:
            assert min(others) <= found <= max(others)


def test_a_generation_without_others_takes_the_one_before() -> None:
    assert DESCRIPTION.products_factor("Blackwell", "simumax-b200") == DESCRIPTION.products_factor(
        "Hopper", "simumax-b200"
    )
    assert DESCRIPTION.products_factor("Blackwell Ultra", "new") == DESCRIPTION.products_factor(
        "Blackwell", "new"
    )
    assert DESCRIPTION.products_factor("Volta", "new") == 1.0


def test_a_new_source_is_given_the_width_of_an_estimate() -> None:
    assert DESCRIPTION.unmodelled_spread("a source of its own") == UNMODELLED
    assert DESCRIPTION.unmodelled_spread("simumax-b200") < UNMODELLED


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"software": "torchtitan-float8", "gpu": "H200"}, "torchtitan"),
        ({"software": "torchtitan-float8", "gpu": "H100"}, "torchtitan-2024"),
        ({"software": "torchtitan-eager", "gpu": "H200"}, "torchtitan-eager"),
        ({"software": "NeMo-26.02.01"}, "megatron"),
        ({"software": "", "id": "megascale-175b-256-megascale"}, "megascale"),
        ({"software": "", "id": "megascale-175b-256-megatronlm"}, "megatron-2023"),
        ({"software": "", "id": "a-paper"}, "megatron-2021"),
    ],
)
def test_the_first_rule_that_fits_says_the_software(
    tmp_path: Path, changes: dict[str, object], name: str
) -> None:
    run = published(tmp_path, **changes)

    assert run.described_software.name == name
    assert undescribed_software((run,)) == ()


def test_unknown_software_is_taken_for_the_stated_default_with_a_warning(tmp_path: Path) -> None:
    run = published(tmp_path, software="hal-9000")

    assert run.described_software.name == "megatron"
    (warning,) = undescribed_software((run, run))
    assert "nothing describes the software 'hal-9000': it is taken for 'megatron'" in warning


def described(folder: Path, text: str, software: str = "") -> Path:
    """A description with one software beside it."""
    (folder / "software").mkdir()
    (folder / "software" / "own.toml").write_text(software, encoding="utf-8")
    path = folder / "runs.toml"
    path.write_text(text, encoding="utf-8")
    return path


_RULE = '[[software]]\nwhere = { software = "own*" }\nis = "own"\n'


@pytest.mark.parametrize(
    ("text", "software", "message"),
    [
        ("[host]\n", "", "'host', which means nothing there.*did you mean 'hosts'"),
        ('default_software = "wrong"\n', "", "no software is called 'wrong'"),
        ('[[refused]]\nwhere = { id = "a" }\nwhy = "no"\n', "", "allowed are where, because"),
        ("[[taught]]\nsource = 1\n", "", "lacks architecture, num_runs, products"),
        (_RULE, "[implementation]\nfuses_everything = true\n", "'fuses_everything'"),
        (_RULE, "[kernels]\nattention = { value = 2.0 }\n", "names the source None"),
        (_RULE, '[kernels]\nattention = { value = -1.0, assumed = "why" }\n', "a number above 0"),
        (_RULE, '[logged_memory]\nlike = "none"\n', "known are megatron, pytorch"),
        (_RULE, '[framework]\nfsdp = "yes"\n', "true or false is expected"),
    ],
)
def test_what_no_description_says_is_refused(
    tmp_path: Path, text: str, software: str, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        read_description(described(tmp_path, text, software))


def test_software_is_a_plan_with_what_no_plan_says(tmp_path: Path) -> None:
    own = (
        'extends = "megatron"\n[framework]\nvocabulary = 11\n'
        '[kernels]\nattention = { value = 2, assumed = "a guess" }\n'
    )

    found = read_description(described(tmp_path, _RULE, own)).described_software(
        {"software": "Own-1.2"}
    )

    assert found is not None
    assert (found.vocabulary, found.slower) == (11, {"attention": 2.0})
    assert found.plan.plan().implementation.fuses_residuals  # of the plan that it extends
