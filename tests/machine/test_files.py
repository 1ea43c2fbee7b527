from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretrace.base import MachineError
from foretrace.machine import (
    chip_named,
    chip_names,
    described,
    load_chip,
    load_host,
    load_machine,
)

CHIP = """
kind = "chip"
title = "Own"
device_names = ["Own GPU"]

[sources]
sheet = { title = "Own data sheet", url = "https://example.com/sheet" }

[figures]
memory = { value = "80 GiB", source = "sheet" }
memory_bandwidth = "3 TB/s"

[peak]
fp32 = { value = "50 TFLOP/s", assumed = "counted by hand" }
"""
HOST = """
kind = "host"
chip = "own"

[figures]
num_chips = 4
scale_up_bandwidth = "100 GB/s"
num_nics = 2
nic_bandwidth = "200 Gb/s"
"""
MACHINE = """
kind = "machine"
host = "box"

[[tiers]]
name = "host"
kind = "scale-up"
ranks = 4

[[tiers]]
name = "hall"
kind = "building"
ranks = 400
oversubscription = "5:2"
latency = "4 us"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A chip "own", a host "box" with it, and a machine "hall" of those."""
    for name, text in (("own", CHIP), ("box", HOST), ("hall", MACHINE)):
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def test_a_file_of_ones_own_is_read(folder: Path) -> None:
    chip = load_chip(folder / "own.toml")

    assert chip.title == "Own"
    assert chip.memory_bytes == 80 * 2**30
    assert chip.memory_bytes_per_ns == pytest.approx(3000.0)
    assert chip.num_processors is None
    said = [(one.source and one.source.title, one.assumed) for one in chip.figures]
    assert said == [("Own data sheet", ""), (None, ""), (None, "counted by hand")]


def test_a_machine_finds_host_and_chip_beside_it(folder: Path) -> None:
    machine = load_machine(folder / "hall.toml")

    assert machine.chip.name == "own"
    assert [tier.bytes_per_ns for tier in machine.tiers] == [100.0, 12.5]
    assert machine.tiers[1].shared_bytes_per_ns == pytest.approx(5.0)
    assert machine.tiers[1].latency_ns == pytest.approx(4000.0)


def test_an_extension_changes_what_it_says_and_keeps_the_rest(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "slow",
        'kind = "chip"\nextends = "h100-sxm"\n'
        '[figures]\npower = "350 W"\n[peak]\nbf16 = "1 PFLOP/s"',
    )

    chip = load_chip(path)
    base = load_chip("h100-sxm")

    assert chip.power_watts == pytest.approx(350.0)
    assert chip.peak_by_dtype == {**base.peak_by_dtype, "bf16": pytest.approx(1e6)}
    assert chip.memory_bytes == base.memory_bytes
    assert chip.parent == "h100-sxm"


def test_an_extension_changes_a_tier_by_name_and_adds_others(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "grown",
        'kind = "machine"\nextends = "llama3-24k"\n'
        '[[tiers]]\nname = "cluster"\noversubscription = "3:1"\n'
        '[[tiers]]\nname = "two sites"\nkind = "region"\nranks = 49152\n',
    )

    tiers = load_machine(path).tiers

    assert [tier.name for tier in tiers] == ["host", "rack", "pod", "cluster", "two sites"]
    assert [tier.oversubscription for tier in tiers] == [1, 1, 1, 3, 1]
    assert tiers[3].num_ranks == 24_576


def test_the_users_file_hides_the_preset_of_its_name_and_may_extend_it(tmp_path: Path) -> None:
    chips = tmp_path / "chips"
    chips.mkdir()
    written(chips, "h100-sxm", 'kind = "chip"\nextends = "h100-sxm"\n[figures]\npower = "600 W"')

    assert load_chip("h100-sxm", [tmp_path]).power_watts == pytest.approx(600.0)
    assert load_chip("h100-sxm").power_watts == pytest.approx(700.0)
    assert load_host("dgx-h100", [tmp_path]).chip.power_watts == pytest.approx(600.0)


def test_the_users_chips_are_known_by_name_and_by_device(tmp_path: Path) -> None:
    chips = tmp_path / "chips"
    chips.mkdir()
    written(chips, "own", CHIP)

    found = chip_named("own gpu", folders=[tmp_path])

    assert "own" in chip_names([tmp_path])
    assert found is not None
    assert found.name == "own"
    assert chip_named("own gpu") is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("memory_bandwidth", "memory_bandwith", "did you mean 'memory_bandwidth'"),
        ("[figures]", "[numbers]", "has the key 'numbers'.*allowed are kind, title"),
        ('"3 TB/s"', '"3 TBps"', "'memory_bandwidth' of .*did you mean 'TB/s'"),
        ('source = "sheet"', 'source = "sheat"', "source 'sheat'.*it has sheet"),
        ('source = "sheet"', 'origin = "sheet"', "has the key 'origin'"),
        ('memory_bandwidth = "3 TB/s"', "", "lacks memory_bandwidth"),
        ('fp32 = { value = "50 TFLOP/s", assumed = "counted by hand" }', "", r"no \[peak\]"),
        ('value = "50 TFLOP/s", ', "", "'fp32' of .* has no value"),
        ('["Own GPU"]', '"Own GPU"', "where a list, each a text, is expected"),
        ('"Own"', "7", "'title' of .* where a text is expected"),
        ('kind = "chip"', 'kind = "host"', "has kind 'host' where a chip is expected"),
        ('kind = "chip"', 'kind = "chip', "is not a TOML file"),
        ('kind = "chip"', 'kind = "chip"\nextends = "h1000"', "no chip is called 'h1000'"),
        ('kind = "chip"', 'kind = "chip"\nextends = 5', "'extends' of"),
        ('title = "Own data sheet"', 'titel = "Own data sheet"', "did you mean 'title'"),
    ],
)
def test_a_wrong_chip_is_refused_with_a_sentence(
    folder: Path, old: str, new: str, said: str
) -> None:
    assert old in CHIP
    path = written(folder, "own", CHIP.replace(old, new, 1))

    with pytest.raises(MachineError, match="(?s)" + said) as refused:
        load_chip(path)

    assert "own.toml" in str(refused.value) or "h1000" in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ranks = 400", "ranks = 402", "no multiple of the 4 of 'host'"),
        ("ranks = 400", "ranks = 4", "no multiple of the 4 of 'host'"),
        ('"5:2"', '"2:5"', "less than 1: write"),
        ('"building"', '"hangar"', "one of the kinds scale-up, rack, pod, building, region"),
        ('name = "hall"', "", "give it a name"),
        ('latency = "4 us"', 'delay = "4 us"', "has the key 'delay'"),
        ('host = "box"', "", "names no host"),
        ('host = "box"', 'host = "bocks"', "no host is called 'bocks'.*box|dgx"),
        ("[[tiers]]", "[[levels]]", "has the key 'levels'"),
    ],
)
def test_a_wrong_machine_is_refused_with_a_sentence(
    folder: Path, old: str, new: str, said: str
) -> None:
    assert old in MACHINE
    path = written(folder, "hall", MACHINE.replace(old, new, 1))

    with pytest.raises(MachineError, match="(?s)" + said):
        load_machine(path)


def test_a_tier_needs_a_bandwidth_from_somewhere(folder: Path) -> None:
    written(folder, "box", HOST.replace("num_nics = 2", ""))

    with pytest.raises(MachineError, match="no num_nics and nic_bandwidth to take it from"):
        load_machine(folder / "hall.toml")


def test_a_machine_without_tiers_is_refused(folder: Path) -> None:
    path = written(folder, "hall", MACHINE.split("[[tiers]]", maxsplit=1)[0])

    with pytest.raises(MachineError, match="has no \\[\\[tiers\\]\\]"):
        load_machine(path)


def test_files_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "one", 'kind = "chip"\nextends = "two"')
    path = written(tmp_path, "two", 'kind = "chip"\nextends = "one"')

    with pytest.raises(MachineError, match="extends itself \\(two -> one -> two\\)"):
        load_chip(path, [tmp_path])


def test_a_source_of_what_is_extended_keeps_its_meaning(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "mine",
        'kind = "chip"\nextends = "h100-sxm"\n'
        '[sources]\nh100-datasheet = { title = "Another", url = "https://example.com" }',
    )

    with pytest.raises(MachineError, match="gives the source 'h100-datasheet' another meaning"):
        load_chip(path)


def test_a_host_without_links_is_no_machine(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.mkdir()
    written(hosts, "plain", 'kind = "host"\nchip = "t4"\n[figures]\nnum_chips = 4')

    with pytest.raises(MachineError, match="has no scale_up_bandwidth"):
        load_machine("plain", [tmp_path])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('title = "nothing"', "has no kind: begin it with"),
        ('kind = "gpu"', "has the kind 'gpu'"),
        ("kind = ", "is not a TOML file"),
    ],
)
def test_a_file_that_says_not_what_it_describes_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    path = written(tmp_path, "what", text)

    with pytest.raises(MachineError, match=said):
        described(path)


def test_a_name_that_nothing_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(MachineError, match=r"did you mean .*h100-sxm"):
        described("h100-smx")
    with pytest.raises(MachineError, match="machine list"):
        described("zzz")


_REGION = 'ranks = 400\noversubscription = "5:2"\n'


def _with(tmp_path: Path, added: str, after: str = _REGION) -> Path:
    for name, text in (("own", CHIP), ("box", HOST), ("ours", MACHINE)):
        (tmp_path / f"{name}.toml").write_text(text.replace(after, after + added), "utf-8")
    return tmp_path / "ours.toml"


def test_a_tier_states_jitter_with_its_law_and_a_price_of_links(tmp_path: Path) -> None:
    added = 'jitter = "3 us"\njitter_law = "gamma:0.5"\nlink_price = "150 /Gb/s/month"\n'

    found = load_machine(_with(tmp_path, added))

    hall = found.tiers[-1]
    assert (hall.jitter_ns, hall.law_text) == (3_000.0, "gamma:0.5")
    # 2 cards of 200 Gb/s for 4 chips, two fifths of it beyond the host: 40 Gb/s of each chip.
    assert found.links_per_chip_hour == pytest.approx(40 * 150 * 12 / (365.25 * 24))
    assert load_machine("llama3-24k").links_per_chip_hour is None


@pytest.mark.parametrize(
    ("added", "says"),
    [
        ('jitter = "3 us"\n', "has jitter_law None and a jitter"),
        ('jitter_law = "exponential"\n', "has jitter_law 'exponential' and no jitter"),
        ('jitter = "3 us"\njitter_law = "gamma"\n', 'jitter_law = "exponential", or "gamma:0.5"'),
        ('jitter = "3 us"\njitter_law = "normal:0.1"\n', "has jitter_law 'normal:0.1'"),
        ('jitter = "3 us"\njitter_law = "lognormal:900"\n', "over its mean, up to 10"),
        ('jitter = "3 GB"\njitter_law = "exponential"\n', "has the unit 'GB'"),
        ('link_price = "150 EUR"\n', "price has one of /Gb/s/month, /Gb/s/year"),
        ("link_price = 150\n", 'as in "150 /Gb/s/month"'),
    ],
)
def test_a_law_without_its_mean_or_a_price_without_its_unit_gets_a_sentence(
    tmp_path: Path, added: str, says: str
) -> None:
    with pytest.raises(MachineError, match=re.escape(says)):
        load_machine(_with(tmp_path, added))


def test_the_innermost_tier_has_no_jitter(tmp_path: Path) -> None:
    added = 'jitter = "1 us"\njitter_law = "exponential"\n'

    with pytest.raises(MachineError, match=r"'host' of .* is the innermost and has jitter"):
        load_machine(_with(tmp_path, added, after="ranks = 4\n"))
