from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.machine import chip_names, host_names, machine_names
from tests.cli.conftest import Run


def test_machine_alone_names_its_verbs(run: Run) -> None:
    outcome = run("machine")

    assert outcome.code == 0
    for verb in ("list", "show", "check"):
        assert f"  {verb} " in outcome.out


def test_list_names_everything_in_80_columns(run: Run) -> None:
    outcome = run("machine", "list")

    assert outcome.code == 0
    for name in (*chip_names(), *host_names(), *machine_names()):
        assert f"\n{name} " in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80


def test_list_as_json_has_all_kinds(run: Run) -> None:
    found = json.loads(run("machine", "list", "--json").out)

    assert [one["name"] for one in found["chips"]] == list(chip_names())
    assert [one["name"] for one in found["hosts"]] == list(host_names())
    assert [one["name"] for one in found["machines"]] == list(machine_names())


@pytest.mark.parametrize("name", ["mi300x", "dgx-h100", "multi-building-122k"])
def test_show_has_every_number_with_unit_and_source(run: Run, name: str) -> None:
    found = json.loads(run("machine", "show", name, "--json").out)

    outcome = run("machine", "show", name)

    assert outcome.code == 0
    assert max(len(line) for line in outcome.out.splitlines() if "://" not in line) <= 80
    for figure in found["figures"]:
        assert figure["key"] in outcome.out
        assert figure["text"] in outcome.out
        if figure["url"] is not None:
            assert figure["source"] in " ".join(outcome.out.split())
            assert figure["url"] in outcome.out


def test_check_of_a_preset_finds_nothing_implausible(run: Run) -> None:
    outcome = run("machine", "check", "llama3-24k")

    assert outcome.code == 0
    assert outcome.out == "llama3-24k: nothing to remark\n"


def test_check_ends_with_one_where_a_number_is_implausible(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'kind = "chip"\nextends = "h100-sxm"\n[figures]\nmemory_bandwidth = "26.8 TB/s"'
    )

    outcome = run("machine", "check", path)
    found = json.loads(run("machine", "check", path, "--json").out)

    assert outcome.code == 1
    assert outcome.out.startswith("mine: 1 implausible, 1 without a source")
    assert "bits and bytes exchanged" in " ".join(outcome.out.split())
    assert outcome.err == ""
    assert found["is_plausible"] is False
    assert [remark["severity"] for remark in found["remarks"]] == ["implausible", "unsourced"]


def test_check_of_what_lacks_sources_ends_with_zero(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('kind = "host"\nchip = "t4"\n[figures]\nnum_chips = 4')

    outcome = run("machine", "check", path)

    assert outcome.code == 0
    assert "missing" in outcome.out


@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_name_that_nothing_has_ends_with_one_sentence(run: Run, verb: str) -> None:
    outcome = run("machine", verb, "h100-smx")

    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("error: no chip, host or machine is called 'h100-smx'")
    assert "h100-sxm" in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("show",), ("check",), ("nonsense",), ("list", "x")])
def test_wrong_command_lines_end_with_two(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run("machine", *arguments)

    assert outcome.code == 2
    assert "Traceback" not in outcome.err


def test_the_users_folder_joins_the_presets(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "own.toml").write_text('kind = "chip"\nextends = "t4"\ntitle = "Own"')
    monkeypatch.setenv("FORETRACE_MACHINES", str(tmp_path))

    assert "\nown " in run("machine", "list").out
    assert run("machine", "show", "own").out.startswith("own: Own")


def test_without_a_setting_the_users_folder_is_the_platforms(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chips = tmp_path / "foretrace" / "machines" / "chips"
    chips.mkdir(parents=True)
    (chips / "own.toml").write_text('kind = "chip"\nextends = "t4"\ntitle = "Own"')
    monkeypatch.delenv("FORETRACE_MACHINES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert run("machine", "show", "own").code == 0
