"""Prompts and replies on copies of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.machine import load_machine
from foretrace.serve import Engine, Pools, Requests, StepBatch
from foretrace.serve.pools import pooled_run, sent_ns
from tests.serve.made import LEAST_BLOCKS, grown_times, requests_of, workloads

ENGINE = Engine(max_num_seqs=4, max_num_batched_tokens=96, block_size=4)


def test_a_request_alone_takes_its_prompt_the_way_and_its_steps() -> None:
    times = grown_times()
    requests = requests_of([0], [50], [4])

    run = pooled_run(
        requests, ENGINE, times, pools=Pools(1, 1), transfer_ns=np.array([700]), blocks=100
    )

    first = times.step_ns(StepBatch(prefills=((50, 0),)))
    further = sum(times.step_ns(StepBatch(decodes=(51 + at,))) for at in range(3))
    assert run.first_ns[0] == first
    assert run.last_ns[0] == first + 700 + further
    assert run.rank.tolist() == [1]


@given(workloads(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000))
@settings(deadline=None, max_examples=25)
def test_no_request_is_lost_between_pools(
    requests: Requests, prefill: int, decode: int, way: int
) -> None:
    sent = np.full(len(requests), way)

    run = pooled_run(
        requests,
        ENGINE,
        grown_times(),
        pools=Pools(prefill, decode),
        transfer_ns=sent,
        blocks=LEAST_BLOCKS,
    )

    has_reply = requests.output_tokens > 1
    assert (run.first_ns > requests.arrival_ns).all()
    assert (run.last_ns >= run.first_ns + has_reply * way).all()
    assert (run.last_ns[~has_reply] == run.first_ns[~has_reply]).all()
    made = sum(int(one.num_decodes.sum()) for one in run.steps) + run.preempted.sum()
    assert made >= (requests.output_tokens - 1).sum()
    assert max(int(one.used_blocks.max()) for one in run.steps) <= LEAST_BLOCKS - 1


def test_links_carry_one_prompt_after_the_other() -> None:
    requests = requests_of([0, 0], [40, 40], [2, 2])
    sent = np.array([10**9, 10**9])

    run = pooled_run(
        requests, ENGINE, grown_times(), pools=Pools(1, 1), transfer_ns=sent, blocks=99
    )

    assert (np.diff(np.sort(run.last_ns)) > 10**9 - 10**4).all()


def test_the_way_takes_longer_for_longer_prompts() -> None:
    requests = requests_of([0, 0], [1000, 4000], [2, 2])

    prompt_bytes = requests.prompt_tokens.astype(np.float64) * 131_072

    short, long = sent_ns(prompt_bytes, load_machine("dgx-h100")).tolist()

    assert 0 < short < long < 100_000_000
    assert long > 131_072 * 4000 / 450  # bytes a ns of one direction


def test_a_pool_of_none_is_a_sentence() -> None:
    with pytest.raises(WorkloadError, match="each needs one or more, as in 1:3"):
        Pools(0, 3)
