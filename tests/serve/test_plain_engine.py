"""The compiled engine against the plain one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.serve import Engine, Requests, engine_run
from tests.oracles.serving import PlainEngine
from tests.serve.made import LEAST_BLOCKS, engines, grown_times, workloads


@given(workloads(), engines(), st.integers(LEAST_BLOCKS, 4 * LEAST_BLOCKS))
@settings(deadline=None, max_examples=60)
def test_an_engine_does_what_the_plain_one_does(
    requests: Requests, engine: Engine, blocks: int
) -> None:
    times = grown_times()
    plain = PlainEngine(requests, engine, times.step_ns, blocks)
    plain.run()

    run = engine_run(requests, engine, times, blocks=blocks)

    assert run.first_ns.tolist() == [one.first for one in plain.requests]
    assert run.last_ns.tolist() == [one.last for one in plain.requests]
    assert run.scheduled_ns.tolist() == [one.scheduled for one in plain.requests]
    assert run.preempted.tolist() == [one.preempted for one in plain.requests]
    assert len(run.steps[0]) == plain.num_steps
