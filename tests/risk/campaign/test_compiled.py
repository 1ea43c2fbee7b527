"""The compiled loops against a walk through every checkpoint, host and replica."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.risk.campaign import _compiled as compiled
from tests.oracles import campaign as oracle

NUM_ACCOUNTS = 10
SPENT = ("productive", "rework", "checkpoint", "detection", "queue", "waiting", "restart",
         "preempted", "stall")  # fmt: skip
SHARES = st.sampled_from((0.0, 0.4, 1.0))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[oracle.Job, list[bool]]:
    """A job of a few hosts for a few hundred ns."""
    short = st.integers(0, 15)
    interval_ns = draw(st.integers(1, 40))
    wall_ns = draw(st.integers(1, 1500))
    num_hosts = draw(st.integers(1, 5))
    job = oracle.Job(
        failures_per_ns=draw(st.sampled_from((0.0, 0.001, 0.01, 0.05))),
        lemon_factor=draw(st.sampled_from((1.0, 3.0, 20.0))),
        repaired_share=draw(SHARES),
        repair_ns=draw(st.integers(0, 200)),
        excluded_after=draw(st.integers(0, 3)),
        preemptions_per_ns=draw(st.sampled_from((0.0, 0.01))),
        preempted_ns=draw(short),
        has_notice=draw(st.booleans()),
        interval_ns=interval_ns,
        blocking_ns=draw(short),
        background_ns=draw(st.integers(0, interval_ns)),
        detection_ns=draw(short),
        queue_ns=draw(short),
        restart_ns=draw(short),
        while_down=draw(st.integers(0, 2)),
        wall_ns=wall_ns,
        work_ns=draw(st.integers(1, wall_ns + 1)),
        num_hosts=num_hosts,
    )
    size = num_hosts + draw(st.integers(0, 3))
    return job, draw(st.lists(st.booleans(), min_size=size, max_size=size))


@given(jobs(), st.integers(0, 2**32))
def test_a_job_that_stops_as_a_whole_goes_as_walked(
    drawn: tuple[oracle.Job, list[bool]], seed: int
) -> None:
    job, lemons = drawn
    spent, counts = np.zeros(NUM_ACCOUNTS, np.int64), np.zeros(5, np.int64)

    random = np.random.default_rng(seed)
    arguments = (*astuple(job), np.array(lemons, np.uint8), spent, counts)
    lasted_ns = compiled._restarts(random, *arguments)

    walk = oracle.restarts(np.random.default_rng(seed), job, lemons)
    assert lasted_ns == walk.clock_ns
    assert spent.tolist() == [*(walk.spent[each] for each in SPENT), 0]
    assert counts.tolist() == [
        walk.counts[each] for each in ("failures", "late", "excluded", "preemptions", "finished")
    ]
    assert spent.sum() == lasted_ns


@st.composite
def members(draw: st.DrawFn) -> oracle.Members:
    """A job of a few replicas for a few hundred ns."""
    short = st.integers(0, 15)
    wall_ns = draw(st.integers(1, 1500))
    num_replicas = draw(st.sampled_from((1, 2, 4)))  # whose shares of a sum are exact floats
    return oracle.Members(
        failures_per_ns=draw(st.sampled_from((0.0, 0.002, 0.02))),
        num_replicas=num_replicas,
        min_replicas=draw(st.integers(1, num_replicas)),
        keeps_state=draw(st.booleans()),
        joins_in_stall=draw(st.booleans()),
        stall_ns=draw(short),
        away_ns=draw(st.integers(0, 100)),
        join_ns=draw(short),
        lost_step_ns=draw(short),
        num_spares=draw(st.integers(0, 3)),
        repaired_share=draw(SHARES),
        repair_ns=draw(st.integers(0, 200)),
        interval_ns=draw(st.integers(1, 60)),
        blocking_ns=draw(short),
        while_down=draw(st.integers(0, 2)),
        wall_ns=wall_ns,
        work_ns=float(draw(st.integers(1, wall_ns + 1))),
    )


@given(members(), st.integers(0, 2**32))
def test_replicas_leave_and_come_back_as_walked(job: oracle.Members, seed: int) -> None:
    spent, counts = np.zeros(NUM_ACCOUNTS, np.int64), np.zeros(5, np.int64)
    kept = np.zeros(job.num_replicas + 1, np.int64)

    random = np.random.default_rng(seed)
    arguments = (*astuple(job), spent, counts, kept)
    lasted_ns = compiled._replicas(random, *arguments)

    walk, kept_of = oracle.replicas(np.random.default_rng(seed), job)
    assert lasted_ns == walk.clock_ns
    assert kept.tolist() == [kept_of[count] for count in range(job.num_replicas + 1)]
    assert spent.tolist() == [*(walk.spent[each] for each in SPENT), 0]
    assert counts[compiled.FAILURES] == walk.counts["failures"]
    assert counts[compiled.FINISHED] == walk.counts["finished"]
    assert spent.sum() + kept.sum() == lasted_ns


def test_nothing_fails_where_the_rate_is_zero() -> None:
    assert compiled._time_to(np.random.default_rng(0), 0.0) == compiled.FAR
    assert compiled._time_to(np.random.default_rng(0), 1e-30) == compiled.FAR


def test_the_walk_itself_loses_what_is_not_saved() -> None:
    job = oracle.Job(
        failures_per_ns=0.0, lemon_factor=1.0, repaired_share=1.0, repair_ns=0, excluded_after=0,
        preemptions_per_ns=0.0, preempted_ns=0, has_notice=False, interval_ns=10, blocking_ns=2,
        background_ns=5, detection_ns=0, queue_ns=0, restart_ns=0, while_down=0, wall_ns=100,
        work_ns=1000, num_hosts=1,
    )  # fmt: skip

    # The second checkpoint is taken until 24 and written until 29, 30 or 31.
    assert oracle._run(job, 30, 1000) == (26, 20, 4, False)
    assert oracle._run(replace(job, background_ns=6), 30, 1000) == (26, 20, 4, False)
    assert oracle._run(replace(job, background_ns=7), 30, 1000) == (26, 10, 4, False)
    assert oracle._run(job, 30, 20) == (20, 10, 2, True)
