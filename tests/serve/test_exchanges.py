"""Sums over GPUs by an engine's own kernel, and what they gather of the last layer."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import CollectiveKind, Float64s
from foretrace.machine import load_machine
from foretrace.serve import Engine, machine_of
from foretrace.serve.exchanges import exchange_ns, sums_ns
from foretrace.serve.of_profiles import logits_ns
from tests.models import transformer

KIB, MIB = 1 << 10, 1 << 20


def sums_us(
    sizes: list[int], ranks: int, machine: str, *, is_own: bool = True, in_graph: bool = True
) -> Float64s:
    inside = np.full(len(sizes), in_graph)
    found = sums_ns(np.array(sizes), ranks, load_machine(machine), is_own=is_own, in_graph=inside)
    return found / 1e3


def nccl_us(sizes: list[int], ranks: int, machine: str) -> Float64s:
    kind = CollectiveKind.ALL_REDUCE
    return exchange_ns(kind, np.array(sizes), ranks, load_machine(machine)) / 1e3


@pytest.mark.parametrize(
    ("machine", "ranks", "measured_us"),
    [  # of 4 KiB, 64 KiB, 1 MiB, 4 MiB (aiconfigurator, custom_allreduce_perf of vLLM)
        ("dgx-a100", 2, [5.0, 5.5, 10.7, 25.2]),
        ("dgx-a100", 4, [5.3, 6.6, 18.3, 41.5]),
        ("dgx-h100", 2, [4.3, 4.5, 8.3, 20.2]),
        ("dgx-h100", 8, [4.7, 6.4, 14.8, 30.6]),
        ("dgx-h200", 4, [4.6, 5.4, 12.0, 29.7]),
    ],
)
def test_sums_take_what_the_engines_kernel_took(
    machine: str, ranks: int, measured_us: list[float]
) -> None:
    sizes = [4 * KIB, 64 * KIB, MIB, 4 * MIB]

    assert sums_us(sizes, ranks, machine) == pytest.approx(measured_us, rel=0.2)
    assert (nccl_us(sizes[:3], ranks, machine) > 1.3 * np.array(measured_us[:3])).all()


def test_two_cards_on_pcie_sum_as_fast_as_their_links() -> None:
    (few, many) = sums_us([8 * KIB, 4 * MIB], 2, "rtx-pro-server")

    assert few < 10
    assert 4 * MIB / (many - few) / 1e3 == pytest.approx(0.85 * 64, rel=0.05)  # PCIe 5 x16
    assert many < nccl_us([4 * MIB], 2, "rtx-pro-server")[0]


@pytest.mark.parametrize(
    ("size", "ranks", "machine", "is_own"),
    [
        (64 * KIB, 2, "dgx-h100", False),
        (64 * KIB, 4, "rtx-pro-server", True),  # no links but PCIe
        (64 * KIB, 4, "mi300x-platform", True),
        (64 * MIB, 2, "dgx-h100", True),
    ],
)
def test_nccl_sums_where_the_kernel_may_not(
    size: int, ranks: int, machine: str, is_own: bool
) -> None:
    found = sums_us([size], ranks, machine, is_own=is_own)

    assert found == pytest.approx(nccl_us([size], ranks, machine))


def test_outside_of_graphs_sums_are_copied_first() -> None:
    sizes = [4 * KIB, 4 * MIB]

    more = sums_us(sizes, 4, "dgx-h100", in_graph=False) - sums_us(sizes, 4, "dgx-h100")

    assert more == pytest.approx([5.0, 5.0 + 2 * 4 * MIB / 3350e3], rel=0.01)


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-h100", "dgx-b200"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_sums_never_take_longer_than_nccl_and_more_bytes_take_longer(
    machine: str, ranks: int
) -> None:
    sizes = [KIB << shift for shift in range(18)]

    found = sums_us(sizes, ranks, machine)

    assert (found <= nccl_us(sizes, ranks, machine) * (1 + 1e-9)).all()
    assert (np.diff(found) >= 0).all()


def test_gpus_gather_the_last_layer_of_every_sequence() -> None:
    model = transformer("qwen3-32b")
    machine, counts = load_machine("rtx-pro-server"), np.array([1, 128])

    alone = logits_ns(model, Engine(), None, counts)
    both = logits_ns(model, Engine(tensor_parallel_size=2), machine, counts)

    assert not alone.any()
    sent = 128 * model.vocabulary * 2 / 2  # what a GPU gets of the other
    assert 30 < sent / both[1] < 64  # bytes a ns, of PCIe's 64


@pytest.mark.parametrize(
    ("kind", "parts", "measured_us"),
    [  # of 10 KiB to 20 MiB a rank (casys-kaist/LLMServingSim e08dc388, RTXPRO6000/hardware.yaml)
        (CollectiveKind.ALL_REDUCE, 1, [16.2, 17.5, 22.8, 42.6, 149, 335, 567, 1309]),
        (CollectiveKind.ALL_GATHER, 2, [14.5, 16.4, 20.2, 46.1, 155, 353, 589, 1362]),
        (CollectiveKind.REDUCE_SCATTER, 2, [13.5, 15.7, 21.0, 48.6, 162, 379, 640, 1406]),
    ],
)
def test_two_cards_of_a_host_take_what_nccl_took_there(
    kind: CollectiveKind, parts: int, measured_us: list[float]
) -> None:
    each = [10_240, 40_960, 139_264, 557_056, 2_228_224, 5_242_880, 8_912_896, 20_971_520]

    found = exchange_ns(kind, parts * np.array(each), 2, load_machine("rtx-pro-pair")) / 1e3

    assert np.abs(np.log(found / measured_us)).mean() < 0.2
    assert found[-1] == pytest.approx(measured_us[-1], rel=0.1)


def test_as_many_gpus_as_serve_say_which_host_it_is() -> None:
    hosts = [machine_of(["RTX PRO 6000"], num_gpus=count) for count in (1, 2, 4, 16)]

    assert [host.name for host in hosts if host is not None] == [
        *("rtx-pro-pair", "rtx-pro-pair", "rtx-pro-server", "rtx-pro-server")
    ]
    assert machine_of(["nobody's GPU"], num_gpus=2) is None
