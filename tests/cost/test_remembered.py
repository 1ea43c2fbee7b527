"""What is remembered is what the model says, and is asked once."""

from __future__ import annotations

import pickle

import numpy as np

from foretrace.cost import (
    CollectiveRequests,
    CostModel,
    Costs,
    KernelRequests,
    Remembered,
    graph_costs,
    step_costs,
)
from foretrace.machine import load_machine
from foretrace.workload import Plan, blocks_of_model, layout, load_model


class Counted:
    """Counts the rows that it is asked for."""

    def __init__(self, model: CostModel) -> None:
        self.model, self.num_kernels, self.num_collectives = model, 0, 0

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        self.num_kernels += len(requests)
        return self.model.kernel_costs(requests)

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        self.num_collectives += len(requests)
        return self.model.collective_costs(requests)


def test_answers_are_the_models_and_each_is_asked_once() -> None:
    plan = Plan(tensor=2, data=2, pipeline=2, global_batch=4, sequence=1024, schedule="1f1b")
    graph = layout(blocks_of_model(load_model("gpt2"), plan), plan).graph
    model = Counted(step_costs(load_machine("dgx-h100")))
    remembered = Remembered(model)

    first = graph_costs(graph, remembered)
    asked = model.num_kernels, model.num_collectives
    again = graph_costs(graph, remembered)

    own = graph_costs(graph, model.model)
    for found in (first, again):
        for name in ("duration_ns", "low_ns", "high_ns", "source"):
            assert np.array_equal(getattr(found, name), getattr(own, name))
        assert [found.families[one] for one in found.family] == [
            own.families[one] for one in own.family
        ]
    assert (model.num_kernels, model.num_collectives) == asked
    assert 0 < model.num_kernels < graph.num_nodes // 10


def test_another_process_begins_with_nothing_remembered() -> None:
    model = step_costs(load_machine("dgx-h100"))
    graph = layout(blocks_of_model(load_model("gpt2"), Plan()), Plan()).graph
    remembered = Remembered(model)
    graph_costs(graph, remembered)

    assert len(pickle.dumps(remembered)) < len(pickle.dumps(model)) + 200
