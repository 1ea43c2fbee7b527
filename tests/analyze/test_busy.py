from __future__ import annotations

import pytest

from foretrace.analyze import busy_fraction
from foretrace.base import TraceError
from foretrace.graph import NodeKind, Timeline
from tests.graphs import GraphBuilder, timeline_of


def _two_ranks() -> Timeline:
    """Rank 0: kernels 5..15 and 10..25, collective 30..42; rank 1: the collective alone."""
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10)
    build.add(NodeKind.KERNEL, lane="stream 8", takes_ns=15)
    build.collective({0: (), 1: ()}, transfer_ns=2)
    return timeline_of(build.graph(), [5, 10, 30, 40, 40, 40, 40])


def test_fraction_of_each_bin_in_which_any_stream_executes() -> None:
    busy = busy_fraction(_two_ranks(), bin_ns=10)

    assert busy.ranks == (0, 1)
    assert busy.of_rank(0).tolist() == [0.5, 1.0, 0.5, 1.0, 0.2]
    assert busy.of_rank(1).tolist() == [0.0, 0.0, 0.0, 0.0, 0.2]


def test_frame_has_one_row_per_rank_and_bin() -> None:
    frame = busy_fraction(_two_ranks(), bin_ns=10).to_polars()

    assert frame["rank"].to_list() == [0] * 5 + [1] * 5
    assert frame["begin_ns"].to_list() == [0, 10, 20, 30, 40] * 2
    assert sum(frame["busy"].to_list()) == pytest.approx(3.4)


def test_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no rank 7: ranks are \[0, 1\]"):
        busy_fraction(_two_ranks()).of_rank(7)


def test_timeline_without_work_has_no_bins() -> None:
    build = GraphBuilder()
    build.add(NodeKind.STEP_BEGIN, step="a")

    busy = busy_fraction(timeline_of(build.graph(), [0]))

    assert busy.num_bins == 0


def test_a_timestamp_far_from_the_others_does_not_take_all_memory() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10)
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10)

    with pytest.raises(TraceError, match="a timestamp that is far from the others"):
        busy_fraction(timeline_of(build.graph(), [0, 1_700_000_000 * 10**9]))
