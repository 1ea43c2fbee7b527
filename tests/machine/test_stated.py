from __future__ import annotations

import pytest

from foretrace.base import MachineError
from foretrace.machine import Machine, figure_text, load_machine, with_figures


@pytest.fixture(scope="module")
def superpod() -> Machine:
    """Tiers `host` (scale-up), `scalable unit` (pod) and `superpod` (building), no bandwidths."""
    return load_machine("superpod-h100")


def bandwidths(machine: Machine) -> list[float]:
    return [tier.bytes_per_ns for tier in machine.tiers]


@pytest.mark.parametrize(
    "name", ["scalable unit", "scalable-unit", "scalable_unit", "Scalable Unit", "pod"]
)
def test_a_tier_is_stated_by_its_name_or_its_kind(superpod: Machine, name: str) -> None:
    faster = with_figures(superpod, {f"network.{name}.bandwidth": "800Gb/s"})

    assert bandwidths(faster) == [450.0, 100.0, 50.0]
    assert figure_text(superpod, f"network.{name}.bandwidth") == "400 Gb/s"
    assert figure_text(faster, f"network.{name}.bandwidth") == "800Gb/s"


def test_every_figure_of_a_tier_can_be_stated(superpod: Machine) -> None:
    stated = {
        "network.pod.latency": "1.5 us",
        "network.pod.oversubscription": "7:1",
        "network.pod.rails": "4",
    }

    tier = with_figures(superpod, stated).tiers[1]

    assert (tier.latency_ns, tier.oversubscription, tier.num_rails) == (1_500.0, 7.0, 4)


def test_tiers_without_a_bandwidth_of_their_own_follow_the_host(superpod: Machine) -> None:
    stated = {"network.pod.bandwidth": "100 Gb/s", "host.nic_bandwidth": "800 Gb/s"}

    assert bandwidths(with_figures(superpod, stated)) == [450.0, 12.5, 100.0]
    assert bandwidths(with_figures(superpod, {"host.num_nics": 16})) == [450.0, 100.0, 100.0]


def test_the_scale_up_tier_follows_the_chips_links(superpod: Machine) -> None:
    faster = with_figures(superpod, {"chip.link_bandwidth": "900 GB/s"})

    assert bandwidths(faster) == [900.0, 50.0, 50.0]
    assert faster.host.scale_up_bytes_per_ns == 900.0


def test_a_hosts_own_scale_up_bandwidth_stays_when_the_chips_links_change(
    superpod: Machine,
) -> None:
    stated = {"host.scale_up_bandwidth": "600 GB/s", "chip.link_bandwidth": "900 GB/s"}

    assert bandwidths(with_figures(superpod, stated))[0] == 600.0


def test_figures_of_the_chip_keep_everything_else(superpod: Machine) -> None:
    changed = with_figures(
        superpod, {"chip.peak.bf16": "1500 TFLOP/s", "chip.memory_bandwidth": "4.8 TB/s"}
    )

    assert changed.chip.peak_by_dtype["bf16"] == 1_500_000
    assert changed.chip.memory_bytes_per_ns == 4_800
    assert changed.chip.peak_by_dtype["fp32"] == superpod.chip.peak_by_dtype["fp32"]
    assert changed.chip.name == superpod.chip.name
    assert superpod.chip.peak_by_dtype["bf16"] != 1_500_000


def test_a_stated_figure_has_no_source(superpod: Machine) -> None:
    changed = with_figures(superpod, {"chip.power": "500 W"})
    (figure,) = [one for one in changed.chip.figures if one.key == "power"]

    assert (figure.source, figure.assumed) == (None, "")
    assert figure.note == "stated"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("network.pd.bandwidth", "1 Gb/s", "'scalable unit' (pod)"),
        ("network.bandwidth", "1 Gb/s", "a key is network.superpod.bandwidth"),
        ("network.pod.bandwith", "1 Gb/s", "did you mean 'bandwidth'?"),
        ("network.pod.bandwidth", "400 Gbps", "did you mean 'Gb/s'?"),
        ("network.pod.bandwidth", 5, "has no unit"),
        ("network.pod.bandwidth", True, "where a number with its unit is expected"),
        ("network.pod.oversubscription", "1:7", "less than 1"),
        ("network.pod.ranks", 64, "needs a file of its own"),
        ("host.num_chips", 4, "needs a file of its own"),
        ("host.nics", 4, "there are scale_up_bandwidth"),
        ("chip.peak.bf17", "1 TFLOP/s", "did you mean 'bf16'?"),
        ("chip.memry", "1 GB", "did you mean 'memory'?"),
        ("netwrk.pod.bandwidth", "1 Gb/s", "did you mean 'network'?"),
    ],
)
def test_what_a_machine_does_not_have_is_refused(
    superpod: Machine, key: str, value: object, words: str
) -> None:
    with pytest.raises(MachineError) as caught:
        with_figures(superpod, {key: value})

    assert words in str(caught.value)
