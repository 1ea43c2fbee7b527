"""Whatever is asked of whatever job: it is refused in words, or a graph that obeys its rules."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrace.base import ScenarioError
from foretrace.graph import verify
from foretrace.simulate import simulate
from foretrace.whatif import Batch, Edit, Layers, Parallelism, PlanKeys
from foretrace.whatif.arrange.arrange import arranged
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.rearrange.rearranged import rearranged
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.recorded.read import program_of
from tests.graph.recorded import recording_of
from tests.strategies import job_configs
from tests.truth import JobConfig, make_job

_ANY: st.SearchStrategy[Edit] = st.one_of(
    st.builds(Layers, st.integers(1, 8)),
    st.builds(Parallelism, pp=st.integers(1, 4)),
    st.builds(Parallelism, tp=st.integers(1, 4)),
    st.builds(Parallelism, dp=st.integers(1, 8)),
    st.builds(Parallelism, schedule=st.just("interleaved"), chunks=st.integers(1, 3)),
)
_LIKELY_IN_TEN = 9  # edits that are likely to be made


def _other(counts: st.SearchStrategy[int], recorded: int) -> st.SearchStrategy[int]:
    """Any but what was recorded."""
    return counts.filter(lambda count: count != recorded)


@st.composite
def jobs_with_edits(draw: st.DrawFn) -> tuple[JobConfig, list[Edit]]:
    """A job, and edits of it, most of which what it shows allows."""
    config = draw(job_configs())
    likely: list[st.SearchStrategy[Edit]] = [
        _other(st.integers(1, 5), config.num_microbatches).map(
            lambda count: Batch(num_microbatches=count)
        )
    ]
    layers = config.num_layers * config.pp
    if layers > 1:
        likely += [
            _other(st.integers(1, 4), config.num_layers).map(lambda one: Layers(one * config.pp)),
            st.just(PlanKeys({"recompute": "full"})),
        ]
    if config.pp > 1:
        stages = st.sampled_from([one for one in range(1, layers + 1) if layers % one == 0])
        likely.append(_other(stages, config.pp).map(lambda count: Parallelism(pp=count)))
    if config.dp > 1:
        likely += [
            _other(st.integers(1, 8), config.dp).map(lambda count: Parallelism(dp=count)),
            st.just(PlanKeys({"sharding.level": "zero1"})),
            st.just(PlanKeys({"sharding.bucket_bytes": 30_000_000})),
            st.just(PlanKeys({"overlap.gradients": False})),
        ]
    if config.tp > 1:
        likely.append(st.just(Parallelism(tp=1)))
    is_likely = draw(st.integers(1, 10)) <= _LIKELY_IN_TEN
    one = st.one_of(likely) if is_likely else _ANY
    return config, draw(st.lists(one, min_size=1, max_size=3))


def test_an_edited_job_runs_or_is_refused() -> None:
    made: Counter[bool] = Counter()

    @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
    @given(jobs_with_edits())
    def check(asked: tuple[JobConfig, list[Edit]]) -> None:
        config, wanted = asked
        program = program_of(recording_of(make_job(config)))
        is_made = _is_made(program, wanted)
        if not program.doubts:  # else whatever is asked is refused
            made[is_made] += 1

    check()

    assert made[True] > made[False]


def _is_made(program: Program, wanted: list[Edit]) -> bool:
    before = base_scenario(program)
    after = before
    try:
        for edit in wanted:
            after = edit.applied(after)
        job = rearranged(program, before, after)
        if job is None:
            return False
        found = arranged(program, job)
    except ScenarioError:
        return False
    verify(found.graph)
    timeline = simulate(found.graph)
    assert int(timeline.end_ns.min()) >= 0
    assert {rank.rank for rank in job.ranks} == set(found.graph.ranks)
    return True
