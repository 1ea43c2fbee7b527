"""Whatever is asked of whatever job: it is refused in words, or a graph that obeys its rules."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrace.base import ScenarioError
from foretrace.graph import verify
from foretrace.simulate import simulate
from foretrace.whatif import Batch, Edit, Layers, Parallelism, PlanKeys
from foretrace.whatif.arrange.arrange import arranged
from foretrace.whatif.rearrange.rearranged import rearranged
from foretrace.whatif.recorded.read import program_of
from foretrace.whatif.resize.base import base_scenario
from tests.graph.recorded import recording_of
from tests.strategies import job_configs
from tests.truth import JobConfig, make_job

edits: st.SearchStrategy[Edit] = st.one_of(
    st.builds(Layers, st.integers(1, 8)),
    st.builds(Batch, num_microbatches=st.integers(1, 5)),
    st.builds(Parallelism, dp=st.integers(1, 8)),
    st.builds(Parallelism, pp=st.integers(1, 4)),
    st.builds(Parallelism, tp=st.integers(1, 4)),
    st.builds(Parallelism, schedule=st.just("interleaved"), chunks=st.integers(1, 3)),
    st.builds(Parallelism, schedule=st.sampled_from(("gpipe", "1f1b"))),
    st.sampled_from(
        [
            PlanKeys({"recompute": "full"}),
            PlanKeys({"sharding.level": "zero1"}),
            PlanKeys({"bucket_bytes": 30_000_000}),
            PlanKeys({"overlap.gradients": False}),
        ]
    ),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(job_configs(), st.lists(edits, min_size=1, max_size=3))
def test_an_edited_job_runs_or_is_refused(config: JobConfig, wanted: list[Edit]) -> None:
    program = program_of(recording_of(make_job(config)))
    before = base_scenario(program)
    after = before
    try:
        for edit in wanted:
            after = edit.applied(after)
        job = rearranged(program, before, after)
        if job is None:
            return
        found = arranged(program, job)
    except ScenarioError:
        return

    verify(found.graph)
    timeline = simulate(found.graph)
    assert int(timeline.end_ns.min()) >= 0
    assert {rank.rank for rank in job.ranks} == set(found.graph.ranks)
