from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.machine import Severity, check, described

HEAD = {
    "chip": 'kind = "chip"\nextends = "h100-sxm"\n',
    "host": 'kind = "host"\nextends = "dgx-h100"\n',
    "machine": 'kind = "machine"\nextends = "llama3-24k"\n',
}


def checked(tmp_path: Path, kind: str, body: str) -> dict[tuple[Severity, str], str]:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD[kind] + body)
    return {(each.severity, each.key): each.text for each in check(described(path)).remarks}


def figure(key: str, value: str) -> str:
    return f'[figures]\n{key} = {{ value = "{value}", assumed = "a test" }}\n'


def peak(key: str, value: str) -> str:
    return f'[peak]\n{key} = {{ value = "{value}", assumed = "a test" }}\n'


@pytest.mark.parametrize(
    ("body", "key", "said"),
    [
        (figure("memory_bandwidth", "26.8 TB/s"), "memory_bandwidth", "bits and bytes exchanged"),
        (figure("memory_bandwidth", "3.35 Tb/s"), "memory_bandwidth", "bits and bytes exchanged"),
        (figure("link_bandwidth", "900 GB/s"), "link_bandwidth", "both directions counted"),
        (figure("memory_bandwidth", "335 TB/s"), "memory_bandwidth", "hardware has 20 GB/s to"),
        (figure("memory", "80 MiB"), "memory", "hardware has 1 GiB to"),
        (figure("boost_clock", "990 MHz"), "boost_clock", "0.5 times the 1980 MHz"),
        (peak("bf16", "1978.9 TFLOP/s"), "peak.bf16", "processors x clock"),
        (peak("fp8", "800 TFLOP/s"), "peak.fp8", "below the one in bf16"),
    ],
)
def test_a_slip_in_a_chip_is_named(tmp_path: Path, body: str, key: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD["chip"] + body)

    remarks = check(described(path)).remarks

    texts = [each.text for each in remarks if each.key == key]
    assert all(each.severity is Severity.IMPLAUSIBLE for each in remarks if each.key == key)
    assert any(said in text for text in texts), texts


def test_the_peak_with_sparsity_is_taken_for_that(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD["chip"] + peak("tf32", "989.4 TFLOP/s"))

    texts = [each.text for each in check(described(path)).remarks if each.key == "peak.tf32"]

    assert any("with sparsity" in text for text in texts)


@pytest.mark.parametrize(
    ("body", "key", "said"),
    [
        (figure("scale_up_bandwidth", "500 GB/s"), "scale_up_bandwidth", "links carry 450"),
        (figure("nic_bandwidth", "600 Gb/s"), "nic_bandwidth", "carries 64"),
    ],
)
def test_a_slip_in_a_host_is_named(tmp_path: Path, body: str, key: str, said: str) -> None:
    found = checked(tmp_path, "host", body)

    assert said in found[Severity.IMPLAUSIBLE, key]


@pytest.mark.parametrize(
    ("tier", "values", "key", "said"),
    [
        ("rack", 'bandwidth = "500 GB/s"', "tier rack.bandwidth", "more bandwidth"),
        ("pod", 'latency = "3 us"', "tier pod.latency", "less latency than tier 'rack'"),
        ("host", "ranks = 12", "tier host.ranks", "no whole part or multiple of a host's 8"),
        ("host", 'latency = "9 ns"', "tier host.latency", "hardware has 50 ns to"),
        ("cluster", 'latency = "1 s"', "tier cluster.latency", "hardware has 50 ns to"),
    ],
)
def test_a_slip_in_a_machine_is_named(
    tmp_path: Path, tier: str, values: str, key: str, said: str
) -> None:
    path = tmp_path / "mine.toml"
    more = "".join(
        f'[[tiers]]\nname = "{name}"\nranks = {ranks}\n'
        for name, ranks in (("rack", 48), ("pod", 3072), ("cluster", 24576))
    )
    path.write_text(f'{HEAD["machine"]}{more}[[tiers]]\nname = "{tier}"\n{values}\n')

    texts = [
        each.text
        for each in check(described(path)).remarks
        if each.key == key and each.severity is Severity.IMPLAUSIBLE
    ]

    assert any(said in text for text in texts), texts


def test_what_is_missing_or_has_no_source_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'kind = "chip"\n[figures]\nmemory = "16 GiB"\nmemory_bandwidth = "300 GB/s"\n'
        '[peak]\nbf16 = "100 TFLOP/s"\n'
    )

    remarks = check(described(path)).remarks

    keys = {
        severity: [each.key for each in remarks if each.severity is severity]
        for severity in Severity
    }
    assert keys == {
        Severity.IMPLAUSIBLE: [],
        Severity.MISSING: [
            "num_processors",
            "link_bandwidth",
            "host_bandwidth",
            "power",
            "peak.fp32",
        ],
        Severity.UNSOURCED: ["memory", "memory_bandwidth", "peak.bf16"],
    }


def test_a_device_known_by_name_is_held_against_its_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'kind = "chip"\ndevice_names = ["Tesla T4"]\n[figures]\nmemory = "16 GiB"\n'
        'memory_bandwidth = "2560 GB/s"\n[peak]\nfp32 = "8.1 TFLOP/s"\n'
    )

    texts = [each.text for each in check(described(path)).remarks if each.key == "memory_bandwidth"]

    assert any("8 times the 320 GB/s of t4" in text for text in texts)


def test_the_users_own_host_and_chip_are_checked_with_the_machine(tmp_path: Path) -> None:
    (tmp_path / "gpu.toml").write_text(HEAD["chip"] + figure("power", "7 kW"))
    (tmp_path / "box.toml").write_text(HEAD["host"] + 'chip = "gpu"\n' + figure("power", "300 kW"))
    path = tmp_path / "mine.toml"
    path.write_text(HEAD["machine"] + 'host = "box"\n')

    subjects = {
        each.subject
        for each in check(described(path)).remarks
        if each.severity is Severity.IMPLAUSIBLE
    }

    assert subjects == {"host box", "chip gpu"}


def test_presets_that_a_machine_names_are_not_remarked_on(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('kind = "host"\nchip = "tpu-v5e"\n[figures]\nnum_chips = 8\n')

    subjects = {each.subject for each in check(described(path)).remarks}

    assert subjects == {"host mine"}
