"""Encoders of pictures: products, masks and memory of both ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.graph import Phase
from foretrace.workload import (
    Convention,
    Implementation,
    Plan,
    Pooling,
    Transformer,
    blocks_of_model,
    check_plan,
    flops,
    parameters,
)
from tests.models import transformer
from tests.workload.blocks.counting import distinct, parts, product_flops

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402  after the skip
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tests.workload.models.networks import LayerNetwork  # noqa: E402

NAMES = ("vit-h-14", "siglip-so400m")


class Encoder(nn.Module):
    """A convolution, layers, and attention of one query or a product with the first token."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        patches, hidden = model.patches, model.hidden
        assert patches is not None
        self.patches, self.hidden = patches, hidden
        self.first = nn.Conv2d(patches.channels, hidden, patches.size, stride=patches.size)
        self.places = nn.Parameter(torch.ones(patches.num_tokens, hidden))
        self.token = nn.Parameter(torch.ones(int(patches.has_class_token), hidden))
        self.layers = nn.ModuleList(LayerNetwork(model, layer) for layer in model.layers)
        self.norm = nn.LayerNorm(hidden)
        width = model.feed_forward.width
        if patches.pooling is Pooling.ATTENTION:
            self.query = nn.Parameter(torch.ones(1, 1, hidden))
            self.pool = nn.MultiheadAttention(hidden, model.attention.num_heads, batch_first=True)
            norm, up, down = (
                nn.LayerNorm(hidden),
                nn.Linear(hidden, width),
                nn.Linear(width, hidden),
            )
            self.rest = nn.Sequential(norm, up, nn.GELU(), down)
        else:
            self.pooler = nn.Linear(hidden, hidden)

    def forward(self, pictures: Tensor) -> Tensor:
        count = len(pictures)
        tokens = self.first(pictures).flatten(2).transpose(1, 2)
        own = self.token.expand(count, -1, -1)
        tokens = torch.cat([own, tokens], dim=1) + self.places
        for layer in self.layers:
            tokens = layer(tokens)
        tokens = self.norm(tokens)
        if self.patches.pooling is Pooling.ATTENTION:
            pooled = self.pool(self.query.expand(count, -1, -1), tokens, tokens)
            return self.rest(pooled[0])  # type: ignore[no-any-return]
        return self.pooler(tokens[:, 0])  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_flops_are_those_of_a_network(name: str) -> None:
    model = replace(transformer(name), num_layers=2)
    patches = model.patches
    assert patches is not None
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:
        network = Encoder(model)
        network(torch.zeros(3, 3, patches.image, patches.image))

    one = flops(model, patches.num_tokens, convention=Convention.CAUSAL)

    assert parameters(model).total == sum(each.numel() for each in network.parameters())
    assert counter.get_total_flops() == pytest.approx(
        3 * patches.num_tokens * one.forward, rel=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_products_of_blocks_are_those_of_the_account(name: str) -> None:
    model = transformer(name)
    assert model.patches is not None
    plain = Implementation(attention="plain")
    plan = Plan(sequence=model.patches.num_tokens, micro_batch=2, implementation=plain)
    blocks = blocks_of_model(model, plan)
    times = Counter(id(one) for one in parts(blocks))

    found = sum(
        times[id(one)] * product_flops(one.forward, Phase.FORWARD, of_attention=of_attention)
        for one in distinct(blocks)
        for of_attention in (False, True)
    )

    one = flops(model, plan.sequence)
    assert found == pytest.approx(2 * plan.sequence * one.forward, rel=1e-12)


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_ends_are_whole_on_every_tensor_rank(tensor: int) -> None:
    model = transformer("siglip-so400m")
    blocks = blocks_of_model(model, Plan(sequence=729, tensor=tensor))
    assert blocks.embedding is not None
    assert blocks.head is not None
    counted = parameters(model)

    ends = blocks.embedding.parameters.dense + blocks.head.parameters.dense
    whole = sum(counted.of(part).total for part in ("embedding", "positions", "output"))
    assert ends == whole + 2 * model.hidden  # the last norm


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (Plan(sequence=256), "256 tokens is no picture of 224 pixels: in patches of 14 it has 257"),
        (Plan(sequence=257, context=2), "cp is 2, and vit-h-14 has no causal mask"),
        (Plan(sequence=257, tensor=2, sequence_parallel=True), "does not divide the 257 tokens"),
    ],
)
def test_plans_that_an_encoder_cannot_run_under_are_refused(plan: Plan, sentence: str) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        check_plan(plan, transformer("vit-h-14"))
