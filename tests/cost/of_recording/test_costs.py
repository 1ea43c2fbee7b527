"""Costs of a recording: classes of operators, each by its own line, and transfers by group."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foretrace.base import MachineError
from foretrace.cost import (
    CollectiveRequests,
    KernelRequests,
    MeasuredTransfer,
    Source,
    costs_of_recording,
    fitted_transfers,
)


def signature(*shapes: tuple[int, ...]) -> str:
    """Inputs of 32-bit numbers."""
    return json.dumps({"dims": [list(one) for one in shapes], "types": ["float"] * len(shapes)})


def requests(*calls: tuple[str, str]) -> KernelRequests:
    """Calls by operator and signature."""
    operators = tuple(dict.fromkeys(name for name, _ in calls))
    signatures = tuple(dict.fromkeys(text for _, text in calls))
    return KernelRequests(
        operator=np.array([operators.index(name) for name, _ in calls], np.int32),
        signature=np.array([signatures.index(text) for _, text in calls], np.int32),
        kernel=np.full(len(calls), -1, np.int32),
        operators=operators,
        signatures=signatures,
        kernels=(),
    )


def product(rows: int) -> tuple[str, str]:
    """A product of some rows with a matrix of 256 x 512."""
    return "aten::mm", signature((rows, 256), (256, 512))


def test_a_product_of_a_size_never_seen_takes_its_flops_at_the_recorded_rate() -> None:
    rows = (64, 128, 256, 512)
    calls = requests(*(product(one) for one in rows))
    measured_ns = np.array([2_000 + 2 * one * 256 * 512 // 50 for one in rows], np.int64)
    recorded = costs_of_recording(calls, measured_ns)

    found = recorded.kernel_costs(requests(product(1024)))

    assert found.source.tolist() == [Source.FITTED]
    assert found.duration_ns[0] == pytest.approx(2_000 + 2 * 1024 * 256 * 512 / 50, rel=0.02)


def test_the_median_of_a_shapes_calls_counts() -> None:
    calls = requests(*[product(64)] * 5)
    recorded = costs_of_recording(calls, np.array([100, 100, 100, 100, 9_000], np.int64))

    found = recorded.kernel_costs(requests(product(64)))

    assert found.duration_ns.tolist() == [100]


def test_a_class_that_was_not_recorded_is_unknown() -> None:
    recorded = costs_of_recording(requests(product(64)), np.array([1_000], np.int64))

    found = recorded.kernel_costs(requests(("aten::add", signature((64, 64), (64, 64)))))

    assert found.source.tolist() == [Source.UNKNOWN]


def transfer(group: str, num_bytes: int, ns: float, *, ranks: int = 2) -> MeasuredTransfer:
    """A recorded all-reduce."""
    return MeasuredTransfer(group, "allreduce", ranks, num_bytes, ns)


def test_groups_have_lines_of_their_own() -> None:
    found = fitted_transfers(
        [
            transfer("tp", 1_000_000, 20_000),
            transfer("dp", 1_000_000, 200_000),
            transfer("dp", 4, 10_000),
        ]
    )

    near = found.costs_ns("tp", "allreduce", num_ranks=2, num_bytes=2_000_000)[0]
    far = found.costs_ns("dp", "allreduce", num_ranks=2, num_bytes=2_000_000)[0]

    assert near == pytest.approx(30_000, rel=0.01)  # starts as the shortest transfer: 10 us
    assert far == pytest.approx(390_000, rel=0.02)


def test_more_ranks_carry_a_rings_share_of_the_bytes() -> None:
    found = fitted_transfers([transfer("dp", 1_000_000, 1_010_000), transfer("dp", 4, 10_000)])

    ns = found.costs_ns("dp", "allreduce", num_ranks=4, num_bytes=1_000_000)[0]

    # A ring of two carries as many bytes as the message has, one of four half as many more.
    assert ns == pytest.approx(10_000 + 1.5 * 1_000_000, rel=0.02)


def test_a_group_without_a_line_is_asked_for_by_its_kind_then_by_all() -> None:
    found = fitted_transfers([transfer("dp", 1_000_000, 1_010_000), transfer("dp", 4, 10_000)])

    as_known = found.costs_ns("dp", "allreduce", num_ranks=2, num_bytes=500_000)
    assert found.costs_ns("tp", "all_reduce", num_ranks=2, num_bytes=500_000) == as_known
    assert found.costs_ns("pp", "send", num_ranks=2, num_bytes=500_000)[0] == pytest.approx(
        as_known[0], rel=0.01
    )


def test_transfers_without_any_recorded_one_say_what_to_give() -> None:
    with pytest.raises(MachineError, match="foretrace measure"):
        fitted_transfers([transfer("dp", 1_000_000, 0.0), transfer("dp", 4, 5.0, ranks=1)])


def test_an_unknown_collective_is_named() -> None:
    found = fitted_transfers([transfer("dp", 1_000_000, 1_010_000)])

    with pytest.raises(MachineError, match="'gossip' has no cost"):
        found.costs_ns("dp", "gossip", num_ranks=2, num_bytes=10)


def test_collectives_are_costed_as_every_cost_model_costs_them() -> None:
    transfers = fitted_transfers([transfer("dp", 1_000_000, 1_010_000), transfer("dp", 4, 10_000)])
    recorded = costs_of_recording(
        requests(product(64)), np.array([1_000], np.int64), transfers=transfers
    )

    found = recorded.collective_costs(
        CollectiveRequests(
            collective=np.zeros(2, np.int32),
            num_bytes=np.array([1_000_000, 1_000_000], np.int64),
            dtype=np.zeros(2, np.int32),
            group=np.array([0, 1], np.int32),
            collectives=("all_reduce",),
            dtypes=("float",),
            groups=((0, 1), (0,)),
        )
    )

    assert found.duration_ns[0] == pytest.approx(1_010_000, rel=0.01)
    assert found.duration_ns[1] == 0


def test_transfers_of_nearly_one_size_grow_in_proportion() -> None:
    """Three buckets of 4 MB: what they differ in is noise, not a rate."""
    sizes = {4_196_352: 6_900_000, 4_200_448: 6_800_000, 4_329_472: 6_400_000}
    found = fitted_transfers([transfer("dp", size, ns) for size, ns in sizes.items()])

    ones = [
        found.costs_ns("dp", "allreduce", num_ranks=2, num_bytes=size)[0]
        for size in (4_200_000, 8_400_000)
    ]

    assert ones[1] / ones[0] == pytest.approx(2, rel=1e-3)
