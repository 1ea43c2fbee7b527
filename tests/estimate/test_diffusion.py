"""Where a denoising step spends its time, beside what a survey of such models found.

Golden et al., "Generative AI Beyond LLMs", arXiv:2312.14385: fused attention makes diffusion models
1.1 to 2.5 times as fast, and leaves up to 44% of the time to convolutions.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from foretrace.cost import FittedCosts, graph_costs
from foretrace.graph import NodeKind, Phase
from foretrace.machine import load_machine
from foretrace.operators import OperatorClass, operator_class
from foretrace.workload import (
    AT_ONCE,
    Implementation,
    Plan,
    Precision,
    blocks_of_model,
    layout,
    load_model,
)


def forward_ns(attention: str, batch: int) -> Counter[OperatorClass]:
    """Device time of a forward pass by class, on an A100-80GB in half precision."""
    half = "fp16"
    plan = Plan(
        micro_batch=batch,
        global_batch=batch,
        implementation=Implementation(attention=attention),
        precision=Precision(products=half, activations=half, parameters=half),
    )
    model = load_model("stable-diffusion-1.5")
    graph = layout(blocks_of_model(model, plan), plan, launch=AT_ONCE).graph
    duration_ns = graph_costs(graph, FittedCosts(load_machine("dgx-a100"))).duration_ns
    found: Counter[OperatorClass] = Counter()
    for node in np.flatnonzero((graph.kind == NodeKind.KERNEL) & (graph.phase == Phase.FORWARD)):
        name = graph.names[graph.operator[node]]
        found[operator_class(name, name)] += int(duration_ns[node])
    return found


@pytest.mark.parametrize("batch", [1, 8])
def test_convolutions_take_tens_of_percent_once_attention_is_fused(batch: int) -> None:
    plain, fused = forward_ns("plain", batch), forward_ns("flash", batch)

    shares = [found[OperatorClass.CONVOLUTION] / found.total() for found in (plain, fused)]
    assert shares[0] < shares[1]
    assert 0.3 < shares[1] < 0.44
    assert 1.1 < plain.total() / fused.total() < 2.5
