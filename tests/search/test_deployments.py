"""The fewest GPUs that keep a promise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.search import engines_of, fewest_gpus
from foretrace.search.deployment_bounds import least_copies
from foretrace.serve import (
    Deployment,
    Engine,
    Requests,
    ServiceTarget,
    engine_run,
    met,
    requests_named,
)
from tests.models import transformer
from tests.serve.made import constant_step, grown_times, staged, workloads

REQUESTS = requests_named("poisson:rate=20,prompt=100,output=100,requests=2000", seed=1)
ENGINE = Engine(max_num_seqs=8)
DEGREES = (1, 2, 4, 8)


def deployed(engine: Engine, gpu: str) -> Deployment:
    model = transformer("llama3.1-8b")
    tensor = engine.tensor_parallel_size
    if tensor > 2 or engine.pipeline_parallel_size > 1:
        raise WorkloadError("no more cards")
    times = constant_step((5_000_000 if gpu == "fast" else 10_000_000) // tensor)
    return Deployment(model=model, engine=engine, times=times, gpu=gpu, num_blocks=10_000)


def test_one_gpu_less_does_not_keep_it() -> None:
    target = ServiceTarget(ttft_ms=500, tpot_ms=11)

    found = fewest_gpus(deployed, engines_of(ENGINE, has_experts=False), REQUESTS, target=target)

    assert found.best.kept_share >= 0.99
    # 20 requests/s of 101 steps of 10 ms hold 20.2 of eight places.
    assert 3 <= found.best.num_gpus == found.least_gpus <= 6
    assert found.refused == ("tp1 pp2: no more cards",)
    fewer = [one for one in found.tried if one.num_gpus < found.best.num_gpus]
    assert all(one.kept_share < 0.99 for one in fewer)
    one_less = deployed(ENGINE, "").serve(REQUESTS.share(0, found.best.num_gpus - 1), target=target)
    assert one_less.met_share is not None
    assert one_less.met_share < 0.99
    assert str(found.best.num_gpus) in found.headline


def test_an_engine_that_one_request_does_not_fit_is_left_out() -> None:
    def with_blocks(engine: Engine, gpu: str) -> Deployment:
        one = deployed(engine, gpu)
        return replace(one, num_blocks=10_000 if engine.tensor_parallel_size > 1 else 9)

    target = ServiceTarget(ttft_ms=500, tpot_ms=11)

    found = fewest_gpus(with_blocks, engines_of(ENGINE, has_experts=False), REQUESTS, target=target)

    assert found.best.tensor == 2
    assert any("needs 13 blocks of 16 tokens, and the cache has 8" in one for one in found.refused)


def test_refusals_that_differ_in_numbers_are_told_once() -> None:
    def too_small(engine: Engine, gpu: str) -> Deployment:
        if engine.tensor_parallel_size > 1:
            raise WorkloadError(f"no room: {engine.tensor_parallel_size}.5 GiB of 1,0 GiB")
        return deployed(engine, gpu)

    target = ServiceTarget(ttft_ms=500, tpot_ms=11)

    found = fewest_gpus(too_small, engines_of(ENGINE, has_experts=False), REQUESTS, target=target)

    assert [one for one in found.refused if "GiB" in one] == ["tp2: no room: 2.5 GiB of 1,0 GiB"]


@pytest.mark.parametrize("high", [1.0, 1.05, 1.5])
def test_slow_steps_keep_less_and_take_more_gpus(high: float) -> None:
    def with_interval(engine: Engine, gpu: str) -> Deployment:
        one = deployed(engine, gpu)
        return replace(one, times=replace(one.times, high=high))

    target = ServiceTarget(ttft_ms=500, tpot_ms=16)
    engines = [replace(ENGINE, tensor_parallel_size=1)]

    found = fewest_gpus(with_interval, engines, REQUESTS, target=target)

    def kept(gpus: int) -> float:
        one = with_interval(engines[0], "")
        slow = replace(one, times=one.times.scaled(high))
        share = slow.serve(REQUESTS.share(0, gpus), target=target).met_share
        assert share is not None
        return share

    assert found.slow.kept_share == pytest.approx(kept(found.best.num_gpus))
    assert found.slow_gpus is not None
    assert found.slow_gpus >= found.best.num_gpus
    assert kept(found.slow_gpus) >= 0.99
    assert found.slow_gpus == found.best.num_gpus or kept(found.slow_gpus - 1) < 0.99


def test_steps_too_slow_for_any_number_of_gpus_are_told() -> None:
    def with_interval(engine: Engine, gpu: str) -> Deployment:
        one = deployed(engine, gpu)
        return replace(one, times=replace(one.times, high=2.0))

    target = ServiceTarget(ttft_ms=500, tpot_ms=11)

    found = fewest_gpus(with_interval, [ENGINE], REQUESTS, target=target)

    assert (found.slow.kept_share, found.slow_gpus) == (0.0, None)
    assert "no number of them that was tried keeps it" in str(found)


def test_it_is_the_fewest_of_all_that_can_be_counted_through() -> None:
    target = ServiceTarget(ttft_ms=400, tpot_ms=12)
    varied = engines_of(ENGINE, has_experts=False, vary=["sequences"])
    engines = [one for one in varied if one.pipeline_parallel_size == 1][:10]
    few = REQUESTS.share(0, 10)

    found = fewest_gpus(deployed, engines, few, target=target, gpus=("slow", "fast"), most_gpus=6)

    def keeps(engine: Engine, gpu: str, copies: int) -> bool:
        share = few.share(0, copies)
        run = engine_run(share, engine, deployed(engine, gpu).times, blocks=10_000)
        return met(run, target) >= 0.99

    counted = min(
        copies * engine.num_gpus
        for engine in engines
        for gpu in ("slow", "fast")
        if engine.tensor_parallel_size <= 2
        for copies in range(1, 7)
        if keeps(engine, gpu, copies)
    )
    assert found.best.num_gpus == counted == found.least_gpus
    assert found.num_simulated < 20


@given(workloads(), st.integers(1, 8), st.integers(1, 3), st.booleans(), st.integers(1, 3))
@settings(deadline=None, max_examples=25)
def test_no_promise_is_kept_with_fewer_copies_than_the_bound(
    requests: Requests, most: int, ranks: int, is_whole: bool, stages: int
) -> None:
    engine = Engine(
        max_num_seqs=most, max_num_batched_tokens=64, data_parallel_size=ranks, block_size=4
    )
    times = grown_times(ranks=ranks)
    if stages > 1:
        engine = replace(engine, data_parallel_size=1)
        times = staged(grown_times(), [1 / stages] * stages, 7.0)
    alone = engine_run(requests, engine, times)
    worst = (alone.last_ns - requests.arrival_ns).max() / 1e6
    target = (
        ServiceTarget(latency_ms=0.7 * worst)
        if is_whole
        else ServiceTarget(ttft_ms=0.5 * worst, tpot_ms=0.1 * worst)
    )
    kept = met(alone, target)

    bound = least_copies(times, engine, requests, target, max(kept, 0.01))

    assert kept == 0 or bound == 1  # one copy keeps that share


def test_many_requests_need_as_many_copies_as_their_tokens_say() -> None:
    """Steps of 10 ms with 8 sequences: 20 requests/s of 100 tokens need 2.5 copies at least."""
    times = constant_step(10_000_000)

    least = least_copies(times, ENGINE, REQUESTS, ServiceTarget(latency_ms=3000), 1.0)

    assert least == 3
    assert least_copies(times, ENGINE, REQUESTS, ServiceTarget(tpot_ms=9), 1.0) is None


def test_a_price_is_that_of_the_gpus_over_what_they_make() -> None:
    target = ServiceTarget(ttft_ms=500, tpot_ms=16)
    engines = engines_of(ENGINE, has_experts=False)

    found = fewest_gpus(deployed, engines, REQUESTS, target=target, dollars_per_hour=3.6)

    each_second = 0.001 * found.best.num_gpus
    told = each_second / found.best.output_tokens_per_s * 1e6
    assert found.dollars_per_million_tokens == pytest.approx(told)
    assert f"${told:.3f}" in str(found)


def test_what_a_request_alone_takes_is_told_where_nothing_is_fast_enough() -> None:
    engines = [replace(ENGINE, tensor_parallel_size=1)]
    alone = r"a request alone takes \S+ ms to its first token and \S+ ms for each further one"

    with pytest.raises(WorkloadError, match=f"{alone} at least on tp1, the fastest of them"):
        fewest_gpus(deployed, engines, REQUESTS, target=ServiceTarget(tpot_ms=0.01))


def test_a_promise_that_nothing_keeps_is_a_sentence() -> None:
    engines = engines_of(ENGINE, has_experts=False)
    with pytest.raises(WorkloadError, match=r"keeps ttft 20.0 ms: .* GPUs come nearest"):
        fewest_gpus(deployed, engines, REQUESTS, target=ServiceTarget(ttft_ms=20), most_gpus=4)
    with pytest.raises(WorkloadError, match=r"2.00 ms: a request alone takes .* no more cards"):
        fewest_gpus(deployed, engines, REQUESTS, target=ServiceTarget(tpot_ms=2), most_gpus=4)


def test_stages_are_found_where_one_gpu_cannot_hold_the_layers() -> None:
    def in_stages(engine: Engine, gpu: str) -> Deployment:
        if engine.tensor_parallel_size > 1 or engine.pipeline_parallel_size < 2:
            raise WorkloadError("no room")
        one = deployed(replace(engine, pipeline_parallel_size=1), gpu)
        count = engine.pipeline_parallel_size
        return replace(one, engine=engine, times=staged(one.times, [1 / count] * count))

    target = ServiceTarget(tpot_ms=50)
    found = fewest_gpus(
        in_stages, engines_of(ENGINE, has_experts=False), REQUESTS.share(0, 10), target=target
    )

    assert (found.best.pipeline, found.best.num_gpus) == (2, 2)
    assert "tp1 pp2" in found.headline


def test_what_is_searched() -> None:
    dense = engines_of(ENGINE, has_experts=False)
    experts = engines_of(ENGINE, has_experts=True, vary=["tokens"])

    assert {(one.tensor_parallel_size, one.pipeline_parallel_size) for one in dense} == {
        (tensor, stages) for tensor in DEGREES for stages in DEGREES if tensor * stages <= 8
    }
    guesses = replace(ENGINE, num_speculative_tokens=2)
    assert [one.num_gpus for one in engines_of(guesses, has_experts=False)] == [1, 2, 4, 8]
    assert max(one.num_gpus for one in engines_of(ENGINE, has_experts=False, most_ranks=16)) == 16
    assert {one.num_gpus for one in experts} == {1, 2, 4, 8}
    assert replace(ENGINE, max_num_batched_tokens=512) in experts
    assert all(one.enable_expert_parallel for one in experts if one.data_parallel_size > 1)
    with pytest.raises(WorkloadError, match="expected sequences, tokens"):
        engines_of(ENGINE, has_experts=True, vary=["cards"])
