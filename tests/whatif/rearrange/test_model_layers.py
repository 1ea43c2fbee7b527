"""Layers made from a model where context or expert ranks divide them as none recorded do."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import MachineError, ScenarioError
from foretrace.cost import Source
from foretrace.graph import DEVICE_KINDS, NodeKind, Part, Phase, verify
from foretrace.machine import load_machine
from foretrace.whatif import Edit, Parallelism, PlanKeys, Prediction, baseline_of, predict
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.rearrange.rearranged import rearranged
from foretrace.whatif.recorded.program import MadeExchange, MadeOperator, NewJob
from foretrace.workload import Model, load_model
from tests.acceptance.edited_jobs import job
from tests.graph.recorded import recording_of
from tests.truth import make_job

SHAPES = job(tp=1, dp=2, pp=1, layers=3, microbatches=2)
DENSE = load_model("llama3-8b")  # as wide as what is recorded
MIXED = load_model("mixtral-8x7b")
CP, EP = Parallelism(cp=2), Parallelism(ep=2)


def baseline(model: Model | None) -> Baseline:
    """A generated job of two data-parallel ranks on eight chips."""
    machine = load_machine("dgx-h100")
    return baseline_of(recording_of(make_job(SHAPES)), machine=machine, model=model)


def new_job(model: Model, *edits: Edit) -> NewJob:
    """The job that edits make of it."""
    base = baseline(model)
    after = base.before
    for edit in edits:
        after = edit.applied(after)
    found = rearranged(base.program, base.before, after, model=base.transformer)
    assert found is not None
    return found


def made_in_layers(found: Prediction) -> tuple[np.ndarray, np.ndarray]:
    """Device work and transfers of layers whose operators nobody recorded."""
    graph = found.graph
    in_layer = graph.part == Part.LAYER
    kernels = graph.nodes_of(*DEVICE_KINDS)
    finishes = graph.nodes_of(NodeKind.FINISH)
    return kernels[in_layer[kernels]], finishes[in_layer[finishes]]


@pytest.mark.parametrize(
    ("model", "edits", "collectives"),
    [
        (DENSE, (CP,), {"all_gather", "reduce_scatter"}),
        (MIXED, (EP,), {"alltoall"}),
        (DENSE, (CP, PlanKeys({"sharding.level": "zero3"})), {"all_gather", "reduce_scatter"}),
    ],
)
def test_the_answer_is_arranged_and_every_new_piece_has_source_and_interval(
    model: Model, edits: tuple[Edit, ...], collectives: set[str]
) -> None:
    found = predict(baseline(model), edits)

    assert found.method == "arranged"
    verify(found.graph)
    kernels, finishes = made_in_layers(found)
    names = {found.graph.collectives[at].name for at in found.graph.collective[finishes].tolist()}
    assert names == collectives
    for nodes in (kernels, finishes):
        assert len(nodes)
        takes_time = nodes[found.costs.duration_ns[nodes] > 0]
        assert (found.costs.low_ns[takes_time] < found.costs.high_ns[takes_time]).all()
        assert (found.costs.source[nodes] > 0).all()


def test_products_in_another_format_are_those_of_the_model() -> None:
    base = baseline(DENSE)
    assert base.before.plan.precision.products != "fp8"

    found = predict(base, [PlanKeys({"precision.products": "fp8"})])

    assert found.method == "arranged"
    verify(found.graph)
    kernels, _ = made_in_layers(found)
    names = {found.graph.names[at] for at in found.graph.operator[kernels].tolist()}
    assert "aten::_scaled_mm" in names
    assert (found.costs.source[kernels] > 0).all()
    assert any("with products in fp8" in note for note in found.notes)


def test_halves_of_backward_passes_are_those_of_the_model() -> None:
    recording = recording_of(make_job(job(tp=1, dp=2, pp=2, layers=4, microbatches=6)))
    base = baseline_of(recording, machine=load_machine("dgx-h100"), model=DENSE)

    whole = predict(base, [Parallelism(schedule="gpipe")])
    found = predict(base, [Parallelism(schedule="zb-h1")])

    assert found.method == "arranged"
    verify(found.graph)
    kernels, _ = made_in_layers(found)
    backward = found.graph.phase[kernels] == Phase.BACKWARD
    assert backward.any()
    made = found.costs.source[kernels] != Source.MEASURED
    assert made[backward].all()
    assert not made[~backward].any()
    own_ns = found.costs.duration_ns[kernels][backward].sum()
    recorded, _ = made_in_layers(whole)
    is_backward = whole.graph.phase[recorded] == Phase.BACKWARD
    assert own_ns == pytest.approx(whole.costs.duration_ns[recorded][is_backward].sum(), rel=0.05)
    assert any("halves" in note for note in found.notes)


def test_a_format_that_the_chip_lacks_is_refused() -> None:
    base = baseline_of(
        recording_of(make_job(SHAPES)), machine=load_machine("dgx-a100"), model=DENSE
    )

    with pytest.raises(MachineError, match="no products in fp8"):
        predict(base, [PlanKeys({"precision.products": "fp8"})])


def test_layers_are_made_in_both_passes_and_nothing_else_is() -> None:
    new = new_job(DENSE, CP)

    for rank in new.ranks:
        parts = {each.part for each in rank.placed if isinstance(each.piece, MadeOperator)}
        assert parts == {Part.LAYER}
        layers = [
            (each.step, each.phase.name, each.microbatch, each.layer)
            for each in rank.placed
            if isinstance(each.piece, MadeOperator)
        ]
        # Steps, passes, microbatches and layers.
        assert len(set(layers)) == 3 * 2 * 2 * 3


def test_keys_are_gathered_before_attention_and_their_gradients_scattered() -> None:
    rank = new_job(DENSE, CP).ranks[0]
    of_layer = [
        each.piece.collective
        for each in rank.placed
        if isinstance(each.piece, MadeExchange)
        and (each.step, each.layer, each.microbatch, each.part) == (1, 0, 0, Part.LAYER)
    ]

    assert of_layer == ["allgather", "allgather", "reducescatter"]


def test_half_the_tokens_are_half_the_work_of_layers() -> None:
    base = baseline(DENSE)
    found = predict(base, [CP])

    def work_ns(graph_ns: tuple[np.ndarray, np.ndarray, np.ndarray]) -> float:
        part, kind, duration_ns = graph_ns
        own = (part == Part.LAYER) & np.isin(kind, DEVICE_KINDS)
        return float(duration_ns[own].sum())

    recorded, graph = base.program.graph, found.graph
    was = work_ns((recorded.part, recorded.kind, recorded.measured_ns)) / len(recorded.ranks)
    becomes = work_ns((graph.part, graph.kind, found.costs.duration_ns)) / len(graph.ranks)
    assert becomes / was == pytest.approx(0.5, abs=0.15)


def test_without_a_model_it_is_asked_for() -> None:
    with pytest.raises(ScenarioError, match="no exchange of keys and values"):
        predict(baseline(None), [CP])


def test_tensor_ranks_that_were_not_recorded_are_not_made_beside_them() -> None:
    found = predict(baseline(DENSE), [Parallelism(cp=2, tp=2)])

    assert found.method == "scaled"
