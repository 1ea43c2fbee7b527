"""What a plan has to agree with where the model is a module's own code, which is there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from foretrace.operators import ModuleProgram
from foretrace.workload.models.recompute import Recompute
from foretrace.workload.plan.keys import Value
from foretrace.workload.plan.plan import Plan

# Keys that change what runs inside layers, which a module decides for itself.
_NEEDS_A_ZOO_MODEL = (("context", "cp"), ("expert", "ep"))


_TWO_MOMENTS = 8.0  # bytes for a parameter, each in fp32: Adam


def settled_by_program(program: ModuleProgram) -> Mapping[str, Value]:
    """Fields of a plan that follow from what was captured."""
    found: dict[str, Value] = {"micro_batch": program.batch}
    if program.sequence is not None:
        found["sequence"] = program.sequence
    if program.tensor > 1:
        found["tensor"] = program.tensor
    if program.computes_again:
        found["recompute"] = Recompute.NONE
    if program.product_dtype:
        found["precision.products"] = program.product_dtype
        found["precision.activations"] = program.product_dtype
    if program.parameter_dtype:
        found["precision.parameters"] = program.parameter_dtype
    if program.parameter_dtype == "fp32":  # then the optimizer keeps no copy of its own
        found["precision.optimizer_bytes"] = _TWO_MOMENTS
    return found


def problems_of_program(plan: Plan, program: ModuleProgram) -> Iterator[str]:
    """Everything that a plan says otherwise than what was captured."""
    name = program.name
    for field, key in _NEEDS_A_ZOO_MODEL:
        size = getattr(plan, field)
        if size > 1:
            yield (
                f"{key} is {size}, and {name} is a module's own code, which only dp, pp and, where "
                f"it is divided, tp lay out: leave {key} out"
            )
    if plan.tensor != program.tensor:
        yield (
            f"tp is {plan.tensor}, and {name} was captured for tp {program.tensor}: capture it "
            f"with tensor={plan.tensor} and say how its linear layers are divided"
        )
    if plan.sequence_parallel:
        yield f"sequence_parallel is on, and {name} does not divide tokens: set it to false"
    if plan.micro_batch != program.batch:
        yield (
            f"micro_batch is {plan.micro_batch}, and {name} was captured with {program.batch} "
            f"samples: set it to {program.batch}, or capture with other inputs"
        )
    if program.sequence is not None and plan.sequence != program.sequence:
        yield (
            f"sequence is {plan.sequence:,}, and {name} was captured with {program.sequence:,} "
            f"tokens: set it to {program.sequence:,}, or capture with other inputs"
        )
    yield from _of_recompute(plan, program)
    chunks, most = plan.pipeline * plan.num_chunks, program.num_layers + 2
    if chunks > most:
        yield (
            f"pp {plan.pipeline} x {plan.num_chunks} chunks a stage = {chunks} chunks for "
            f"{program.num_layers} layers of {name} leaves some empty: take pp "
            f"{program.num_layers} at most, or name its layers as it is captured"
        )
    if plan.tables is not None:
        yield f"there are [tables], and {name} is a module's own code: leave them out"


def _of_recompute(plan: Plan, program: ModuleProgram) -> Iterator[str]:
    if plan.recompute is Recompute.NONE:
        return
    if program.computes_again:
        yield (
            f"recompute is {plan.recompute.value!r}, and {program.name} computes again what it "
            "likes in its own code: set it to 'none'"
        )
    if plan.recompute is Recompute.SELECTIVE and plan.implementation.selective != "operators":
        yield (
            f"recompute is 'selective' by {plan.implementation.selective!r}, and nobody knows what "
            f"{program.name} calls its scores: take selective = 'operators', 'full' or 'none'"
        )
