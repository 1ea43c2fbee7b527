"""Jobs put together by hand from pieces of jobs bound by their kernels: their times are sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.base import CollectiveKind, ScenarioError
from foretrace.graph import NodeKind, Part, Phase, verify
from foretrace.whatif import arranged, program_of, same_job
from foretrace.whatif.recorded.program import MadeExchange, MadeWait, NewJob, Placed
from foretrace.workload import Group
from tests.truth import JobConfig
from tests.whatif.arrange.jobs import BACKWARD_NS, FORWARD_NS, GAPS_NS, plain, program, total_ns

_LAYER_NS = FORWARD_NS + BACKWARD_NS
_CPU = Path(__file__).parents[3] / "examples" / "cpu-llama-tp2-dp2" / "traces"


def _edited(job: NewJob, edit: Callable[[Placed], Iterable[Placed]]) -> NewJob:
    """The job with something else for everything placed."""
    ranks = (
        replace(rank, placed=tuple(new for each in rank.placed for new in edit(each)))
        for rank in job.ranks
    )
    return replace(job, ranks=tuple(ranks))


def test_layer_left_out_takes_its_time_along() -> None:
    recorded = program(plain())
    base = total_ns(recorded.graph)

    job = _edited(same_job(recorded), lambda each: () if each.layer == 1 else (each,))
    found = arranged(recorded, job).graph

    verify(found)
    assert total_ns(found) == pytest.approx(base - 2 * _LAYER_NS, abs=GAPS_NS)


def test_layer_done_twice_takes_its_time_twice() -> None:
    recorded = program(plain())
    base = total_ns(recorded.graph)

    def twice(each: Placed) -> tuple[Placed, ...]:
        return (each, replace(each, layer=4)) if each.layer == 1 else (each,)

    found = arranged(recorded, _edited(same_job(recorded), twice)).graph

    verify(found)
    assert total_ns(found) == pytest.approx(base + 2 * _LAYER_NS, abs=GAPS_NS)
    assert sorted(np.unique(found.layer[found.part == Part.LAYER]).tolist()) == [0, 1, 2, 3, 4]


def test_scale_makes_device_work_longer() -> None:
    recorded = program(plain())
    base = total_ns(recorded.graph)

    def scaled(each: Placed) -> tuple[Placed, ...]:
        return (replace(each, scale=1.5 if each.layer == 1 else 1.0),)

    found = arranged(recorded, _edited(same_job(recorded), scaled))

    assert total_ns(found.graph) == pytest.approx(base + _LAYER_NS, abs=GAPS_NS)
    assert set(found.scale[found.graph.layer == 1].tolist()) == {1.5}


def test_scaled_bytes_stand_with_the_collective_and_leave_its_time() -> None:
    recorded = program(JobConfig(dp=2, num_steps=1, num_layers=2))
    graph = recorded.graph

    def scaled(each: Placed) -> tuple[Placed, ...]:
        return (replace(each, scale_bytes=2.0 if each.part is Part.BUCKET else 1.0),)

    found = arranged(recorded, _edited(same_job(recorded), scaled))

    is_bucket = [
        each.num_bytes != graph.collectives[own].num_bytes
        for each, own in zip(found.graph.collectives, found.source_collective, strict=True)
    ]
    grown = found.graph.collectives[is_bucket.index(True)]
    own = int(found.source_collective[is_bucket.index(True)])
    assert grown.num_bytes == 2 * graph.collectives[own].num_bytes
    finishes = found.graph.kind == NodeKind.FINISH
    assert found.graph.measured_ns[finishes].sum() == (
        graph.measured_ns[graph.kind == NodeKind.FINISH].sum()
    )


def test_ranks_that_do_not_meet_are_named_with_the_position() -> None:
    recorded = program(JobConfig(tp=2, num_steps=1, num_layers=2))
    job = same_job(recorded)
    one = replace(
        job.ranks[0], placed=tuple(each for each in job.ranks[0].placed if each.layer != 1)
    )

    with pytest.raises(ScenarioError, match=r"tp group \(0, 1\): rank 0 has .* at position 4"):
        arranged(recorded, replace(job, ranks=(one, job.ranks[1])))


def test_rank_with_threads_that_were_not_recorded_is_refused() -> None:
    recorded = program(plain())
    job = same_job(recorded)

    with pytest.raises(ScenarioError, match="threads of rank 7, which was not recorded"):
        arranged(recorded, replace(job, ranks=(replace(job.ranks[0], source_rank=7),)))


def _with_reduction(each: Placed, *, is_awaited: bool) -> tuple[Placed, ...]:
    """A reduction behind the first layer's forward pass."""
    if each.layer != 0 or each.phase is not Phase.FORWARD:
        return (each,)
    made = MadeExchange(
        collective=CollectiveKind.ALL_REDUCE,
        group=Group.DATA,
        num_bytes=1_000,
        dtype="bf16",
        host_ns=0,
        is_awaited=is_awaited,
    )
    return (each, replace(each, piece=made, part=Part.BUCKET))


@pytest.mark.parametrize(("is_awaited", "exposed_ns"), [(True, 5_000_000), (False, 0)])
def test_made_exchange_is_exposed_where_it_is_awaited(is_awaited: bool, exposed_ns: int) -> None:
    recorded = program(plain(num_microbatches=1))
    base = total_ns(recorded.graph)
    job = _edited(same_job(recorded), lambda each: _with_reduction(each, is_awaited=is_awaited))

    found = arranged(recorded, job)

    verify(found.graph)
    made = (found.source < 0) & (found.graph.kind == NodeKind.FINISH)
    assert int(made.sum()) == 1
    duration_ns = np.where(made, 5_000_000, found.graph.measured_ns)
    graph = replace(found.graph, measured_ns=duration_ns)
    assert total_ns(graph) == pytest.approx(base + exposed_ns, abs=GAPS_NS)


def test_made_wait_holds_the_compute_stream_until_exchanges_are_over() -> None:
    recorded = program(plain(num_microbatches=1))
    base = total_ns(recorded.graph)

    def waited(each: Placed) -> tuple[Placed, ...]:
        found = _with_reduction(each, is_awaited=False)
        if each.layer != 1 or each.phase is not Phase.FORWARD:
            return found
        return (*found, replace(each, piece=MadeWait(group=Group.DATA), part=Part.BUCKET))

    found = arranged(recorded, _edited(same_job(recorded), waited))

    made = (found.source < 0) & (found.graph.kind == NodeKind.FINISH)
    graph = replace(found.graph, measured_ns=np.where(made, 5_000_000, found.graph.measured_ns))
    # One layer's forward pass runs beside it.
    exposed_ns = 5_000_000 - FORWARD_NS
    assert total_ns(graph) == pytest.approx(base + exposed_ns, abs=GAPS_NS)


def test_made_exchange_without_a_device_holds_the_calling_thread() -> None:
    recorded = program_of(ft.load(_CPU, cache=False).recording)
    base = total_ns(recorded.graph)
    first = next(each for each in same_job(recorded).ranks[0].placed if each.layer == 0)

    def reduced(each: Placed) -> tuple[Placed, ...]:
        is_first = (each.step, each.layer, each.phase) == (first.step, 0, first.phase)
        return _with_reduction(each, is_awaited=True) if is_first else (each,)

    found = arranged(recorded, _edited(same_job(recorded), reduced))

    verify(found.graph)
    made = (found.source < 0) & (found.graph.kind == NodeKind.FINISH)
    waits = (found.source < 0) & (found.graph.kind == NodeKind.THREAD_WAIT)
    assert 0 < made.sum() <= waits.sum()
    late = replace(found.graph, measured_ns=np.where(made, 10**9, found.graph.measured_ns))
    assert total_ns(late) > base + 10**9 // 2
