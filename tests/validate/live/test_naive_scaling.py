"""Naive scaling follows FLOPs and ranks, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.validate import BASE, CONFIGURATIONS, Configuration
from foretrace.validate.live.report import naive_step_ns, step_flops
from foretrace.workload import Convention, flops
from tests.validate.live.made import gpt

BASE_NS = 300_000_000


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: each.name)
def test_flops_are_those_of_the_model(configuration: Configuration) -> None:
    settings = configuration.settings
    tokens = settings.data * settings.num_microbatches * settings.micro_batch * settings.sequence

    expected = flops(gpt(settings), settings.sequence, convention=Convention.CAUSAL).training

    assert step_flops(settings) == pytest.approx(expected * tokens, rel=0.01)


def test_disturbances_buckets_and_more_copies_change_nothing() -> None:
    for changed in (
        replace(BASE, data=4),
        replace(BASE, bucket_bytes=1 << 20),
        replace(BASE, slow_rank=1, slow_ns=10_000_000),
        replace(BASE, network_delay_ns=10_000_000),
    ):
        assert naive_step_ns(BASE_NS, BASE, changed) == BASE_NS


def test_twice_the_ranks_for_the_same_work_take_half_as_long() -> None:
    changed = replace(BASE, pipeline=2)

    assert naive_step_ns(BASE_NS, BASE, changed) == BASE_NS // 2
