"""Collectives take what the host's table says."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import MachineError
from foretrace.cost import NO_TEXT, CollectiveRequests, Costs, KernelRequests, Source
from foretrace.simulate import Cores
from foretrace.validate.live.costs import HostCosts
from tests.validate.live.made import MIB, row

TABLE = (
    row("all_reduce", 2, MIB, 1_000_000),
    row("all_reduce", 2, 4 * MIB, 4_000_000),
    row("all_reduce", 4, MIB, 3_000_000),
    row("send_recv", 2, MIB, 500_000),
)


def costs_of(name: str, num_bytes: int, *, ranks: int = 2) -> Costs:
    zero = np.zeros(1, np.int32)
    return HostCosts(TABLE).collective_costs(
        CollectiveRequests(
            zero,
            np.array([num_bytes], np.int64),
            zero,
            zero,
            collectives=(name,),
            dtypes=("fp32",),
            groups=(tuple(range(ranks)),),
        )
    )


@pytest.mark.parametrize("name", ["all_reduce", "gloo:all_reduce", "allreduce"])
def test_a_measured_size_takes_what_was_measured(name: str) -> None:
    found = costs_of(name, 4 * MIB)

    assert found.duration_ns.tolist() == [4_000_000]
    assert (found.low_ns.tolist(), found.high_ns.tolist()) == ([3_200_000], [4_800_000])
    assert found.source.tolist() == [Source.TABLE]


def test_between_two_sizes_the_line_is_straight_in_logarithms() -> None:
    assert costs_of("all_reduce", 2 * MIB).duration_ns.tolist() == [2_000_000]


def test_beyond_the_largest_size_time_grows_with_bytes() -> None:
    assert costs_of("all_reduce", 8 * MIB).duration_ns.tolist() == [8_000_000]


def test_below_the_smallest_size_nothing_gets_faster() -> None:
    assert costs_of("all_reduce", 64).duration_ns.tolist() == [1_000_000]


def test_groups_of_other_sizes_have_their_own_times() -> None:
    assert costs_of("all_reduce", MIB, ranks=4).duration_ns.tolist() == [3_000_000]
    assert costs_of("send", MIB).duration_ns.tolist() == [500_000]


def test_repeated_measurements_count_by_their_median() -> None:
    repeated = (*TABLE, row("all_reduce", 4, MIB, 5_000_000), row("all_reduce", 4, MIB, 4_000_000))

    curve = HostCosts(repeated).collective_costs(
        CollectiveRequests(
            np.zeros(1, np.int32),
            np.array([MIB], np.int64),
            np.zeros(1, np.int32),
            np.zeros(1, np.int32),
            collectives=("all_reduce",),
            dtypes=("fp32",),
            groups=((0, 1, 2, 3),),
        )
    )

    assert curve.duration_ns.tolist() == [4_000_000]


def test_what_was_not_measured_is_refused_with_what_was() -> None:
    with pytest.raises(MachineError, match=r"all_reduce of 3 ranks.*all_reduce of 2"):
        costs_of("all_reduce", MIB, ranks=3)


def test_four_ranks_on_two_cores_had_slowed_each_other_already() -> None:
    """Each takes half a core: four of them want two, where each goes at 0.8 of its speed."""
    cores = Cores(speed=(1.0, 0.8, 0.5, 0.4), transfers=0.5)
    asked = np.array([MIB], np.int64)
    zero = np.zeros(1, np.int32)
    requests = CollectiveRequests(
        zero, asked, zero, zero, ("all_reduce",), ("fp32",), ((0, 1, 2, 3),)
    )

    alone = HostCosts(TABLE, cores).collective_costs(requests)

    assert alone.duration_ns.tolist() == [2_700_000]  # 0.5 x 1 + 0.5 x 0.8 of what was measured


def test_kernels_are_left_to_the_recording() -> None:
    zero = np.zeros(2, np.int32)
    nothing = np.full(2, NO_TEXT, np.int32)

    found = HostCosts(TABLE).kernel_costs(
        KernelRequests(zero, nothing, nothing, ("aten::mm",), (), ())
    )

    assert found.source.tolist() == [Source.UNKNOWN] * 2


def test_transfers_that_sometimes_wait_for_the_scheduler_count_by_their_mean() -> None:
    slow_at_times = {**row("all_reduce", 2, MIB, 400_000), "time_ns_p90": 4_000_000.0}
    zero = np.zeros(1, np.int32)

    found = HostCosts((slow_at_times,)).collective_costs(
        CollectiveRequests(
            zero,
            np.array([MIB], np.int64),
            zero,
            zero,
            collectives=("all_reduce",),
            dtypes=("fp32",),
            groups=((0, 1),),
        )
    )

    # 30 % of the 10th percentile, 40 % of the median, 30 % of the 90th.
    assert found.duration_ns.tolist() == [round(0.3 * 320_000 + 0.4 * 400_000 + 0.3 * 4_000_000)]
