from __future__ import annotations

import numpy as np
import pytest

from foretrace.cost import Inflation, measured_inflation
from foretrace.cost.inflation import PUBLISHED_MEAN
from foretrace.graph import NodeKind, Timeline
from tests.graphs import GraphBuilder, timeline_of

ALONE_NS, BESIDE_NS = 1_000, 1_500


def one_rank(*, beside_ns: int, num_beside: int = 12, num_alone: int = 5) -> Timeline:
    """Matrix products, first alone, then all of them beside one long all-reduce."""
    build = GraphBuilder()
    starts: list[int] = []
    moment = 0
    for _ in range(num_alone):
        build.add(NodeKind.KERNEL, lane="stream 7", name="ampere_sgemm_128x64", takes_ns=ALONE_NS)
        starts.append(moment)
        moment += ALONE_NS
    transfer_ns = num_beside * beside_ns
    build.collective({0: []}, transfer_ns=transfer_ns)
    starts += [moment] * 3
    for _ in range(num_beside):
        build.add(NodeKind.KERNEL, lane="stream 7", name="ampere_sgemm_128x64", takes_ns=beside_ns)
        starts.append(moment)
        moment += beside_ns
    return timeline_of(build.graph(), starts)


def test_a_class_s_factor_is_its_time_beside_over_alone() -> None:
    found = measured_inflation(one_rank(beside_ns=BESIDE_NS))

    assert found.factor("gemm") == pytest.approx(BESIDE_NS / ALONE_NS)
    assert found.num_kernels_by_class == {"gemm": 12}


def test_kernels_that_run_no_slower_are_not_called_faster() -> None:
    assert measured_inflation(one_rank(beside_ns=900)).factor("gemm") == 1.0


def test_a_class_never_seen_alone_takes_the_published_mean() -> None:
    found = measured_inflation(one_rank(beside_ns=BESIDE_NS, num_alone=0))

    assert found.factor_by_class == {}
    assert found.factor("gemm") == PUBLISHED_MEAN


def test_too_few_kernels_beside_communication_tell_nothing() -> None:
    found = measured_inflation(one_rank(beside_ns=BESIDE_NS, num_beside=9))

    assert found.factor_by_class == {}


def test_other_ranks_communication_does_not_count() -> None:
    build = GraphBuilder()
    build.collective({1: []}, transfer_ns=50_000)
    for _ in range(20):
        build.add(NodeKind.KERNEL, lane="stream 7", name="ampere_sgemm_128x64", takes_ns=ALONE_NS)
    timeline = timeline_of(build.graph(), [0, 0, 0, *range(0, 20 * ALONE_NS, ALONE_NS)])

    assert measured_inflation(timeline).factor_by_class == {}


def test_time_grows_over_the_share_that_communication_runs_beside() -> None:
    inflation = Inflation({"gemm": 1.5})
    alone_ns = np.array([100.0, 100.0, 100.0])

    grown_ns = inflation.inflated_ns(alone_ns, "gemm", np.array([0.0, 0.5, 1.0]))

    assert grown_ns.tolist() == [100, 125, 150]
