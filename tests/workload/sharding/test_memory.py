"""Bytes of a recommender: what PyTorch keeps, and sums worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from foretrace.workload import (
    Interaction,
    Plan,
    Precision,
    Recommender,
    TableOptimizer,
    TableSharding,
    load_model,
    recommender_footprint,
)
from foretrace.workload.sharding.memory import kept_numbers

BATCH = 6


def small(interaction: Interaction) -> Recommender:
    known = load_model("dlrm-mlperf-v2")
    assert isinstance(known, Recommender)
    return replace(
        known,
        num_dense=5,
        rows=(50, 40, 30),
        pooling=(2, 1, 1),
        size=4,
        bottom=(7, 4),
        top=(9, 3, 1),
        interaction=interaction,
        num_cross_layers=2,
        cross_rank=6,
    )


class Network(nn.Module):
    """The dense part in plain PyTorch, from dense features and pooled vectors to a number."""

    def __init__(self, model: Recommender) -> None:
        super().__init__()
        self.interaction, width = model.interaction, model.interaction_width
        self.bottom = nn.ModuleList(nn.Linear(*shape) for shape in model.dense_shapes("bottom"))
        self.top = nn.ModuleList(nn.Linear(*shape) for shape in model.dense_shapes("top"))
        self.vectors = nn.Parameter(torch.randn(BATCH, model.num_tables, model.size))
        rank, layers = model.cross_rank, range(model.num_cross_layers)
        self.down = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in layers)
        self.up = nn.ModuleList(nn.Linear(rank, width, bias=False) for _ in layers)
        self.biases = nn.ParameterList(torch.zeros(width) for _ in layers)

    def forward(self, dense: torch.Tensor) -> torch.Tensor:
        for layer in self.bottom:
            dense = layer(dense).relu()
        vectors = torch.cat([dense.unsqueeze(1), self.vectors], dim=1)
        found = vectors.flatten(1)
        if self.interaction is Interaction.DOT:
            products = torch.bmm(vectors, vectors.transpose(1, 2))
            rows, columns = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)
            found = torch.cat([dense, products[:, rows, columns]], dim=1)
        if self.interaction is Interaction.CROSS:
            first = found
            for down, up, bias in zip(self.down, self.up, self.biases, strict=True):
                found = first * (up(down(found)) + bias) + found
        for layer in self.top[:-1]:
            found = layer(found).relu()
        result: torch.Tensor = self.top[-1](found)
        return result


@pytest.mark.parametrize("interaction", Interaction)
def test_pytorch_keeps_as_many_numbers(interaction: Interaction) -> None:
    model = small(interaction)
    network = Network(model)
    known = {each.untyped_storage().data_ptr() for each in network.parameters()}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)  # else its address would be used again
        place = tensor.untyped_storage().data_ptr()
        if tensor.dtype == torch.float32 and place not in known:
            kept[place] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network(torch.randn(BATCH, model.num_dense))

    assert sum(kept.values()) == BATCH * kept_numbers(model)


def test_the_fullest_rank_counts() -> None:
    model = small(Interaction.DOT)
    full = Precision(products="fp32", activations="fp32", parameters="fp32")
    tables = TableSharding(optimizer=TableOptimizer.ADAGRAD, data_parallel_rows=30)
    plan = Plan(data=2, micro_batch=BATCH, global_batch=2 * BATCH, precision=full, tables=tables)

    found = recommender_footprint(model, plan, capacity=10_000)

    networks = 5 * 7 + 7 + 7 * 4 + 4 + 10 * 9 + 9 + 9 * 3 + 3 + 3 * 1 + 1
    (stage,) = found.stages
    # the largest table and the one that all have
    assert stage.parameters == 4 * (50 * 4 + 30 * 4 + networks)
    assert stage.gradients == 4 * (30 * 4 + networks)
    assert stage.optimizer == stage.parameters
    # two ids from each sample of both ranks, one of its own
    assert stage.activations == 4 * BATCH * kept_numbers(model) + 8 * (2 * 2 * BATCH + BATCH)
    # vectors of one table for all samples leave, those of two tables for its own arrive
    assert stage.buffers == 4 * (networks + 2 * BATCH * 4 + 2 * BATCH * 4)
    assert found.margin == 10_000 - stage.total


def test_one_rank_needs_no_buffers() -> None:
    plan = Plan(micro_batch=BATCH, global_batch=BATCH)

    found = recommender_footprint(small(Interaction.CROSS), plan)

    assert found.stages[0].buffers == 0
    assert found.margin is None
