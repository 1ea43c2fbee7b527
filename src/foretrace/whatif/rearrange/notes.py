"""What a new job takes for granted, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from foretrace.whatif.rearrange.recorded_parameters import Weights
from foretrace.whatif.rearrange.structure import (
    Structure,
    casts_layers,
    changed_fields,
    divides_layers,
)
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Plan, Recompute, Sharding, shard_size

# Fields of a plan that say how gradients are reduced, as users call them.
_OF_GRADIENTS = {
    "sharding": "sharding",
    "shard_ranks": "sharding.ranks",
    "bucket_bytes": "sharding.bucket_bytes",
    "overlap.gradients": "overlap.gradients",
}
_OF_TRAINING = {**_OF_GRADIENTS, "recompute": "recompute", "data": "dp"}


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
