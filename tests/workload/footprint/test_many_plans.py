"""Memory of many plans is that of each alone, to the byte."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    ContextExchange,
    Implementation,
    Plan,
    PlanMemory,
    Precision,
    Recompute,
    Sharding,
    Transformer,
    check_plan,
    footprint,
    schedule_of,
)
from tests.models import transformer

MODELS = (
    *("llama3-405b", "llama3-8b", "llama3-70b", "llama3.2-1b", "gpt3-6.7b", "gpt3-175b"),
    *("gpt2", "bloom-176b", "mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b"),
)
SCHEDULES = ("1f1b", "gpipe", "zb-h1", "dualpipe", "interleaved", "interleaved", "interleaved")
PRECISIONS = (Precision(), Precision(products="fp8", parameters="fp8"))
IMPLEMENTATIONS = (
    Implementation(),
    Implementation(attention="plain"),
    Implementation(copies_shards=True, fuses_loss=False),
    Implementation(selective="operators", launch="compiled", repeats_keys=True),
)


def any_plan(choice: random.Random, *, has_experts: bool) -> Plan:
    schedule = choice.choice(SCHEDULES)
    has_chunks = schedule == "interleaved"
    return Plan(
        tensor=choice.choice((1, 1, 2, 4, 8)),
        context=choice.choice((1, 1, 2, 4)),
        data=choice.choice((1, 2, 3, 4, 8, 16)),
        pipeline=choice.choice((1, 2, 3, 4, 6, 8)),
        expert=choice.choice((1, 2, 4, 8)) if has_experts else 1,
        expert_tensor=choice.choice((None, 1)),
        micro_batch=choice.choice((1, 1, 2)),
        global_batch=choice.choice((48, 64, 96, 128)),
        sequence=choice.choice((1024, 2048)),
        schedule=schedule,
        num_chunks=choice.choice((1, 2, 3, 4)) if has_chunks else 1,
        contiguous=choice.choice((None, None, 4, 8, 16)) if has_chunks else None,
        sequence_parallel=choice.choice((True, False)),
        context_exchange=choice.choice(tuple(ContextExchange)),
        sharding=choice.choice(tuple(Sharding)),
        shard_ranks=choice.choice((None, None, 2, 4)),
        reshard_after_forward=choice.choice((True, False)),
        prefetch=choice.choice((0, 1, 2)),
        recompute=choice.choice(tuple(Recompute)),
        precision=choice.choice(PRECISIONS),
        implementation=choice.choice(IMPLEMENTATIONS),
    )


def legal_plans(model: Transformer, choice: random.Random) -> Iterator[Plan]:
    while True:
        plan = any_plan(choice, has_experts=model.experts is not None)
        try:
            check_plan(plan, model)
        except WorkloadError:
            continue
        yield plan


@pytest.mark.parametrize("name", MODELS)
def test_stages_hold_under_many_plans_what_they_hold_under_each(name: str) -> None:
    model = transformer(name)
    memory = PlanMemory(model)
    for plan, _ in zip(legal_plans(model, random.Random(name)), range(25), strict=False):
        alone = footprint(model, plan, schedule_of(plan))

        assert memory.stage_bytes(plan).tolist() == [one.total for one in alone.stages], plan
