"""Experts over GPUs: the fullest rank, parts of experts, and what carries tokens to them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from foretrace.base import Float64s, WorkloadError
from foretrace.machine import load_machine
from foretrace.serve import Deployment, StepBatch, deployment, engine_of
from foretrace.serve.expert_layers import fullest_rank, halved_ns
from foretrace.workload import Experts
from tests.models import transformer

WIDE = {"enable_expert_parallel": True, "max_num_seqs": 256, "max_model_len": 8192}
DEEP = {**WIDE, "enable_eplb": True, "enable_dbo": True}


def experts_of(name: str) -> Experts:
    experts = transformer(name).experts
    assert experts is not None
    return experts


def deployed(name: str, machine: str, **stated: object) -> Deployment:
    return deployment(
        transformer(name), engine_of(json.loads(json.dumps(stated))), machine=load_machine(machine)
    )


def tokens_per_s(one: Deployment, batch: StepBatch, num_tokens: int) -> float:
    """Of all copies together, over hosts of eight GPUs."""
    copies = one.times.num_ranks
    return num_tokens * copies / one.times.step_ns(*[batch] * copies) * 1e9 * 8 / copies


@pytest.mark.parametrize("ranks", [2, 8, 32])
@pytest.mark.parametrize("tokens", [1, 16, 4096])
def test_the_fullest_rank_is_what_draws_say(ranks: int, tokens: int) -> None:
    experts = experts_of("deepseek-v3")
    fullest, active = fullest_rank(experts, np.array([tokens]), ranks, is_balanced=False)

    rows, drawn = drawn_ranks(experts, tokens, ranks)

    assert active[0] == pytest.approx(drawn, rel=0.12, abs=0.4)
    if tokens * experts.num_active >= 16 * ranks:
        assert fullest[0] == pytest.approx(rows, rel=0.12)


def drawn_ranks(experts: Experts, tokens: int, ranks: int) -> tuple[float, float]:
    """Rows of the fullest rank over the mean, and experts of the one with most; the mean of some.

    Tokens choose by Gumbel's trick: the largest of logarithms of popularity and a draw each.
    """
    generator = np.random.default_rng(0)
    middles = np.sort(generator.normal(size=(2001, experts.count)), axis=1).mean(axis=0)
    most, taking_part = [], []
    for _ in range(40):
        popular: Float64s = 0.7 * generator.permutation(middles)
        noise = generator.gumbel(size=(min(tokens, 512), experts.count))
        chosen = np.argsort(-(popular + noise), axis=1)[:, : experts.num_active]
        counts = np.bincount(chosen.ravel(), minlength=experts.count)
        by_rank = counts.reshape(ranks, -1)
        most.append(by_rank.sum(axis=1).max() / by_rank.sum(axis=1).mean())
        taking_part.append((by_rank > 0).sum(axis=1).max())
    return float(np.mean(most)), float(np.mean(taking_part))


def test_placing_experts_leaves_the_draw_alone() -> None:
    experts = experts_of("deepseek-v3")
    tokens = np.array([64, 65536])

    dealt, _ = fullest_rank(experts, tokens, 32, is_balanced=False)
    placed, _ = fullest_rank(experts, tokens, 32, is_balanced=True)
    alone, _ = fullest_rank(experts, tokens, 1, is_balanced=False)

    assert (placed < dealt).all()
    assert placed[1] == pytest.approx(1, abs=0.02)
    assert alone.tolist() == [1, 1]


def test_parts_of_experts_take_more_than_their_share() -> None:
    whole, cut = (
        deployed("deepseek-v3", "dgx-h200", tensor_parallel_size=8, enable_expert_parallel=one)
        for one in (True, False)
    )

    # Rows of all tokens pass through a part of every expert: what moves them is not divided.
    assert cut.times.shared_ns[4096] > 1.5 * whole.times.shared_ns[4096]
    assert cut.num_blocks == whole.num_blocks


def test_halves_take_what_both_do() -> None:
    whole = np.array([0.0, 3.0, 4.0, 6.0, 7.0])

    assert halved_ns(whole, None) is whole
    assert halved_ns(whole, 3).tolist() == [0.0, 3.0, 4.0, 7.0, 8.0]


def test_a_library_made_for_it_carries_tokens_faster_over_hosts() -> None:
    backends = ("allgather_reducescatter", "deepep_low_latency")
    batch = StepBatch(decodes=(2000,) * 256)

    plain, deep = (
        tokens_per_s(
            deployed(
                "deepseek-v3", "superpod-h100", **WIDE, data_parallel_size=72, all2all_backend=one
            ),
            batch,
            256,
        )
        for one in backends
    )

    assert deep > 1.2 * plain


def test_experts_over_hosts_that_are_not_there_are_a_sentence() -> None:
    with pytest.raises(WorkloadError, match="name a larger machine"):
        deployed(
            "deepseek-v3",
            "dgx-h200",
            **WIDE,
            data_parallel_size=32,
            all2all_backend="deepep_low_latency",
        )


@pytest.mark.parametrize(
    ("copies", "backend", "batch", "num_tokens", "published"),
    [
        # lmsys.org, 2025-05-05, large-scale EP: prompts of 2,000 tokens, H100.
        (32, "deepep_high_throughput", StepBatch(prefills=((2048, 0),) * 8), 16384, 52_300),
        (72, "deepep_low_latency", StepBatch(decodes=(2050,) * 256), 256, 22_300),
    ],
)
def test_published_throughputs_of_wide_experts(
    copies: int, backend: str, batch: StepBatch, num_tokens: int, published: float
) -> None:
    stated = {**DEEP, "data_parallel_size": copies, "all2all_backend": backend}
    one = deployed("deepseek-v3", "superpod-h100", **stated, max_num_batched_tokens=num_tokens)

    assert tokens_per_s(one, batch, num_tokens) == pytest.approx(published, rel=0.2)


def test_heads_that_cannot_be_dealt_out_are_a_sentence() -> None:
    with pytest.raises(WorkloadError, match="tensor_parallel_size is 3, and "):
        deployed("llama3.1-8b", "dgx-h100", tensor_parallel_size=3)


def test_memory_of_the_cache_that_is_stated_is_taken() -> None:
    one = deployed("llama3.1-8b", "dgx-h100", kv_cache_memory_bytes=10**10)

    assert one.num_blocks * one.engine.block_size == pytest.approx(1e10 / 131072, rel=0.001)
    assert "kv_cache_memory_bytes has room for" in one.notes[0]
    assert replace(one.engine, kv_cache_memory_bytes=None) != one.engine


COPIES = {"data_parallel_size": 2, "enable_expert_parallel": True, "max_num_seqs": 128}


def test_copies_of_a_graph_are_padded_alike() -> None:
    times = deployed("qwen3-30b-a3b", "rtx-pro-pair", max_num_batched_tokens=2048, **COPIES).times
    few, many = (StepBatch(decodes=(500,) * count) for count in (3, 121))
    alike = times.step_ns(many, many)

    assert times.step_ns(few, many) == times.step_ns(many, few) == alike
    # Attention of three is not what the fullest takes; beyond graphs each has its own tokens.
    long = StepBatch(prefills=((2048, 0),))
    assert times.step_ns(few, long) < times.step_ns(long, long)


def test_copies_wait_for_what_the_fullest_sends() -> None:
    times = deployed("qwen3-30b-a3b", "rtx-pro-pair", max_num_batched_tokens=2048, **COPIES).times
    uneven = StepBatch(prefills=((2000, 0),)), StepBatch(prefills=((400, 0),))
    assert times.sent_ns is not None

    step = times.step_ns(*uneven)
    without = replace(times, sent_ns=None).step_ns(*uneven)

    assert step - without == pytest.approx(times.sent_ns[2000], abs=1)
    assert times.least_ns(np.array([1200]), np.array([2400]))[0] < step


def test_rows_of_others_experts_pass_through_a_rank() -> None:
    """Where NCCL carries tokens every rank has all rows, of which half are zeros to it."""
    ours, deep = (
        deployed("qwen3-30b-a3b", "dgx-h100", all2all_backend=backend, **COPIES).times
        for backend in ("allgather_reducescatter", "deepep_high_throughput")
    )
    model = transformer("qwen3-30b-a3b")
    assert model.experts is not None
    rows = 4096 * model.experts.num_active / 2
    moved = rows * 2 * (5 * model.experts.width + 2 * model.hidden) * model.num_layers

    more = ours.shared_ns[4096] - deep.shared_ns[4096]

    assert more == pytest.approx(moved / 3350, rel=0.35)  # of the memory's bandwidth
