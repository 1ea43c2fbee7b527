"""Whether a recording can be rearranged as asked, and what a new job takes for granted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from foretrace.base import NotShownError, ScenarioError, WorkloadError
from foretrace.whatif.rearrange.buckets import have_sizes
from foretrace.whatif.rearrange.recorded_parameters import Weights
from foretrace.whatif.rearrange.structure import (
    Structure,
    casts_layers,
    changed_fields,
    divides_layers,
    schedule_or_refusal,
)
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.scenario import Scenario
from foretrace.workload import (
    Axis,
    Group,
    Plan,
    Recompute,
    Sharding,
    axis_sizes,
    chunk_layers,
    expert_problems,
    groups_of,
    head_problems,
    nearest_divisor,
    run_problems,
    shard_size,
    size_problems,
    token_problems,
    width_problems,
)

# Fields of a plan that say how gradients are reduced, as users call them.
_OF_GRADIENTS = {
    "sharding": "sharding",
    "shard_ranks": "sharding.ranks",
    "bucket_bytes": "sharding.bucket_bytes",
    "overlap.gradients": "overlap.gradients",
}
_OF_TRAINING = {**_OF_GRADIENTS, "recompute": "recompute", "data": "dp"}

_OF_PASSES = {"num_microbatches", "recompute", "sharding", "overlap.gradients"}


def rearrangement_notes(
    unit_index: UnitIndex,
    structure: Structure,
    weights: Weights,
    scenarios: tuple[Scenario, Scenario],
) -> tuple[str, ...]:
    """What was assumed on the way from the first scenario to the second, a sentence each."""
    before, after = scenarios
    return (
        *_of_copies(unit_index, after),
        *_of_layers(unit_index, structure, weights),
        *_of_made(unit_index, structure, before, after),
        *_of_nothing(unit_index, before, after),
    )


def _of_copies(unit_index: UnitIndex, after: Scenario) -> Iterator[str]:
    plan = after.plan
    recorded = unit_index.program.coordinates_by_rank.values()
    for key, size, numbers in (
        ("dp", plan.data, {each.data for each in recorded}),
        ("tp", plan.tensor, {each.tensor for each in recorded}),
        ("cp", plan.context, {each.context for each in recorded}),
    ):
        own = max(len({number for number in numbers if number < size}), 1)
        if own < size:
            yield f"{own} of {key} {size} copies simulated: the others do the same at the same time"


def _of_layers(unit_index: UnitIndex, structure: Structure, weights: Weights) -> Iterator[str]:
    if structure.num_layers != unit_index.num_layers:
        yield (
            f"{structure.num_layers} layers repeat the work of {unit_index.num_layers} recorded "
            "ones, the first and the last at the ends; what updates parameters grows with "
            f"{weights.source}"
        )
    elif structure.layers_of_chunk.keys() != unit_index.layers_of_chunk.keys():
        yield (
            "layers run as on the recorded stages that had them; what updates parameters is "
            f"divided by {weights.source}"
        )


def _of_made(
    unit_index: UnitIndex, structure: Structure, before: Scenario, after: Scenario
) -> Iterator[str]:
    old, new = before.plan, after.plan
    if old.pipeline == 1 and new.pipeline > 1:
        yield "transfers between stages were not recorded: they are made, and their time modelled"
    if old.tensor == 1 and new.tensor > 1:
        yield (
            "sums over tensor-parallel ranks were not recorded: they are made in every layer, and, "
            "where the vocabulary is known, behind the embedding, the head and the loss; their "
            "time is modelled"
        )
    if min(old.tensor, new.tensor) > 1 and old.sequence_parallel != new.sequence_parallel:
        yield (
            "tensor-parallel ranks exchange at the same products in another way than recorded: all "
            "of it is made, and its time modelled"
        )
    if unit_index.has_backward and old.data * old.context == 1 and new.data * new.context > 1:
        yield (
            "reductions of gradients were not recorded: they are made as buckets become full, "
            f"in {new.precision.reduced}, and their time modelled"
        )
    if unit_index.has_backward and old.num_ranks == 1 and new.num_ranks > 1:
        yield "a gradient norm over all ranks is not among the exchanges: none was recorded"
    if new.data * new.context > 1 and (unit_index.has_backward or new.sharding is Sharding.ZERO3):
        yield from _of_sharding(old.sharding, new)
    yield from _of_model_layers(unit_index, before, after)
    if structure.has_halves:
        yield (
            "gradients of inputs and of weights were recorded as one pass: layers' backward passes "
            "are the stated model's halves, calibrated by the recorded ones; the head's stays whole"
        )
    is_again = old.recompute is not new.recompute and new.recompute is not Recompute.NONE
    if is_again and unit_index.has_backward:
        yield "recomputed layers take what their forward pass took, exchanges included"
    if new.pipeline > 1 and old.pipeline != new.pipeline:
        yield "a table shared by the first and the last stage is taken to be summed as before"


def _of_model_layers(unit_index: UnitIndex, before: Scenario, after: Scenario) -> Iterator[str]:
    new = after.plan
    is_divided, is_cast = divides_layers(before, after), casts_layers(before, after)
    if not is_divided and not is_cast:
        return
    formats = (f"with products in {new.precision.products}",) if is_cast else ()
    ranks = (f"under cp {new.context}, ep {new.expert}",) if is_divided else ()
    yield (
        f"layers {' '.join((*ranks, *formats))} were not recorded: they are the stated "
        "model's; its operators take what costs say of them, times what recorded layers took over "
        "what costs say of those, and are launched as slowly as recorded ones"
    )
    if is_cast:
        yield "products of the head, and casts beside the update, stay as recorded"
    if before.plan.expert != new.expert and unit_index.has_backward:
        yield "gradients of experts are taken to be reduced with all others, in as many bytes"


def _of_sharding(old: Sharding, new: Plan) -> Iterator[str]:
    if old is new.sharding:
        return
    share = f"the optimizer updates 1/{shard_size(new)} of the parameters"
    if new.sharding is Sharding.ZERO3:
        yield (
            f"{share}; these are gathered part by part before each pass, {new.prefetch} ahead, and "
            "gradients scattered behind it: all of it is made, and its time modelled"
        )
    elif new.sharding is Sharding.ZERO2:
        yield (
            f"{share}, gathered in buckets behind it; gradients are scattered in every backward "
            "pass: all of it is made, and its time modelled"
        )
    elif old is Sharding.NONE:
        yield f"{share}, gathered in buckets behind it"
    elif new.sharding is Sharding.NONE:
        yield "every rank updates all parameters, and gathers none"


def _of_nothing(unit_index: UnitIndex, before: Scenario, after: Scenario) -> Iterator[str]:
    """Edits that find nothing in this job to act on."""
    new = after.plan
    is_training = unit_index.has_backward
    keys = _OF_GRADIENTS if is_training else _OF_TRAINING
    acts = {"sharding"} if new.sharding is Sharding.ZERO3 and new.data * new.context > 1 else set()
    changed = (name for name in changed_fields(before, after) if name not in acts)
    found = ", ".join(keys[name] for name in changed if name in keys)
    if found and not is_training:
        yield f"forward passes only: nothing is done for {found}, as there are no gradients"
    elif found and new.data * new.context == 1:
        yield f"dp 1: nothing is done for {found}, as no gradients are reduced"


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
    if not unit_index.has_units:
        raise NotShownError(
            "the recorded layers are launched as one, as CUDA graphs are, so none can be added, "
            "left out or given to other stages: record without graphs, and predict with "
            "--cuda-graphs all"
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
