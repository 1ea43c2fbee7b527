"""Requests through an engine: queueing theory, and what must hold."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import NS_PER_S, Int64s, WorkloadError
from foretrace.serve import Engine, Requests, StepBatch, engine_run, requests_named
from tests.serve.made import (
    LEAST_BLOCKS,
    constant_step,
    engines,
    grown_times,
    requests_of,
    workloads,
)


@given(workloads(), engines(), st.integers(LEAST_BLOCKS, 4 * LEAST_BLOCKS), st.integers(1, 3))
@settings(deadline=None, max_examples=80)
def test_nothing_is_lost_and_memory_holds(
    requests: Requests, engine: Engine, blocks: int, ranks: int
) -> None:
    engine = replace(engine, data_parallel_size=ranks)
    times = grown_times(ranks=ranks)

    run, again = (engine_run(requests, engine, times, blocks=blocks) for _ in range(2))

    [steps] = run.steps
    at_once = 1 + engine.num_speculative_tokens
    made = at_once * (steps.num_decodes.sum() + run.preempted.sum() + len(requests))
    assert (run.last_ns >= run.first_ns).all()
    assert (run.first_ns > run.scheduled_ns).all()
    assert (run.scheduled_ns >= requests.arrival_ns).all()
    assert requests.output_tokens.sum() <= made
    assert (
        steps.prefill_tokens.sum() + at_once * steps.num_decodes.sum()
        >= (_worked_on(requests, engine) + requests.output_tokens - 1).sum()
        - (requests.prompt_tokens == 1).sum()
    )
    assert steps.used_blocks.max() <= ranks * (blocks - 1)
    assert steps.num_running.max() <= ranks * engine.max_num_seqs
    assert (run.first_ns == again.first_ns).all()
    assert (run.last_ns == again.last_ns).all()


def _worked_on(requests: Requests, engine: Engine) -> Int64s:
    return requests.new_tokens if engine.enable_prefix_caching else requests.prompt_tokens


def test_what_is_kept_of_a_prompt_is_not_worked_on() -> None:
    times = grown_times()
    whole = requests_of([0], [100], [4])
    half = whole.with_hits(0.5)

    found = engine_run(half, Engine(), times)

    steps = [StepBatch(prefills=((50, 50),)), *(StepBatch(decodes=(101 + at,)) for at in range(3))]
    assert found.last_ns[0] == sum(times.step_ns(step) for step in steps)
    without = engine_run(half, Engine(enable_prefix_caching=False), times)
    assert without.last_ns[0] == engine_run(whole, Engine(), times).last_ns[0]


def test_guesses_make_as_many_tokens_a_step_as_their_law_says() -> None:
    """Leviathan et al.: (1 - a^(k + 1)) / (1 - a) tokens a step."""
    count = 20_000
    requests = requests_of([0], [8], [count])
    for guesses, rate in ((1, 0.6), (4, 0.8), (3, 1.0), (2, 0.0)):
        engine = Engine(num_speculative_tokens=guesses, acceptance_rate=rate)

        run = engine_run(requests, engine, constant_step(100))

        wanted = sum(rate**power for power in range(guesses + 1))
        assert (count - 1) / (len(run.steps[0]) - 1) == pytest.approx(wanted, rel=0.02)


def test_an_engine_runs_again_where_there_was_no_room_for_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = requests_of([0, 5, 9], [40, 30, 20], [6, 9, 4])
    whole = engine_run(requests, Engine(), grown_times(), blocks=40 * LEAST_BLOCKS)
    monkeypatch.setattr(import_module("foretrace.serve.running"), "_ROOM", 3)

    again = engine_run(requests, Engine(), grown_times(), blocks=40 * LEAST_BLOCKS)

    assert len(whole.steps[0]) > 3
    assert (again.steps[0].duration_ns == whole.steps[0].duration_ns).all()
    assert (again.last_ns == whole.last_ns).all()


@given(workloads(), engines())
@settings(deadline=None, max_examples=80)
def test_first_come_first_served(requests: Requests, engine: Engine) -> None:
    run = engine_run(requests, engine, grown_times(), blocks=40 * LEAST_BLOCKS)

    assert (np.diff(run.scheduled_ns) >= 0).all()
    assert run.preempted.sum() == 0


def test_a_request_alone_takes_what_its_steps_take() -> None:
    times = grown_times()
    requests = requests_of([0], [100], [4])

    run = engine_run(requests, Engine(max_num_batched_tokens=64, max_num_seqs=4), times)

    steps = [
        StepBatch(prefills=((64, 0),)),
        StepBatch(prefills=((36, 64),)),
        *(StepBatch(decodes=(101 + at,)) for at in range(3)),
    ]
    spent = np.cumsum([times.step_ns(step) for step in steps])
    assert run.first_ns[0] == spent[1]
    assert run.last_ns[0] == spent[-1]


def test_a_step_put_together_ahead_lets_requests_in_one_step_later() -> None:
    requests = requests_of([0, 10], [8, 8], [5, 5])

    ahead, behind = (
        engine_run(requests, Engine(async_scheduling=way), constant_step(100))
        for way in (True, False)
    )

    assert behind.first_ns.tolist() == [100, 200]
    assert ahead.first_ns.tolist() == [100, 300]


def test_one_server_with_even_service_waits_as_queueing_theory_says() -> None:
    """M/D/1: Pollaczek and Khinchine, rho / (2 (1 - rho)) services of waiting."""
    service, load, count = 1_000_000, 0.7, 200_000
    requests = requests_of(np.zeros(count), np.ones(count), np.ones(count))
    requests = requests.at_rate(load * NS_PER_S / service, seed=3)
    engine = Engine(max_num_seqs=1, async_scheduling=False)

    run = engine_run(requests, engine, constant_step(service))

    waited = float((run.scheduled_ns - requests.arrival_ns).mean()) / service
    assert waited == pytest.approx(load / (2 * (1 - load)), rel=0.02)


def test_one_server_with_uneven_service_waits_as_queueing_theory_says() -> None:
    """M/G/1: replies of 1 to 19 tokens, each a step."""
    step, load, count = 100_000, 0.6, 300_000
    output = np.random.default_rng(5).integers(1, 20, count)
    requests = requests_of(np.zeros(count), np.ones(count), output)
    requests = requests.at_rate(load * NS_PER_S / (step * output.mean()), seed=4)
    engine = Engine(max_num_seqs=1, async_scheduling=False)

    run = engine_run(requests, engine, constant_step(step))

    waited = float((run.scheduled_ns - requests.arrival_ns).mean()) / step
    wanted = load * (output**2).mean() / output.mean() / (2 * (1 - load))
    assert waited == pytest.approx(wanted, rel=0.02)


def test_ten_thousand_requests_take_seconds() -> None:
    requests = requests_named("poisson:rate=10,prompt=800,output=600,requests=10000")
    engine = Engine(max_num_seqs=128)
    times = grown_times().scaled(1e5)
    engine_run(requests.share(0, 1000), engine, times)

    begin = process_time()
    engine_run(requests, engine, times, blocks=5000)

    assert process_time() - begin < 20


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Engine(max_model_len=50), "raise max_model_len"),
        (Engine(block_size=64), "needs 2 blocks of 64 tokens, and the cache has 1"),
        (
            Engine(block_size=128, enable_chunked_prefill=False, max_num_batched_tokens=60),
            "let prefills be chunked",
        ),
    ],
)
def test_what_can_never_be_served_is_named(engine: Engine, words: str) -> None:
    requests = requests_of([0, 0], [8, 64], [1, 4])

    with pytest.raises(WorkloadError, match=words):
        engine_run(requests, engine, constant_step(1), blocks=2)


def test_a_static_batch_is_what_waits_whatever_steps_its_prompts_take() -> None:
    # Five wait when the first batch begins, of which four may run; the sixth comes soon after.
    requests = requests_of([0, 0, 0, 0, 0, 1], [30] * 6, [4, 8, 12, 4, 4, 4])
    engine = Engine(max_num_seqs=4, max_num_batched_tokens=40, is_static=True)

    run = engine_run(requests, engine, grown_times())

    first, second = run.scheduled_ns[:4], run.scheduled_ns[4:]
    [steps] = run.steps
    assert (np.diff(first) >= 0).all()
    assert first[3] > first[0], "four prompts of 30 tokens are no one step of 40"
    assert first[3] < run.last_ns[:4].min(), "and none of them waits for another's reply"
    assert (second >= run.last_ns[:4].max() - steps.duration_ns.max()).all()
    assert steps.num_running.max() == 4


def test_a_step_without_a_graph_takes_what_launching_it_takes() -> None:
    times = grown_times()
    host = np.where(np.arange(len(times.token_ns)) > 8, 50_000.0, 0.0)
    launched = replace(times, host_ns=host)
    few, many = StepBatch(decodes=(20,)), StepBatch(prefills=((64, 0),))
    factor, every = times.calibration.kinds[1].tolist()

    assert launched.step_ns(few) == times.step_ns(few)
    assert times.step_ns(many) < launched.step_ns(many)
    assert launched.step_ns(many) == int(50_000 * factor + every + 0.5)
