"""Plans of a recorded job are searched as `whatif` predicts them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import foretrace as ft
from foretrace.base import WorkloadError
from foretrace.search import (
    Limits,
    Objective,
    RecordedGround,
    SearchOptions,
    Stopped,
    Target,
    recorded_space,
    searched_recording,
)
from foretrace.search.constraints import Constraint
from foretrace.whatif import Baseline, baseline_of
from foretrace.workload import PlanDraft
from tests.truth import JobConfig, make_job, write

NO_LIMIT = Limits(time_s=None, gap=0.0)


@cache
def baseline() -> Baseline:
    """Of four ranks, tensor and pipeline parallel, with eight layers."""
    job = make_job(JobConfig(tp=2, pp=2, num_layers=4, num_steps=2, num_microbatches=4))
    with TemporaryDirectory() as folder:
        write(job, Path(folder))
        return baseline_of(ft.load(folder, cache=False).recording)


def draft(**keys: object) -> PlanDraft:
    own = {"tp": 2, "micro_batch": 4, "recompute": "none", "sharding.level": "none"}
    return PlanDraft().with_keys({**own, **keys})


def test_the_best_is_that_of_predicting_every_plan() -> None:
    found = searched_recording(
        baseline(), draft(), num_ranks=8, options=SearchOptions(limits=NO_LIMIT)
    )

    ground = RecordedGround(baseline(), (recorded_space(baseline(), draft(), 8),))
    plans = ground.listing(None).more().plans
    steps = {plan: ground.simulates(plan) for plan in plans}
    assert len(steps) > 4
    assert found.best.step_ns == min(step for step in steps.values() if isinstance(step, int))
    assert found.gap == 0
    assert found.stopped is Stopped.EXHAUSTED
    assert found.default is not None
    assert found.best.step_ns <= found.default.step_ns


def test_a_bound_is_never_above_the_prediction() -> None:
    own = PlanDraft().with_keys({"tp": 2, "sharding.level": "none"})
    ground = RecordedGround(baseline(), (recorded_space(baseline(), own, 8),))

    plans = ground.listing(Constraint.of("micro_batch <= 2")).more().plans
    for plan in plans[::5]:
        step = ground.simulates(plan)
        assert isinstance(step, int)
        assert 0 < ground.quick_ns(plan) <= step
        assert 0 < ground.run_ns(plan) <= step


def test_what_only_a_model_knows_is_marked() -> None:
    own = PlanDraft().with_keys({"tp": 2, "micro_batch": 4, "pp": 2, "sharding.level": "none"})
    found = searched_recording(baseline(), own, num_ranks=8, options=SearchOptions(limits=NO_LIMIT))

    assert any(one.reason == "only a model knows what it takes" for one in found.refusals)
    assert found.best.sources is not None
    assert found.best.sources["measured"] > 0.5
    assert found.best.peak_bytes is None
    assert found.model == "the recorded model"
    with pytest.raises(WorkloadError, match="is about memory, which is not known"):
        searched_recording(
            baseline(), own, num_ranks=8, options=SearchOptions(where="peak_gb < 70")
        )


def test_the_longest_of_steps_is_told_of_recorded_plans() -> None:
    own = PlanDraft().with_keys(
        {"tp": 2, "micro_batch": 2, "pp": 2, "schedule": "1f1b", "sharding.level": "none"}
    )
    target = Target(objective=Objective.P95)

    found = searched_recording(
        baseline(), own, num_ranks=8, options=SearchOptions(limits=NO_LIMIT, target=target)
    )

    assert found.gap == 0
    assert found.best.p95_ns is not None
    assert found.best.step_ns < found.best.p95_ns < 1.2 * found.best.step_ns


def test_the_batch_grows_with_the_ranks_unless_it_is_stated() -> None:
    before = baseline().before.plan

    assert recorded_space(baseline(), draft(), 16).base.global_batch == 4 * before.global_batch
    own = draft(global_batch=32)
    assert recorded_space(baseline(), own, 16).base.global_batch == 32
    with pytest.raises(WorkloadError, match="dp follows"):
        recorded_space(baseline(), draft(dp=2), 16)


def test_a_search_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    whole = searched_recording(
        baseline(), draft(), num_ranks=8, options=SearchOptions(limits=NO_LIMIT, resume=path)
    )
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))

    again = searched_recording(
        baseline(), draft(), num_ranks=8, options=SearchOptions(limits=NO_LIMIT, resume=path)
    )

    assert again.best == whole.best
    assert again.evaluated == whole.evaluated
