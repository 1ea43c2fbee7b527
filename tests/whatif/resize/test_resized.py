"""`resized`: what an edited job's nodes take, held against the same model laid out at new sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrace.base import Int64s, ScenarioError
from foretrace.cost import (
    CollectiveRequests,
    CostModel,
    Costs,
    FittedCosts,
    KernelRequests,
    Source,
    graph_costs,
    step_costs,
)
from foretrace.graph import DEVICE_KINDS, NO_COLLECTIVE, NO_NODE, ExecutionGraph, NodeKind, Part
from foretrace.machine import load_machine
from foretrace.whatif.arrange.arranged import Arranged, unchanged
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.recorded.read import program_of
from foretrace.whatif.resize.notes import resize_notes
from foretrace.whatif.resize.resized import costs_of, resizing
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Group, Plan, Transformer
from tests.truth import JobConfig, single_kernel_layer
from tests.whatif.recorded.recordings import recording_of
from tests.whatif.resize.models import (
    costs,
    laid_out,
    machine,
    program_of_model,
    with_sizes,
)
from tests.whatif.resize.test_read import loaded, small_model

STAGES = Plan(tensor=2, pipeline=2, micro_batch=2, global_batch=8, sequence=1024)
WORKING = (*DEVICE_KINDS, NodeKind.FINISH)


def resized(
    arranged: Arranged,
    program: Program,
    before: Scenario,
    after: Scenario,
    *,
    costs: CostModel | None = None,
) -> Costs:
    """Costs of an arranged job's nodes, as a prediction takes them."""
    return costs_of(arranged, resizing(arranged, program, before, after, costs=costs))


@cache
def program() -> Program:
    """A small Llama on two stages of two tensor ranks, as the cost model says."""
    return program_of_model(small_model(), STAGES)


@cache
def base() -> Scenario:
    """Its scenario."""
    return base_scenario(program(), machine=machine())


def edited(sizes: dict[str, Any], plan: dict[str, Any]) -> Scenario:
    """The base with other sizes and keys of its plan."""
    new = replace(base().plan, **plan)
    whole = base().plan.num_microbatches * new.micro_batch * new.data
    return replace(
        base(), sizes=replace(base().sizes, **sizes), plan=replace(new, global_batch=whole)
    )


def model_of(scenario: Scenario) -> tuple[Transformer, Plan]:
    """The edited model itself, and its plan."""
    plan = scenario.plan
    keys: dict[str, Any] = {"micro_batch": plan.micro_batch, "sequence": plan.sequence}
    stages = replace(STAGES, **keys, global_batch=plan.global_batch)
    return with_sizes(small_model(), scenario.sizes), stages


def test_the_same_sizes_take_what_was_measured_to_the_nanosecond() -> None:
    found = resized(unchanged(program().graph), program(), base(), base(), costs=costs())

    assert np.array_equal(found.duration_ns, program().graph.measured_ns)
    assert np.array_equal(found.low_ns, found.high_ns)
    assert (found.source == Source.MEASURED).all()


@pytest.mark.parametrize(
    ("sizes", "plan"),
    [
        ({}, {"sequence": 2048}),
        ({}, {"micro_batch": 4}),
        ({"feed_forward": 16_384}, {}),
        ({"hidden": 4096, "head_width": 128}, {}),
        ({"vocabulary": 64_000}, {}),
        ({"heads": 64}, {}),
    ],
    ids=["sequence", "microbatch", "feed-forward", "hidden", "vocabulary", "heads"],
)
def test_every_operation_takes_what_the_model_laid_out_at_the_new_sizes_takes(
    sizes: dict[str, int], plan: dict[str, int]
) -> None:
    """Measured as the cost model says, so the scaled time is the model's at the new size."""
    after = edited(sizes, plan)
    graph = program().graph
    other, wanted = laid_out(*model_of(after))

    found = resized(unchanged(graph), program(), base(), after, costs=costs())

    assert np.array_equal(graph.kind, other.kind)
    is_model = graph.is_of(*WORKING) & (graph.part != Part.OPTIMIZER)
    error = np.abs(found.duration_ns - wanted.duration_ns)[is_model]
    # Filling a table with zeros has no model: it goes by elements, its start included.
    assert (error <= np.maximum(2, 0.02 * wanted.duration_ns[is_model])).all()
    is_optimizer = graph.part == Part.OPTIMIZER
    # Vectors of all parameters say nothing of themselves: norms and biases are not counted.
    assert found.duration_ns[is_optimizer].sum() == pytest.approx(
        wanted.duration_ns[is_optimizer].sum(), rel=0.02
    )


def test_doubling_and_halving_gives_the_measured_times_back() -> None:
    """From the doubled model's own recording."""
    after = edited({}, {"sequence": 2048})
    doubled = program_of_model(*model_of(after))
    back = base_scenario(doubled, machine=machine())
    halved = replace(back, plan=replace(back.plan, sequence=1024))

    there = resized(unchanged(program().graph), program(), base(), after, costs=costs())
    found = resized(unchanged(doubled.graph), doubled, back, halved, costs=costs())

    assert np.abs(there.duration_ns - doubled.graph.measured_ns).max() <= 2
    assert np.abs(found.duration_ns - program().graph.measured_ns).max() <= 2


def test_a_pieces_scale_stays_in_what_is_measured() -> None:
    graph = program().graph
    is_optimizer = (graph.part == Part.OPTIMIZER) & graph.is_device
    scale = np.where(is_optimizer, 2.0, 1.0)
    arranged = replace(
        unchanged(graph),
        graph=replace(graph, measured_ns=(graph.measured_ns * scale).astype(np.int64)),
        scale=scale,
    )

    found = resized(arranged, program(), base(), base(), costs=costs())

    assert np.array_equal(found.duration_ns, arranged.graph.measured_ns)


def test_host_time_stays() -> None:
    graph = program().graph
    is_host = ~graph.is_of(*WORKING)

    found = resized(
        unchanged(graph), program(), base(), edited({}, {"sequence": 2048}), costs=costs()
    )

    assert np.array_equal(found.duration_ns[is_host], graph.measured_ns[is_host])


def test_without_any_model_products_grow_with_their_work_and_the_interval_holds_the_model() -> None:
    """The recording's own lines: here the truth is the model that made it."""
    after = replace(edited({}, {"sequence": 2048}), machine=None)
    graph = program().graph
    _, wanted = laid_out(*model_of(after))
    is_product = np.zeros(graph.num_nodes, np.bool_)
    found = resizing(unchanged(graph), program(), replace(base(), machine=None), after)
    is_product = found.signatures.weight >= 0

    own = costs_of(unchanged(graph), found)

    ratio = own.duration_ns[is_product].sum() / graph.measured_ns[is_product].sum()
    truth = wanted.duration_ns[is_product].sum() / graph.measured_ns[is_product].sum()
    assert ratio == pytest.approx(truth, rel=0.05)
    assert (own.source[is_product] == Source.SCALED).all()
    low, high = own.low_ns[is_product].sum(), own.high_ns[is_product].sum()
    assert low < wanted.duration_ns[is_product].sum() < high


def with_made_sum(number: int) -> Arranged:
    """The recorded graph with the first sums of tensor ranks made instead of recorded."""
    graph = program().graph
    group = [group.value for group in Group].index(Group.TENSOR.value)
    chosen = np.flatnonzero(program().group_of_collective == group)[:number]
    is_made = (graph.kind == NodeKind.FINISH) & np.isin(graph.collective, chosen)
    source = np.where(is_made, NO_NODE, np.arange(graph.num_nodes))
    collective = np.arange(len(graph.collectives), dtype=np.int32)
    collective[chosen] = NO_COLLECTIVE
    measured_ns = np.where(is_made, 0, graph.measured_ns)
    return Arranged(
        graph=replace(graph, measured_ns=measured_ns),
        source=source,
        source_collective=collective,
        scale=np.ones(graph.num_nodes),
    )


@pytest.mark.parametrize("model", [None, costs()], ids=["recording", "machine"])
def test_an_exchange_that_was_made_takes_what_recorded_ones_of_its_group_take(
    model: FittedCosts | None,
) -> None:
    arranged = with_made_sum(1)
    graph = program().graph
    is_made = (arranged.source == NO_NODE) & (graph.kind == NodeKind.FINISH)
    scenario = base() if model is not None else replace(base(), machine=None)

    found = resized(arranged, program(), scenario, scenario, costs=model)

    assert (found.source[is_made] == Source.FITTED).all()
    assert found.duration_ns[is_made] == pytest.approx(graph.measured_ns[is_made], rel=0.02)
    others = ~is_made
    assert np.array_equal(found.duration_ns[others], graph.measured_ns[others])


def test_slower_links_change_transfers_as_the_models_of_both_say_and_nothing_else() -> None:
    old = machine()
    tiers = tuple(replace(tier, bytes_per_ns=tier.bytes_per_ns / 4) for tier in old.tiers)
    slower = replace(old, tiers=tiers)
    after = replace(base(), machine=slower)
    graph = program().graph
    is_finish = graph.kind == NodeKind.FINISH

    found = resized(unchanged(graph), program(), base(), after)

    rest = ~is_finish
    assert np.array_equal(found.duration_ns[rest], graph.measured_ns[rest])
    both = [graph_costs(_open(graph), step_costs(one)) for one in (old, slower)]
    ratio = both[1].duration_ns[is_finish] / both[0].duration_ns[is_finish]
    expected = graph.measured_ns[is_finish] * ratio
    assert found.duration_ns[is_finish] == pytest.approx(expected, rel=1e-3)


def _open(graph: ExecutionGraph) -> ExecutionGraph:
    """A graph whose transfers nobody measured."""
    is_finish = graph.kind == NodeKind.FINISH
    return replace(graph, measured_ns=np.where(is_finish, 0, graph.measured_ns))


def test_another_chip_changes_kernels_by_the_ratio_of_both_models() -> None:
    after = replace(base(), machine=load_machine("perlmutter-gpu"))
    graph = program().graph
    is_kernel = graph.is_device

    found = resized(unchanged(graph), program(), base(), after)

    ratio = found.duration_ns[is_kernel].sum() / graph.measured_ns[is_kernel].sum()
    # Memory bandwidth of 3,350 and 1,555 GB/s, peaks of 989 and 312 TFLOP/s: data sheets.
    assert 3350 / 1555 * 0.7 < ratio < 989 / 312 * 1.2
    assert (found.source[is_kernel] == Source.SCALED).mean() > 0.9


def test_moving_to_a_machine_from_nowhere_is_refused() -> None:
    before = replace(base(), machine=None)

    with pytest.raises(ScenarioError, match="nobody said what it was recorded on"):
        resized(unchanged(program().graph), program(), before, base())


class OnlyCollectives:
    """A model that knows transfers alone."""

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """Nothing is known."""
        zeros = np.zeros(len(requests), np.int64)
        unknown = np.full(len(requests), Source.UNKNOWN, np.uint8)
        return Costs(zeros, zeros, zeros, unknown, np.zeros(len(requests), np.int32), ("",))

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """A microsecond each."""
        ones = np.full(len(requests), 1_000, np.int64)
        table = np.full(len(requests), Source.TABLE, np.uint8)
        return Costs(ones, ones, ones, table, np.zeros(len(requests), np.int32), ("",))


def test_where_a_model_knows_no_kernels_the_recording_answers() -> None:
    before = replace(base(), machine=None)
    after = replace(edited({}, {"sequence": 2048}), machine=None)
    graph = program().graph
    is_kernel = graph.is_device

    own = resized(unchanged(graph), program(), before, after)
    found = resized(unchanged(graph), program(), before, after, costs=OnlyCollectives())

    assert np.array_equal(found.duration_ns[is_kernel], own.duration_ns[is_kernel])


def test_backward_work_without_shapes_follows_the_forward_work_of_its_class() -> None:
    """Kernels of a generated job's backward pass have no shapes."""
    config = JobConfig(num_layers=2, num_steps=1, has_ends=False)
    recorded = program_of(recording_of(config))
    before = base_scenario(recorded)
    after = replace(before, plan=replace(before.plan, sequence=4096))
    graph = recorded.graph
    found = resizing(unchanged(graph), recorded, before, after)
    new = costs_of(unchanged(graph), found)

    is_backward = found.ratios.is_guessed & (graph.part == Part.LAYER)
    gemm = np.array(["gemm" in graph.names[name] for name in graph.name.tolist()])
    forward = gemm & ~found.ratios.is_guessed & (found.signatures.weight >= 0)
    ratios = [
        new.duration_ns[chosen].sum() / graph.measured_ns[chosen].sum()
        for chosen in (forward, gemm & is_backward)
    ]

    assert is_backward.any()
    assert ratios[1] == pytest.approx(ratios[0], rel=1e-3)
    notes = resize_notes(unchanged(graph), found, new, before, after)
    assert any("has no shapes that sizes explain" in note for note in notes)


def test_a_note_says_how_much_of_the_work_a_change_of_tensor_ranks_costs_anew() -> None:
    after = edited({}, {"tensor": 4})
    found = resizing(unchanged(program().graph), program(), base(), after, costs=costs())
    new = costs_of(unchanged(program().graph), found)

    notes = resize_notes(unchanged(program().graph), found, new, base(), after)

    assert notes[0].startswith("tp 2 -> 4: products are costed anew from their shapes")


def test_the_identity_has_no_notes() -> None:
    found = resizing(unchanged(program().graph), program(), base(), base(), costs=costs())

    notes = resize_notes(
        unchanged(program().graph),
        found,
        costs_of(unchanged(program().graph), found),
        base(),
        base(),
    )

    assert notes == ()


def test_more_tensor_ranks_than_a_size_divides_into_are_refused() -> None:
    with pytest.raises(ScenarioError, match="is not whole"):
        resized(unchanged(program().graph), program(), base(), edited({}, {"tensor": 3}))


def test_products_of_megatron_change_as_their_flops_do(data_dir: Path) -> None:
    """Half the tensor ranks: twice the FLOPs each; twice the sequence: twice, scores four times."""
    recorded = loaded(data_dir / "traces" / "megatron-tp8")
    before = base_scenario(recorded)
    graph = recorded.graph
    ratios = {}
    edits: dict[str, dict[str, Any]] = {"tensor": {"tensor": 4}, "sequence": {"sequence": 4096}}
    for name, keys in edits.items():
        after = replace(before, plan=replace(before.plan, **keys))
        found = resizing(unchanged(graph), recorded, before, after)
        new = costs_of(unchanged(graph), found)
        is_product = found.signatures.weight >= 0
        ratios[name] = new.duration_ns[is_product].sum() / graph.measured_ns[is_product].sum()

    assert ratios["tensor"] == pytest.approx(2, rel=0.1)
    assert ratios["sequence"] == pytest.approx(2, rel=0.1)


def test_a_size_that_no_shape_shows_cannot_be_edited() -> None:
    recorded = program_of(recording_of(JobConfig(num_layers=2, num_steps=1)))
    before = base_scenario(recorded)
    after = replace(before, sizes=replace(before.sizes, vocabulary=1000))

    with pytest.raises(ScenarioError, match="vocabulary becomes 1,000, and no recorded shape"):
        resized(unchanged(recorded.graph), recorded, before, after)


def test_a_change_of_experts_is_left_to_estimates() -> None:
    before = replace(base(), sizes=replace(base().sizes, experts=8))
    after = replace(base(), sizes=replace(base().sizes, experts=16))

    with pytest.raises(ScenarioError, match="experts 8 -> 16"):
        resized(unchanged(program().graph), program(), before, after)


def test_without_attention_no_width_and_no_sequence_can_be_told() -> None:
    config = JobConfig(num_layers=2, num_steps=1, layer=single_kernel_layer(10_000, 20_000))
    recorded = program_of(recording_of(config))
    before = base_scenario(recorded)
    wider = replace(before, sizes=replace(before.sizes, hidden=8192))
    longer = replace(before, plan=replace(before.plan, sequence=4096))

    for after in (wider, longer):
        with pytest.raises(ScenarioError, match="no attention was recorded"):
            resized(unchanged(recorded.graph), recorded, before, after)


@pytest.mark.parametrize(
    ("tensor", "edit"),
    [
        (2, {"tensor": 4}),
        (4, {"tensor": 2}),  # the share of the feed-forward width is the hidden size, and 2,048
        (2, {"tensor": 8}),  # tokens are both
        (4, {"sequence_parallel": True}),
    ],
)
def test_kernels_of_other_tensor_ranks_are_those_of_the_model_divided_so(
    tensor: int, edit: dict[str, Any]
) -> None:
    plan = Plan(tensor=tensor, micro_batch=2, global_batch=2, sequence=1024)
    recorded = program_of_model(small_model(), plan)
    before = base_scenario(recorded, machine=machine())
    after = replace(before, plan=replace(before.plan, **edit))
    other, wanted = laid_out(small_model(), replace(plan, **edit))

    found = resized(unchanged(recorded.graph), recorded, before, after, costs=costs())

    own = _by_kernel(recorded.graph, found.duration_ns)
    expected = _by_kernel(other, wanted.duration_ns)
    assert own.keys() == expected.keys()
    wrong = [name for name, ns in own.items() if ns != pytest.approx(expected[name], rel=0.005)]
    # No model knows a filling with zeros, and the norm's vector holds norms that nobody divides.
    elsewhere = ("embedding gradient zeros", "accumulation of embedding gradient")
    assert {name for _, name in wrong} <= {*elsewhere, *OF_PARAMETERS}
    assert all(own[name] == pytest.approx(expected[name], rel=0.05) for name in wrong)


OF_PARAMETERS = ("gradient norm", "clipping", "Adam", "cast of parameters", "gradients to zero")


def _by_kernel(graph: ExecutionGraph, duration_ns: Int64s) -> dict[tuple[int, str], int]:
    """Time of the first rank's kernels, by part and name."""
    found: dict[tuple[int, str], int] = {}
    for node in np.flatnonzero(graph.is_device & (graph.rank == 0)).tolist():
        key = (int(graph.part[node]), graph.names[int(graph.name[node])])
        found[key] = found.get(key, 0) + int(duration_ns[node])
    return found
