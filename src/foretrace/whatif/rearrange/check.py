"""Whether a recording can be rearranged as asked; if not, the arithmetic and what would work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from foretrace.base import NotShownError, ScenarioError, WorkloadError
from foretrace.whatif.rearrange.buckets import have_sizes
from foretrace.whatif.rearrange.structure import casts_layers, changed_fields, schedule_or_refusal
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.scenario import Scenario
from foretrace.workload import (
    Axis,
    Group,
    Recompute,
    Sharding,
    axis_sizes,
    chunk_layers,
    expert_problems,
    groups_of,
    head_problems,
    nearest_divisor,
    run_problems,
    size_problems,
    token_problems,
    width_problems,
)

_OF_PASSES = {"num_microbatches", "recompute", "sharding", "overlap.gradients"}


def check(
    program: Program,
    before: Scenario,
    after: Scenario,
    *,
    has_model: bool = False,
    has_costs: bool = False,
) -> None:
    """Refuse what cannot run, and what this recording cannot be rearranged into.

    Raises:
        ScenarioError: for the first thing that is wrong, with the arithmetic and the nearest
            choice that would do.
    """
    for problem in _problems(after, is_other=_divided(before) != _divided(after)):
        raise ScenarioError(problem)
    for problem in _beyond_recordings(before, after, has_model=has_model):
        raise NotShownError(problem)
    try:
        for group in (Group.SHARD, Group.EXPERT):
            groups_of(after.plan, group)
    except WorkloadError as err:
        raise ScenarioError(str(err)) from err
    changed = set(changed_fields(before, after))
    if not changed:
        return
    for problem in _of_recording(program, before, changed):
        raise NotShownError(problem)
    unit_index = program.once(UnitIndex)
    _check_layers(unit_index, before, after, changed)
    for problem in _without_passes(unit_index, before, after, changed):
        raise NotShownError(problem)
    if {"num_microbatches", "schedule", "pipeline", "num_chunks", "contiguous"} & changed:
        is_known = has_model and has_costs and program.graph.has_device
        schedule_or_refusal(after.plan, has_layers=is_known)


def _problems(after: Scenario, *, is_other: bool) -> Iterator[str]:
    """Everything wrong that numbers alone show."""
    plan, sizes = after.plan, after.sizes
    yield from size_problems(plan)
    # What the recording itself does is no problem, even where its sizes are read wrongly.
    if is_other:
        yield from head_problems(plan, sizes.heads, sizes.key_value_heads)
        width = ("tp", plan.tensor, sizes.feed_forward, "of the feed-forward part")
        yield from width_problems([width])
        yield from expert_problems(plan, sizes.experts)
        yield from token_problems(plan, sizes.heads)
    yield from run_problems(plan)


def _divided(scenario: Scenario) -> tuple[object, ...]:
    """Everything that ranks divide a layer's work by, and what of."""
    plan = scenario.plan
    ranks = (plan.tensor, plan.context, plan.expert, plan.sequence_parallel)
    return (*ranks, plan.sequence, replace(scenario.sizes, layers=None))


def _beyond_recordings(before: Scenario, after: Scenario, *, has_model: bool) -> Iterator[str]:
    """What no piece of this recording shows."""
    old, new = before.plan, after.plan
    for name, key in (("context", "cp"), ("expert", "ep")):
        was, now = getattr(old, name), getattr(new, name)
        if was != now and 1 in {was, now} and not has_model:
            yield (
                f"{key} {was} -> {now}: the recording has no exchange of "
                f"{'keys and values' if key == 'cp' else 'tokens between experts'} that could be "
                f"{'added' if was == 1 else 'taken away'} with what it changes in its operators"
            )
    is_other = (old.context, old.expert) != (new.context, new.expert)
    is_other |= casts_layers(before, after)
    if is_other and has_model and (old.tensor > 1) != (new.tensor > 1):
        yield (
            f"tp {old.tensor} -> {new.tensor} beside cp, ep or products in another format: the "
            "recording shows neither which sums its layers need nor what else they exchange"
        )
    if old.recompute_of_layer != new.recompute_of_layer:
        yield "layers of [memory]: what single layers compute again is not in this recording"
    was_again, now_again = ((plan.recompute, plan.recompute_modules) for plan in (old, new))
    if was_again != now_again and Recompute.SELECTIVE in {old.recompute, new.recompute}:
        yield (
            f"recompute {old.recompute.value} -> {new.recompute.value}: which operators of a layer "
            "are computed again is not in this recording; only none and full can take each "
            "other's place"
        )
    shards = new.data * new.context if new.shard_ranks is None else new.shard_ranks
    if old.sharding is not new.sharding and shards != new.data * new.context:
        yield (
            f"shards over {shards} of {new.data * new.context} data-parallel ranks reduce "
            "gradients twice, which was not recorded: take all of them (leave the ranks out)"
        )
    deep = (Sharding.ZERO2, Sharding.ZERO3)
    if old.sharding is not new.sharding and old.sharding in deep:
        yield (
            f"sharding {old.sharding.value} -> {new.sharding.value}: when parameters or gradients "
            "would not be gathered and freed is not in this recording; only none and zero1 can be "
            "divided further"
        )
    if old.sharding is not new.sharding is Sharding.ZERO2 and new.num_chunks > 1:
        yield (
            f"sharding {old.sharding.value} -> {new.sharding.value} with {new.num_chunks} chunks "
            "on a stage: after which of them gradients are scattered is not in this recording"
        )


def _of_recording(program: Program, before: Scenario, changed: set[str]) -> Iterator[str]:
    if program.doubts:
        yield f"the recording's structure is not understood: {'; '.join(program.doubts)}"
    is_reduced = before.plan.data * before.plan.context > 1
    if "bucket_bytes" in changed and is_reduced and not have_sizes(program.graph):
        yield (
            "bucket_bytes: the recording does not say how many bytes its buckets of gradients "
            "hold, so none can be filled otherwise: record with shapes (record_shapes=True)"
        )
    own = {each.step for pieces in program.pieces_by_rank.values() for each in pieces}
    if own <= {-1}:
        yield "the recording has no steps that could be rearranged: record with step marks"
    sizes = axis_sizes(before.plan)
    recorded = {each.pipeline for each in program.coordinates_by_rank.values()}
    missing = sorted(set(range(sizes[Axis.PIPELINE])) - recorded)
    if missing and "pipeline" in changed:
        yield (
            f"stages {missing} of pp {before.plan.pipeline} were not recorded: record a rank of "
            "every stage, or keep the pipeline as it is"
        )


def _without_passes(
    unit_index: UnitIndex, before: Scenario, after: Scenario, changed: set[str]
) -> Iterator[str]:
    """What needs passes or layers, of a recording in which none were found."""
    is_first_reduced = "data" in changed and before.plan.data * before.plan.context == 1
    if not unit_index.has_units and (changed & _OF_PASSES or is_first_reduced):
        yield (
            "no forward or backward passes were found in the recording, so nothing of them can be "
            "repeated or changed: name them in a blocks file (see `inspect --blocks`)"
        )
    if "recompute" in changed and unit_index.has_backward and not unit_index.num_layers:
        yield (
            "recompute: no layers were found in the recording, whose forward work would be done "
            "again: name them in a blocks file (see `inspect --blocks`)"
        )
    if "tensor" in changed and before.plan.tensor == 1 and not unit_index.num_layers:
        yield (
            f"tp 1 -> {after.plan.tensor}: no layers were found in the recording, in which ranks "
            "would exchange: name them in a blocks file (see `inspect --blocks`)"
        )


def _check_layers(
    unit_index: UnitIndex, before: Scenario, after: Scenario, changed: set[str]
) -> None:
    plan = after.plan
    if not {"layers", "pipeline", "num_chunks", "layers_of_chunk"} & changed:
        return
    if not unit_index.num_layers:
        raise NotShownError(
            "no layers were found in the recording, so none can be added, left out or given to "
            "other stages: name them in a blocks file (see `inspect --blocks`)"
        )
    stated = before.sizes.layers
    if stated is not None and stated != unit_index.num_layers:
        raise ScenarioError(
            f"the recording shows {unit_index.num_layers} layers, and the sizes state {stated}: "
            "state as many as were recorded, or correct the blocks (see `inspect --blocks`)"
        )
    num_layers = unit_index.num_layers
    if "layers" in changed and after.sizes.layers is not None:
        num_layers = after.sizes.layers
    parts = plan.pipeline * plan.num_chunks
    if plan.layers_of_chunk is None and num_layers % parts:
        _refuse_uneven(num_layers, after)
    try:
        counts = chunk_layers(plan, num_layers)
    except WorkloadError as err:
        raise ScenarioError(str(err)) from err
    if min(counts) < 1:
        raise ScenarioError(
            f"{num_layers} layers over pp {plan.pipeline} x {plan.num_chunks} chunks leave a chunk "
            f"without layers: {num_layers} chunks at most"
        )


def _refuse_uneven(num_layers: int, after: Scenario) -> None:
    plan = after.plan
    parts = plan.pipeline * plan.num_chunks
    below = max(num_layers // parts, 1) * parts
    nearest = nearest_divisor(num_layers, parts)
    product = (
        f"pp {plan.pipeline}"
        if plan.num_chunks == 1
        else f"pp {plan.pipeline} x {plan.num_chunks} chunks = {parts} chunks"
    )
    raise ScenarioError(
        f"{num_layers} layers are not whole on {product}: {below} or {below + parts} layers "
        f"would be, or {'pp' if plan.num_chunks == 1 else 'chunks:'} {nearest}; or state how many "
        "each has (layers_of_chunk)"
    )
