"""The list is fixed: what a what-if is told is what the program is started with."""

from __future__ import annotations

import pytest

from foretrace.graph import Part, Phase
from foretrace.validate import BASE, CONFIGURATIONS, Configuration
from foretrace.whatif import Delay, Network, Scenario, Sizes
from foretrace.workload import Plan

# The names, in order, as they were written down before the first measurement.
FIXED = (
    "data-1",
    "data-4",
    "layers-8",
    "layers-2",
    "hidden-384",
    "microbatch-2",
    "microbatch-8",
    "microbatches-1",
    "microbatches-4",
    "sequence-256",
    "pipeline-2",
    "pipeline-4",
    "tensor-2",
    "buckets-1MiB",
    "one-bucket",
    "no-overlap",
    "slow-rank",
    "slow-network",
    "layers-8-pipeline-2",
    "pipeline-2-data-2",
    "tensor-2-data-2",
)


def recorded() -> Scenario:
    """The base, as its recording will say."""
    return Scenario(
        sizes=Sizes(
            layers=BASE.layers,
            hidden=BASE.hidden,
            feed_forward=BASE.feed_forward,
            heads=BASE.heads,
            vocabulary=BASE.vocabulary,
        ),
        plan=Plan(
            data=BASE.data,
            micro_batch=BASE.micro_batch,
            global_batch=BASE.data * BASE.micro_batch * BASE.num_microbatches,
            sequence=BASE.sequence,
            bucket_bytes=BASE.bucket_bytes,
        ),
    )


def test_nothing_was_dropped_or_renamed() -> None:
    assert tuple(each.name for each in CONFIGURATIONS) == FIXED


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: each.name)
def test_edits_say_what_the_program_is_started_with(configuration: Configuration) -> None:
    scenario, settings = recorded(), configuration.settings

    for edit in configuration.edits:
        scenario = edit.applied(scenario)

    sizes, plan = scenario.sizes, scenario.plan
    assert (sizes.layers, sizes.hidden, sizes.heads, sizes.feed_forward, sizes.vocabulary) == (
        settings.layers,
        settings.hidden,
        settings.heads,
        settings.feed_forward,
        settings.vocabulary,
    )
    assert (plan.tensor, plan.data, plan.pipeline) == (
        settings.tensor,
        settings.data,
        settings.pipeline,
    )
    assert (plan.micro_batch, plan.num_microbatches, plan.sequence) == (
        settings.micro_batch,
        settings.num_microbatches,
        settings.sequence,
    )
    assert plan.bucket_bytes == settings.bucket_bytes
    assert plan.overlap.gradients == settings.overlaps_gradients


def test_every_configuration_can_run() -> None:
    for each in CONFIGURATIONS:
        settings = each.settings
        assert settings.layers % settings.pipeline == 0, each.name
        assert settings.heads % settings.tensor == 0, each.name
        assert settings.hidden % settings.heads == 0, each.name
        assert settings.num_microbatches >= settings.pipeline, each.name


def test_disturbances_are_stated_as_they_are_made() -> None:
    by_name = {each.name: each for each in CONFIGURATIONS}
    slow, network = by_name["slow-rank"], by_name["slow-network"]

    delay, transfers = slow.edits[0], network.edits[0]

    assert isinstance(delay, Delay)
    assert (delay.extra_ns, delay.of.ranks) == (slow.settings.slow_ns, (slow.settings.slow_rank,))
    assert (delay.of.parts, delay.of.phases, delay.once_per_block) == (
        (Part.LAYER,),
        (Phase.FORWARD,),
        True,
    )
    assert isinstance(transfers, Network)
    assert (transfers.extra_ns, transfers.factor) == (network.settings.network_delay_ns, 1.0)
