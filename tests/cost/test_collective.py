from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from foretrace.base import CollectiveKind, MachineError
from foretrace.cost import (
    CollectiveRequests,
    Costs,
    Source,
    calibrated_collectives,
    collective_costs,
    collective_errors,
    collective_named,
    read_constants,
    write_constants,
)
from foretrace.cost.network.domain import COLLECTIVES, CONSTANTS, domain_ns
from foretrace.cost.network.span import GroupSpans, span_of
from foretrace.cost.network.tables import BY_RANKS, IN_SWITCH, who_adds
from foretrace.machine import load_chip, load_machine

START = {one.name: one.start for one in CONSTANTS}


def asked(
    sizes: Sequence[int],
    collective: str = "all_reduce",
    *,
    machine: str = "dgx-h100",
    dtype: str = "bf16",
    group: Sequence[int] = range(8),
) -> Costs:
    zeros = np.zeros(len(sizes), np.int32)
    requests = CollectiveRequests(
        collective=zeros,
        num_bytes=np.array(sizes, np.int64),
        dtype=zeros,
        group=zeros,
        collectives=(collective,),
        dtypes=(dtype,),
        groups=(tuple(group),),
    )
    return collective_costs(requests, load_machine(machine))


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", CollectiveKind.ALL_REDUCE),
        ("_allgather_base", CollectiveKind.ALL_GATHER),
        ("reduce_scatter_tensor", CollectiveKind.REDUCE_SCATTER),
        ("all_to_allv", CollectiveKind.ALL_TO_ALL),
        ("sendrecv", CollectiveKind.SEND_RECV),
        ("recv", CollectiveKind.SEND_RECV),
        ("reduce", CollectiveKind.REDUCE),
        ("barrier", None),
    ],
)
def test_a_library_s_name_tells_the_collective(
    name: str, collective: CollectiveKind | None
) -> None:
    assert collective_named(name) is collective


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_more_bytes_never_take_less_time(collective: CollectiveKind) -> None:
    sizes = np.exp2(np.arange(34.0))
    ranks = np.full(len(sizes), 8.0)

    times_ns = domain_ns(collective, sizes, ranks, chip=load_chip("h100-sxm"), values=START)

    assert (np.diff(times_ns) >= 0).all()
    assert times_ns[0] >= START["start_ns"]


def test_long_messages_come_near_the_share_of_the_links() -> None:
    chip = load_chip("h100-sxm")
    sizes, ranks = np.array([2.0**34]), np.array([8.0])
    values = START | {"own_share": 0.01}

    (time_ns,) = domain_ns(CollectiveKind.ALL_GATHER, sizes, ranks, chip=chip, values=values)

    assert chip.link_bytes_per_ns is not None
    bus_rate = sizes[0] * 7 / 8 / time_ns
    assert bus_rate == pytest.approx(chip.link_bytes_per_ns * values["link_rate"], rel=0.01)


def test_a_pair_of_four_meshed_chips_has_a_third_of_the_links() -> None:
    sizes, ranks = np.array([2.0**34] * 2), np.array([2.0, 4.0])
    chip = load_chip("a100-sxm-80gb")

    meshed = domain_ns(CollectiveKind.SEND_RECV, sizes, ranks, chip=chip, values=START, mesh=4)
    switched = domain_ns(CollectiveKind.SEND_RECV, sizes, ranks, chip=chip, values=START)

    assert meshed / switched == pytest.approx([3, 1], rel=1e-3)


def test_a_chip_without_links_is_named() -> None:
    ones = np.ones(1)

    with pytest.raises(MachineError, match="link_bandwidth"):
        domain_ns(CollectiveKind.ALL_REDUCE, ones, 2 * ones, chip=load_chip("t4"), values=START)


def test_switches_add_floating_point_on_hopper_only() -> None:
    hopper, ampere = load_chip("h100-sxm"), load_chip("a100-sxm-80gb")

    assert who_adds(CollectiveKind.ALL_REDUCE, "fp16", hopper) == IN_SWITCH
    assert who_adds(CollectiveKind.ALL_REDUCE, "int8", hopper) == BY_RANKS
    assert who_adds(CollectiveKind.ALL_GATHER, "fp16", hopper) == BY_RANKS
    assert who_adds(CollectiveKind.ALL_REDUCE, "fp16", ampere) == BY_RANKS


def test_an_all_reduce_in_the_switch_beats_one_by_ranks() -> None:
    (by_switch,) = asked([1 << 29], dtype="fp16").duration_ns.tolist()

    (by_ranks,) = asked([1 << 29], dtype="int8").duration_ns.tolist()

    # Measured bus bandwidths of 8 H100: 445 and 352 GB/s.
    assert by_ranks / by_switch == pytest.approx(445 / 352, rel=0.1)


def test_a_measured_chip_is_fitted_and_its_relative_transferred() -> None:
    own, other = asked([1 << 20]), asked([1 << 20], machine="hgx-h800")

    assert own.source.tolist() == [Source.FITTED]
    assert other.source.tolist() == [Source.TRANSFERRED]
    width = [costs.high_ns[0] / costs.low_ns[0] for costs in (own, other)]
    assert width[1] > width[0] > 1


def test_the_interval_holds_the_duration_or_its_bias() -> None:
    costs = asked([1 << 10, 1 << 16, 1 << 24, 1 << 30])

    assert (costs.low_ns < costs.high_ns).all()
    assert (costs.low_ns < costs.duration_ns * 1.1).all()
    assert (costs.high_ns > costs.duration_ns * 0.9).all()


def test_a_group_of_one_takes_no_time() -> None:
    assert asked([1 << 20], group=[3]).duration_ns.tolist() == [0]


def test_an_unknown_collective_is_named() -> None:
    with pytest.raises(MachineError, match="'barrier'"):
        asked([1], "barrier")


def test_rows_in_any_order_get_their_own_answer() -> None:
    sizes = np.array([1 << 20, 1 << 10, 1 << 30, 1 << 10], np.int64)
    one = np.array([0, 1, 0, 1], np.int32)
    requests = CollectiveRequests(
        collective=one,
        num_bytes=sizes,
        dtype=np.zeros(4, np.int32),
        group=one[::-1].copy(),
        collectives=("all_reduce", "all_gather"),
        dtypes=("bf16",),
        groups=((0, 1), (0, 1, 2, 3)),
    )

    costs = collective_costs(requests, load_machine("dgx-h100"))

    expected = [
        asked([sizes[0]], "all_reduce", group=range(4)),
        asked([sizes[1]], "all_gather", group=range(2)),
        asked([sizes[2]], "all_reduce", group=range(4)),
        asked([sizes[3]], "all_gather", group=range(2)),
    ]
    assert costs.duration_ns.tolist() == [one.duration_ns[0] for one in expected]


TRUE = START | {"start_ns": 9_000.0, "link_rate": 0.7, "ll_hop_ns": 900.0}


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """All-reduces of the formula itself, with known constants and 3% of noise."""
    random = np.random.default_rng(1)
    sizes = np.exp2(np.arange(10.0, 30.0))
    frames = []
    for ranks in (2.0, 4.0, 8.0):
        times_ns = domain_ns(
            CollectiveKind.ALL_REDUCE,
            sizes,
            np.full(len(sizes), ranks),
            chip=load_chip("a100-sxm-80gb"),
            values=TRUE,
        )
        noisy_ns = times_ns * np.exp(random.normal(0, 0.03, len(sizes)))
        frames.append(
            pl.DataFrame(
                {"message_bytes": sizes.astype(np.int64), "time_ns": noisy_ns}
            ).with_columns(
                system=pl.lit("made-up"),
                gpu=pl.lit("A100-SXM4-80GB"),
                num_gpus=pl.lit(int(ranks)),
                num_nodes=pl.lit(1),
                collective=pl.lit("allreduce"),
                dtype=pl.lit("fp16"),
            )
        )
    return pl.concat(frames)


def test_a_fit_finds_the_constants_that_made_a_table(table: pl.DataFrame, tmp_path: Path) -> None:
    folder = tmp_path
    table.write_parquet(folder / "collectives.parquet")

    (found,) = calibrated_collectives(folder, "2026-11-21")

    (fit,) = found.fits
    assert fit.values["link_rate"] == pytest.approx(TRUE["link_rate"], rel=0.1)
    assert fit.values["start_ns"] == pytest.approx(TRUE["start_ns"], rel=0.2)
    errors = {row.errors.region: row.errors for row in found.left_out}
    assert errors["from_64KiB"].n == 42
    assert errors["from_64KiB"].mean_abs_error < 0.08


def test_constants_written_and_read_answer_for_a_table(table: pl.DataFrame, tmp_path: Path) -> None:
    folder = tmp_path
    table.write_parquet(folder / "collectives.parquet")
    (found,) = calibrated_collectives(folder, "2026-11-21")
    write_constants(found, folder / "made.toml")

    rows = collective_errors(folder, [read_constants(folder / "made.toml")])

    errors = {row.errors.region: row.errors for row in rows}
    assert errors["from_64KiB"].mean_abs_error < 0.06
    assert 0.9 < errors["from_64KiB"].low < 1 < errors["from_64KiB"].high < 1.1


def test_cards_on_pcie_add_by_themselves_and_copy_their_part_by_memory() -> None:
    assert who_adds(CollectiveKind.ALL_REDUCE, "fp16", load_chip("rtx-pro-6000")) == BY_RANKS
    rows = np.array([8, 64, 512, 4096, 32768])
    # NCCL on two cards on PCIe 5, rows of 4096 numbers of each (flashinfer-ai/flashinfer, 5023).
    measured_us = [12.47, 31.62, 135.31, 968.34, 7601.61]
    sizes = (rows * 2 * 8192).tolist()

    found = asked(sizes, "allgather", machine="rtx-pro-server", group=(0, 1))

    assert found.duration_ns / 1e3 == pytest.approx(measured_us, rel=0.1)


@pytest.mark.parametrize("name", ["dgx-a100", "llama3-24k", "gb200-nvl72", "perlmutter-gpu"])
def test_groups_that_lie_alike_share_a_span(name: str) -> None:
    machine = load_machine(name)
    spans, rng = GroupSpans(machine), random.Random(name)
    for _ in range(300):
        stride, count = 2 ** rng.randrange(12), rng.randrange(1, 40)
        first = rng.randrange(max(machine.num_ranks - stride * count, 1))
        places = tuple(range(first, machine.num_ranks, stride))[:count]
        if rng.random() < 1 / 4:
            places = tuple(rng.sample(range(machine.num_ranks), min(5, machine.num_ranks)))
        assert spans.spans[spans.number(places)] == span_of(places, machine)
    assert len(spans.spans) == len(set(spans.spans)) < 300
    with pytest.raises(ValueError, match="outside the machine"):
        spans.number((0, machine.num_ranks))
