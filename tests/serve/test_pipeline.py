"""An engine whose layers lie over stages: several steps are on their way at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.machine import load_machine
from foretrace.serve import (
    Engine,
    Requests,
    StepBatch,
    deployment,
    engine_of,
    engine_run,
)
from foretrace.workload import Transformer, layers_of_stages, serving_memory
from tests.models import transformer
from tests.serve.made import (
    LEAST_BLOCKS,
    constant_step,
    engines,
    grown_times,
    requests_of,
    staged,
    workloads,
)

ONE_AT_A_TIME = Engine(max_num_batched_tokens=8, max_num_seqs=8)


@given(workloads(), engines(), st.integers(LEAST_BLOCKS, 4 * LEAST_BLOCKS), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_nothing_is_lost_and_stages_do_one_step_at_a_time(
    requests: Requests, engine: Engine, blocks: int, stages: int
) -> None:
    engine = replace(engine, num_speculative_tokens=0, acceptance_rate=0.0)
    times = staged(grown_times(), [1 / stages] * stages, 7.0)

    run, again = (engine_run(requests, engine, times, blocks=blocks) for _ in range(2))

    [steps] = run.steps
    ends = steps.start_ns + steps.duration_ns
    assert (run.first_ns > run.scheduled_ns).all()
    assert (run.last_ns >= run.first_ns).all()
    assert steps.used_blocks.max() <= blocks - 1
    assert (np.diff(steps.start_ns) > 0).all()
    assert (np.diff(ends) > 0).all()
    # No more steps at once than stages, and no token before the one before it.
    assert (steps.start_ns[stages:] >= ends[:-stages]).all()
    assert (
        run.last_ns - run.first_ns >= (requests.output_tokens - 1) * steps.duration_ns.min()
    ).all()
    assert (run.last_ns == again.last_ns).all()


@given(workloads(), engines())
@settings(deadline=None, max_examples=20)
def test_one_stage_is_an_engine_without(requests: Requests, engine: Engine) -> None:
    engine = replace(engine, async_scheduling=False, num_speculative_tokens=0, acceptance_rate=0.0)
    without = grown_times()

    plain, one = (
        engine_run(requests, engine, times, blocks=LEAST_BLOCKS)
        for times in (without, staged(without, [1.0], 5.0))
    )

    assert (plain.first_ns == one.first_ns).all()
    assert (plain.last_ns == one.last_ns).all()
    for ours, theirs in zip(plain.gaps_ns(), one.gaps_ns(), strict=True):
        assert (ours == theirs).all()


def test_a_request_alone_takes_its_stages_and_its_ways_to_the_nanosecond() -> None:
    times = staged(grown_times(), [0.25, 0.5, 0.25], 11.0)

    run = engine_run(requests_of([0], [8], [4]), ONE_AT_A_TIME, times)

    steps = [StepBatch(prefills=((8, 0),)), *(StepBatch(decodes=(9 + at,)) for at in range(3))]
    taken = [sum(times.stages_ns(step)) + 2 * 11 for step in steps]
    assert taken == [times.step_ns(step) for step in steps]
    assert run.last_ns[0] == sum(taken)
    gaps, counts = run.gaps_ns()
    assert gaps[counts > 0].tolist() == taken[1:]


def test_as_many_requests_as_stages_take_turns_without_waiting() -> None:
    """Request i begins i stages later and then takes a step for each token."""
    stages, stage_ns, tokens = 4, 250, 6
    requests = requests_of([0] * stages, [8] * stages, [tokens] * stages)
    times = staged(constant_step(stages * stage_ns), [1 / stages] * stages)

    run = engine_run(requests, ONE_AT_A_TIME, times)

    begun = np.arange(stages) * stage_ns
    assert run.first_ns.tolist() == (begun + stages * stage_ns).tolist()
    assert run.last_ns.tolist() == (begun + tokens * stages * stage_ns).tolist()


def test_the_slowest_stage_bounds_the_steps() -> None:
    """Two requests in two stages of 300 and 700: a round of both takes twice the slower."""
    times = staged(constant_step(1000), [0.3, 0.7])
    requests = requests_of([0, 0], [8, 8], [200, 200])

    run = engine_run(requests, ONE_AT_A_TIME, times)

    [steps] = run.steps
    assert steps.start_ns[-1] / len(steps) == pytest.approx(700, rel=0.01)
    assert (run.last_ns - run.first_ns).max() / 199 == pytest.approx(1400, rel=0.01)


def llama() -> Transformer:
    return transformer("llama3.2-1b")


def test_layers_over_stages_take_as_long_as_in_one_and_the_way_between() -> None:
    model, machine = llama(), load_machine("dgx-h100")
    whole, parted = (
        deployment(model, Engine(pipeline_parallel_size=count), machine=machine) for count in (1, 3)
    )
    batch = StepBatch(prefills=((512, 0),), decodes=(800, 900))

    assert parted.times.pipeline is not None
    sent = float(parted.times.pipeline.transfer_ns[514])
    assert sent > 0
    assert sum(parted.times.stages_ns(batch)) == pytest.approx(whole.times.step_ns(batch), abs=3)
    assert parted.times.step_ns(batch) == pytest.approx(
        whole.times.step_ns(batch) + 2 * sent, abs=4
    )
    assert 2.5 < parted.num_blocks / whole.num_blocks < 3.5


def test_layers_left_over_go_to_later_stages_but_the_last() -> None:
    assert layers_of_stages(32, 4) == (8, 8, 8, 8)
    assert layers_of_stages(61, 4) == (15, 15, 16, 15)
    assert layers_of_stages(30, 4) == (7, 8, 8, 7)


def test_weights_of_all_stages_are_the_models() -> None:
    """The embedding is at one end and, where it is tied, at both."""
    model = llama()
    whole = serving_memory(model, capacity=80 << 30)
    first, last = (serving_memory(model, capacity=80 << 30, pipeline=count) for count in (2, 16))

    table = 2 * model.vocabulary * model.hidden
    assert first.weights == pytest.approx((whole.weights - table) / 2 + table, rel=1e-3)
    assert last.bytes_per_token == whole.bytes_per_token / 16


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"pipeline_parallel_size": 17}, "17, and llama3.2-1b has 16 layers"),
        (
            {"pipeline_parallel_size": 16},
            "one engine over stages has more GPUs than dgx-h100, which has 8",
        ),
    ],
)
def test_stages_that_cannot_be(stated: dict[str, object], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        deployment(llama(), engine_of(stated), machine=load_machine("dgx-h100"))


def test_many_steps_take_what_each_takes() -> None:
    times = staged(grown_times(ranks=2), [0.25, 0.75], 7.0)
    steps = [
        (StepBatch(prefills=((tokens, 3),), decodes=(tokens, 5)), StepBatch(decodes=(7,)))
        for tokens in (1, 16, 300)
    ]

    found = times.steps_ns(steps)

    assert found.tolist() == [times.step_ns(*step) for step in steps]
