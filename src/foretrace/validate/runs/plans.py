"""`plans_of`: the plan that a published run ran by; where it was not printed, all that it may be.

What a table leaves open is tried over its legal values. The plan that counts as the answer takes
what the software does unless told otherwise; the others give the spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from foretrace.base import SIXTEEN_BITS, WorkloadError
from foretrace.validate.runs.configuration import chips_of_host
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import (
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Sharding,
    Transformer,
    check_plan,
    chunk_layers,
    software_draft,
    with_fields,
)

_T = TypeVar("_T")
_SHARDINGS = {
    **{one.value: one for one in Sharding},
    "ddp": Sharding.NONE,
    **dict.fromkeys(("zero3/fsdp", "fsdp", "fsdp2"), Sharding.ZERO3),
    "hsdp": Sharding.ZERO3,  # within a host, and whole on each
}
_SCHEDULES = ("none", "1f1b", "dualpipe", "gpipe")
_RECOMPUTES = {one.value: one for one in Recompute}
_MICRO_BATCHES = (1, 2, 4)  # of tables that do not print theirs


@dataclass(frozen=True)
class Planned:
    """Plans that a run may have had."""

    plans: tuple[Plan, ...]  # the answer first
    assumed: tuple[str, ...]  # what was not printed


def plans_of(run: PublishedRun, model: Transformer) -> Planned:
    """Every legal plan that agrees with what was printed, the likeliest first.

    Raises:
        WorkloadError: if no legal plan agrees, or what is missing leaves too much open.
    """
    _refuse_unknown(run)
    base = _base(run, has_experts=model.experts is not None)
    modules = _recompute_modules(run)
    recompute = _recomputes(run, base.recompute, modules)
    micro_batch = (run.micro_batch,) if run.micro_batch else _MICRO_BATCHES
    sharding = _shardings(run, base.sharding)
    assumed = tuple(
        name
        for name, values in (
            ("recompute", recompute),
            ("micro_batch", micro_batch),
            ("sharding", sharding),
        )
        if len(values) > 1
    )
    answers = (micro_batch[0], recompute[0], sharding[0])
    # One statement at a time is varied: what is likeliest of the others stays.
    choices = [
        answers,
        *((size, *answers[1:]) for size in micro_batch[1:]),
        *((answers[0], kept, answers[2]) for kept in recompute[1:]),
        *((*answers[:2], divided) for divided in sharding[1:]),
    ]
    plans: list[Plan] = []
    reasons: list[str] = []
    for size, kept, divided in choices:
        plan = replace(base, micro_batch=size, recompute=kept, sharding=divided)
        if modules and kept is Recompute.SELECTIVE:
            plan = replace(plan, recompute_modules=modules)
        if run.recompute_layers is not None and kept is Recompute.FULL:
            plan = _of_some_layers(plan, run.recompute_layers, model.num_layers)
        try:
            check_plan(plan, model)
        except WorkloadError as err:
            reasons.append(str(err))
        else:
            plans.append(plan)
    if not plans:
        raise WorkloadError(f"run {run.id!r} has no legal plan: {reasons[0]}")
    return Planned(tuple(plans), assumed)


def _refuse_unknown(run: PublishedRun) -> None:
    refusal = run.description.refusal(run.texts)
    if refusal is not None:
        raise WorkloadError(f"run {run.id!r} {refusal}: it is not predicted.")
    degrees = {"tp": run.tp, "pp": run.pp, "dp": run.replicas}
    missing = [name for name, degree in degrees.items() if degree is None]
    if missing:
        raise WorkloadError(
            f"run {run.id!r} does not say {', '.join(missing)}: fill the columns in."
        )


def _base(run: PublishedRun, *, has_experts: bool) -> Plan:
    """What the software does unless told otherwise, with what the row states instead."""
    stated = software_draft(run.described_software).plan()
    tensor, pipeline = run.tp or 1, run.pp or 1
    chunks = run.vp or 1
    sequence_parallel = run.sequence_parallel
    if sequence_parallel is None:
        sequence_parallel = stated.sequence_parallel
    within = chips_of_host(run) if run.sharding == "hsdp" else stated.shard_ranks
    plan = replace(
        stated,
        name=run.id,
        path=None,
        tensor=tensor,
        context=run.cp or 1,
        data=run.replicas or 1,
        pipeline=pipeline,
        expert=run.ep or 1,
        expert_tensor=1 if has_experts and (run.ep or 1) > 1 else None,
        global_batch=run.global_batch,
        sequence=run.seq_len,
        schedule=_schedule(run, pipeline=pipeline, chunks=chunks),
        num_chunks=chunks if pipeline > 1 and run.schedule != "dualpipe" else 1,
        sequence_parallel=sequence_parallel and tensor > 1,
        shard_ranks=within,
        reshard_after_forward=run.sharding != "zero2",
        precision=_precision(run, stated.precision),
        implementation=replace(stated.implementation, launch_times=run.launch_times),
    )
    stated_of_row = run.description.stated_plan(run.texts).with_keys(run.plan_keys)
    return with_fields(plan, stated_of_row.stated)


def _schedule(run: PublishedRun, *, pipeline: int, chunks: int) -> str:
    if pipeline == 1:
        return "none"
    named = (run.schedule or "").split(" ")[0]
    if named == "dualpipe":  # its two chunks of a rank are those of both directions
        return named
    if chunks > 1:
        return "interleaved"
    return named if named in _SCHEDULES else "1f1b"


def _precision(run: PublishedRun, stated: Precision) -> Precision:
    products = run.precision
    if products == "fp32":
        return Precision(
            products="fp32", activations="fp32", parameters="fp32", optimizer_bytes=8.0
        )
    kept = products if products in SIXTEEN_BITS else "bf16"
    return replace(stated, products=products, activations=kept, parameters=kept)


def _of_some_layers(plan: Plan, count: int, num_layers: int) -> Plan:
    """The plan whose chunks compute again their first layers, as many as stated, and no others.

    Source:
        NVIDIA/Megatron-LM, megatron/core/transformer/transformer_block.py: with the method "block"
        `recompute_num_layers` is of every chunk.
    """
    words: list[str] = []
    for held in chunk_layers(plan, num_layers):
        again = min(count, held)
        words += [Recompute.FULL.value] * again + [Recompute.NONE.value] * (held - again)
    return replace(plan, recompute_of_layer=tuple(words))


def _recompute_modules(run: PublishedRun) -> tuple[RecomputeModule, ...]:
    """What a column `recompute_modules` names, by spaces or commas; "none" is none.

    Source:
        NVIDIA-NeMo/Megatron-Bridge, scripts/performance/utils/overrides.py: modules that a
        configuration names are recomputed, selectively.
    """
    names = run.texts.get("recompute_modules", "").replace(",", " ").split()
    known = {one.value: one for one in RecomputeModule}
    unknown = [name for name in names if name not in known and name != "none"]
    if unknown:
        raise WorkloadError(
            f"run {run.id!r} recomputes modules called {', '.join(unknown)}: known are "
            f"{', '.join(known)}."
        )
    return tuple(known[name] for name in names if name != "none")


def _recomputes(
    run: PublishedRun, usual: Recompute, modules: Sequence[RecomputeModule]
) -> tuple[Recompute, ...]:
    if modules and run.recompute != Recompute.FULL.value:
        return (Recompute.SELECTIVE,)
    if run.recompute is None:
        return _first(usual, tuple(Recompute))
    known = _RECOMPUTES.get(run.recompute.split(" ")[0])
    if known is None:
        raise WorkloadError(
            f"run {run.id!r} recomputes {run.recompute!r}: known are {', '.join(_RECOMPUTES)}."
        )
    return (known,)


def _shardings(run: PublishedRun, usual: Sharding) -> tuple[Sharding, ...]:
    if run.sharding is None:
        if (run.replicas or 1) == 1:
            return (Sharding.NONE,)
        return _first(usual, (Sharding.NONE, Sharding.ZERO1))
    known = _SHARDINGS.get(run.sharding)
    if known is None:
        raise WorkloadError(
            f"run {run.id!r} is sharded by {run.sharding!r}: known are {', '.join(_SHARDINGS)}."
        )
    if known is Sharding.ZERO2 and (run.pp or 1) > 1:
        # Gradients of a stage are reduced once a step, after the last microbatch: MegaScale says
        # that its ZeRO 2 sends no more than plain data parallelism.
        return (Sharding.ZERO1,)
    is_gathered = known is Sharding.ZERO2 and run.described_software.is_fsdp
    return (Sharding.ZERO3,) if is_gathered else (known,)


def _first(chosen: _T, values: Sequence[_T]) -> tuple[_T, ...]:
    return (chosen, *(one for one in values if one != chosen))
