"""What a description of runs says of rows, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.software import kernel_factors
from foretrace.validate import read_description, undescribed_software
from foretrace.workload import software_draft
from tests.validate.runs.sample import published


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"software": "torchtitan-float8", "gpu": "H200"}, "torchtitan"),
        ({"software": "torchtitan-float8", "gpu": "H100"}, "torchtitan-2024"),
        ({"software": "torchtitan-eager", "gpu": "H200"}, "torchtitan-eager"),
        ({"software": "NeMo-26.02.01"}, "nemo-26.02"),
        ({"software": "llm-foundry"}, "llm-foundry"),
        ({"software": "", "id": "megascale-175b-256-megascale"}, "megascale"),
        ({"software": "", "id": "megascale-175b-256-megatronlm"}, "megatron-2023"),
        ({"software": "", "group": "paper|one"}, "megatron-2021"),
    ],
)
def test_the_first_rule_that_fits_says_the_software(
    tmp_path: Path, changes: dict[str, object], name: str
) -> None:
    run = published(tmp_path, **changes)

    assert run.described_software.name == name
    assert undescribed_software((run,)) == ()


@pytest.mark.parametrize(
    ("name", "taken", "told"),
    [
        ("hal-9000", "unknown", "taken for 'unknown' (not described)"),
        ("", "unknown", "taken for 'unknown'"),
        ("nemo-31.04", "nemo-26.08", "taken for 'nemo-26.08' (NeMo container 26.08)"),
        ("megatron-7", "megatron", "taken for 'megatron' (Megatron with Transformer Engine)"),
    ],
)
def test_software_that_nobody_described_is_its_class_or_unknown_with_a_warning(
    tmp_path: Path, name: str, taken: str, told: str
) -> None:
    run = published(tmp_path, software=name)

    assert run.described_software.name == taken
    (warning,) = undescribed_software((run, run))
    assert f"no release called {name!r} is described: {told}" in warning


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
        (_RULE.replace('"own"', '"wrong"'), "", "no software is called 'wrong'"),
        ('[[refused]]\nwhere = { id = "a" }\nwhy = "no"\n', "", "allowed are where, because"),
        (_RULE, "[[learned]]\nproducts = 1.0\n", "lacks architecture, runs_of, num_runs"),
        (_RULE, "[implementation]\nfuses_everything = true\n", "'fuses_everything'"),
        (_RULE, "[kernels]\nattention = { value = 2.0 }\n", "names the source None"),
        (_RULE, '[release]\nname = "own"\n', "lacks version, date"),
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

    found = read_description(described(tmp_path, _RULE, own)).software_of({"software": "Own-1.2"})

    assert found.vocabulary == 11
    assert kernel_factors(found, "Volta")["attention"] == 2.0
    assert software_draft(found).plan().implementation.fuses_residuals  # of the plan it starts from


def test_rules_of_a_description_stand_before_those_of_what_it_extends(tmp_path: Path) -> None:
    base = (
        '[[software]]\nwhere = { software = "*" }\nis = "deepspeed"\n'
        "[[plans]]\nwhere = {}\nplan = { overlap = { tensor = true, gradients = true } }\n"
    )
    own = (
        'extends = "base"\n[[software]]\nwhere = { software = "ours" }\nis = "megatron"\n'
        "[[plans]]\nwhere = {}\nplan = { overlap = { gradients = false } }\n"
    )
    (tmp_path / "base.toml").write_text(base, encoding="utf-8")
    (tmp_path / "own.toml").write_text(own, encoding="utf-8")

    found = read_description(tmp_path / "own.toml")

    assert found.software_of({"software": "ours"}).name == "megatron"
    assert found.software_of({"software": "theirs"}).name == "deepspeed"
    plan = found.stated_plan({}).plan()
    assert (plan.overlap.tensor, plan.overlap.gradients) == (True, False)
