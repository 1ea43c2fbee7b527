"""Parts of layers that are done again by name: what is kept, and what it takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from foretrace.base import WorkloadError
from foretrace.graph import Phase
from foretrace.machine import load_machine
from foretrace.workload import (
    Footprint,
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Transformer,
    blocks_of_model,
    check_plan,
    complete,
    footprint,
    layer_bytes,
    load_model,
    load_plan,
    schedule_of,
    software_of,
)

PLAN = Plan(global_batch=8, sequence=2048, data=8, recompute=Recompute.SELECTIVE)
DEEPSEEK = load_model("deepseek-v3")
LLAMA = load_model("llama3-8b")


def held(model: object, plan: Plan) -> Footprint:
    assert isinstance(model, Transformer)
    return footprint(model, plan, schedule_of(plan))


def again(model: object, plan: Plan, layer: int = -1) -> list[str]:
    assert isinstance(model, Transformer)
    items = blocks_of_model(model, plan).layers[layer].backward.items
    return [getattr(one, "label", "") for one in items if one.phase == Phase.RECOMPUTE]


def test_each_module_keeps_less_and_takes_its_own_operators() -> None:
    plan = replace(PLAN, expert=8)
    kept = held(DEEPSEEK, replace(plan, recompute=Recompute.NONE)).peak.activations
    for module in RecomputeModule:
        one = replace(plan, recompute_modules=(module,))
        layer = 0 if module is RecomputeModule.FEED_FORWARD else -1

        assert held(DEEPSEEK, one).peak.activations < kept, module
        assert again(DEEPSEEK, one, layer), module


def test_more_modules_never_keep_more() -> None:
    plan = replace(PLAN, expert=8)
    modules = tuple(RecomputeModule)
    for pair in combinations(modules, 2):
        both = held(DEEPSEEK, replace(plan, recompute_modules=pair)).peak.activations
        for one in pair:
            alone = held(DEEPSEEK, replace(plan, recompute_modules=(one,))).peak.activations
            assert both <= alone, pair


def test_the_scores_alone_are_what_selective_means() -> None:
    named = replace(PLAN, recompute_modules=(RecomputeModule.CORE_ATTENTION,))

    assert held(LLAMA, named) == held(LLAMA, PLAN)
    assert again(LLAMA, named) == again(LLAMA, PLAN) == ["attention"]


def test_what_is_done_again_is_what_the_names_say() -> None:
    plan = replace(PLAN, expert=8)
    up = again(DEEPSEEK, replace(plan, recompute_modules=(RecomputeModule.LATENT_UP,)))
    norms = again(DEEPSEEK, replace(plan, recompute_modules=(RecomputeModule.LAYER_NORM,)))
    acts = again(DEEPSEEK, replace(plan, recompute_modules=(RecomputeModule.EXPERT_ACTIVATION,)))

    assert "key and value up projection" in up
    assert "key and value down projection" not in up
    assert {"attention norm", "feed-forward norm"} == set(norms)
    assert set(acts) == {"SwiGLU"}


def test_narrow_inputs_of_gates_are_kept_narrow() -> None:
    wide = replace(PLAN, recompute=Recompute.NONE)
    narrow = replace(wide, precision=Precision(gate_inputs="fp8"))

    assert held(LLAMA, narrow).peak.activations < held(LLAMA, wide).peak.activations


def test_modules_without_selective_recompute_are_refused() -> None:
    modules = (RecomputeModule.EXPERTS,)
    for kind in (Recompute.NONE, Recompute.FULL):
        plan = replace(PLAN, recompute=kind, recompute_modules=modules)
        with pytest.raises(WorkloadError, match=r"names moe: set recompute to 'selective'"):
            check_plan(plan, LLAMA)


def test_the_published_plan_of_deepseek_v3_fits_its_machine() -> None:
    """It ran on 2,048 chips of 80 GB: arXiv:2412.19437, sections 3.2 and 3.3."""
    chip = load_machine("deepseek-v3-2k").chip
    plan = complete(load_plan("deepseek-v3"), DEEPSEEK, 2048)
    assert isinstance(DEEPSEEK, Transformer)
    found = footprint(DEEPSEEK, plan, schedule_of(plan), chip=chip)
    without = replace(plan, recompute=Recompute.NONE, recompute_modules=None)

    assert found.fits
    assert not footprint(DEEPSEEK, without, schedule_of(without), chip=chip).fits


def test_norms_in_pieces_that_are_made_again_keep_their_input_alone() -> None:
    assert isinstance(LLAMA, Transformer)
    unfused = replace(PLAN.implementation, fuses_norms=False)
    again = replace(PLAN, recompute_modules=(RecomputeModule.LAYER_NORM,))
    numbers = PLAN.micro_batch * PLAN.sequence * LLAMA.hidden
    statistics = 2 * 4 * PLAN.micro_batch * PLAN.sequence
    kept = []
    for plan in (replace(PLAN, recompute=Recompute.NONE), again):
        for own in (plan, replace(plan, implementation=unfused)):
            layer = layer_bytes(LLAMA, own, software_of(own), layer=LLAMA.layers[0])
            kept.append(layer.kept_bytes)

    fused, pieces, fused_again, pieces_again = kept
    # Of both norms, in bf16: what is made of x. In pieces, x in fp32 and before its scale instead.
    assert fused - fused_again == 2 * numbers * 2 + statistics
    assert pieces - pieces_again == 2 * numbers * (4 + 2 + 2 - 2) + statistics
    assert pieces_again == fused_again
