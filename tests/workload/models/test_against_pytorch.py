"""Closed forms against what PyTorch counts in networks written apart from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from foretrace.workload import (
    Convention,
    DenoisingUNet,
    FlopsOfPart,
    Recommender,
    Transformer,
    flops,
    from_hf_config,
    layer_parameters,
    load_model,
    parameters,
)
from tests.models import transformer
from tests.workload.models.strategies import transformers

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402  after the skip
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tests.workload.models.configurations import COUNTED  # noqa: E402
from tests.workload.models.networks import (  # noqa: E402
    DeltaNetwork,
    LayerNetwork,
    Network,
    delta_rule,
)
from tests.workload.models.unets import UNet  # noqa: E402


def counted(call: object) -> int:
    """FLOPs of a call, by PyTorch."""
    assert callable(call)
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@pytest.mark.slow
@settings(max_examples=30)
@given(model=transformers())
def test_parameters_are_those_of_a_network(model: Transformer) -> None:
    with FakeTensorMode():
        network = Network(model)

    assert parameters(model).total == sum(each.numel() for each in network.parameters())


@pytest.mark.slow
@settings(max_examples=20)
@given(model=transformers())
def test_forward_flops_are_those_of_a_network(model: Transformer) -> None:
    model = replace(model, reach=None)
    num_tokens = 6
    with FakeTensorMode():
        network = Network(model)
        tokens = torch.zeros(1, num_tokens, dtype=torch.int64)
        found = counted(lambda: network(tokens))

    expected = flops(model, num_tokens, convention=Convention.FULL).forward
    assert found == num_tokens * expected


@pytest.mark.parametrize("name", ["llama3.1-405b", "gpt3-175b", "qwen3-32b", "deepseek-v3"])
def test_a_layer_of_real_size_has_the_parameters_and_flops(name: str) -> None:
    model = transformer(name)
    num_tokens = 4096
    with FakeTensorMode():
        layer = LayerNetwork(model, model.layers[0])
        tokens = torch.zeros(1, num_tokens, model.hidden, requires_grad=True)
        forward = counted(lambda: layer(tokens))
        both = counted(lambda: layer(tokens).sum().backward())

    one = flops(
        replace(model, num_layers=1), num_tokens, convention=Convention.FULL, has_output=False
    )
    assert forward == num_tokens * one.forward
    assert both == num_tokens * one.training
    assert layer_parameters(model, model.layers[0]).total == sum(
        each.numel() for each in layer.parameters()
    )


@pytest.mark.parametrize("name", ["mixtral-8x7b", "llama4-maverick", "gpt-oss-20b"])
def test_a_layer_of_experts_has_the_flops_of_active_ones(name: str) -> None:
    model = transformer(name)
    experts = model.experts
    assert experts is not None
    # The last layer has experts; fewer of them than real keeps the network small.
    few = replace(experts, count=experts.num_active + 1)
    small = replace(model, experts=few, num_layers=few.every, reach=None)
    num_tokens = 512
    with FakeTensorMode():
        layer = LayerNetwork(small, small.layers[-1])
        tokens = torch.zeros(1, num_tokens, small.hidden)
        found = counted(lambda: layer(tokens))

    only = replace(small, experts=replace(few, every=1), num_layers=1)
    one = flops(only, num_tokens, convention=Convention.FULL, has_output=False)
    assert found == num_tokens * one.forward
    assert layer_parameters(small, small.layers[-1]).total == sum(
        each.numel() for each in layer.parameters()
    )


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "qwen3.5-27b", "kimi-linear-48b-a3b"])
def test_a_delta_rule_of_real_size_has_the_flops_of_its_network(name: str) -> None:
    model = from_hf_config(COUNTED[name][0])
    states = model.states
    assert states is not None
    num_tokens = 1024
    with FakeTensorMode():
        network = DeltaNetwork(model)
        tokens = torch.zeros(1, num_tokens, model.hidden)
        forward = counted(lambda: network(tokens))
        shape = (1, states.num_heads, num_tokens // states.chunk, states.chunk)

        def made(*numbers: int) -> Tensor:
            zeros: Tensor = torch.zeros(*shape, *numbers, requires_grad=True)
            return zeros

        wide = made(states.state_size), made(states.state_size), made(states.head_size)
        state = torch.zeros(*shape[:2], states.state_size, states.head_size, requires_grad=True)
        both = counted(
            lambda: (
                torch.stack([one.sum() for one in delta_rule(wide, made(), made(), state)])
                .sum()
                .backward()
            )
        )

    found = flops(replace(model, num_layers=1), num_tokens, convention=Convention.FULL).parts
    expected = {one.part: one.forward for one in found if one.part.startswith("state")}
    # The account has the gradients of all but the inverse, which is one product more.
    inverse = 2 * states.chunk**2 * states.num_heads
    assert forward == num_tokens * sum(expected.values())
    assert both == num_tokens * (3 * expected["state scans"] + inverse)
    total = sum(each.numel() for each in network.parameters())
    assert parameters(replace(model, num_layers=1)).of("states").total == total


def test_chunks_by_the_delta_rule_are_its_tokens_one_by_one() -> None:
    torch.manual_seed(0)
    shape = (2, 3, 2, 4, 5)  # batch, heads, chunks, tokens, numbers of a key
    query, key = (torch.randn(shape, dtype=torch.float64) for _ in range(2))
    value = torch.randn((*shape[:4], 6), dtype=torch.float64)
    key = key / key.norm(dim=-1, keepdim=True)
    decay, strength = -torch.rand(shape[:4]).double(), torch.rand(shape[:4]).double()
    state = torch.zeros(2, 3, 5, 6, dtype=torch.float64)

    found, last = delta_rule((query, key, value), decay, strength, state)

    def each(one: Tensor) -> Tensor:
        return one.flatten(2, 3)

    results = []
    for at in range(8):
        q, k, v = (each(one)[:, :, at] for one in (query, key, value))
        state = state * each(decay)[:, :, at, None, None].exp()
        lacks = v - torch.einsum("bhn,bhnp->bhp", k, state)
        written = lacks * each(strength)[:, :, at, None]
        state = state + torch.einsum("bhn,bhp->bhnp", k, written)
        results.append(torch.einsum("bhn,bhnp->bhp", q, state))
    assert torch.allclose(each(found), torch.stack(results, 2))
    assert torch.allclose(last, state)


def test_a_recommenders_interaction_has_the_flops_of_its_products() -> None:
    model = load_model("dlrm-mlperf-v1")
    assert isinstance(model, Recommender)
    batch = 8
    part = {each.part: each for each in flops(model).parts}
    with FakeTensorMode():
        vectors = torch.zeros(batch, model.num_tables + 1, model.size)
        found = counted(lambda: torch.bmm(vectors, vectors.transpose(1, 2)))

    assert found == batch * part["interaction"].forward


def test_a_recommenders_networks_have_the_flops_and_parameters() -> None:
    model = load_model("dlrm-mlperf-v2")
    assert isinstance(model, Recommender)
    batch = 8
    part: dict[str, FlopsOfPart] = {each.part: each for each in flops(model).parts}
    with FakeTensorMode():
        for which, name in (("bottom", "bottom network"), ("top", "top network")):
            layers = [torch.nn.Linear(*shape) for shape in model.dense_shapes(which)]
            network = torch.nn.Sequential(*layers)
            features = torch.zeros(batch, layers[0].in_features)

            found = counted(lambda network=network, features=features: network(features))

            assert found == batch * part[name].forward
            assert parameters(model).of(name).total == sum(
                each.numel() for each in network.parameters()
            )


def test_cross_layers_have_the_flops_and_parameters() -> None:
    model = load_model("dlrm-mlperf-v2")
    assert isinstance(model, Recommender)
    batch, width, rank = 8, 27 * 128, 512
    part = {each.part: each for each in flops(model).parts}
    with FakeTensorMode():
        # DCN V2 with matrices of low rank: V without a bias, then W with one.
        layers = [
            torch.nn.Sequential(
                torch.nn.Linear(width, rank, bias=False), torch.nn.Linear(rank, width)
            )
            for _ in range(3)
        ]
        features = torch.zeros(batch, width)

        found = counted(lambda: [layer(features) for layer in layers])

        assert found == batch * part["cross layers"].forward
        assert parameters(model).of("cross layers").total == sum(
            each.numel() for layer in layers for each in layer.parameters()
        )


def test_a_prediction_module_costs_a_layer_a_projection_and_an_output() -> None:
    model = transformer("deepseek-v3-mtp")
    length = 64
    longer = replace(model, num_layers=62, num_prediction_modules=0)
    with FakeTensorMode():
        projection = torch.nn.Linear(2 * model.hidden, model.hidden, bias=False)
        output = torch.nn.Linear(model.hidden, model.vocabulary, bias=False)
        found = counted(lambda: output(projection(torch.zeros(1, 2 * model.hidden))))

    difference = flops(model, length).forward - flops(longer, length).forward
    assert difference == found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["stable-diffusion-1.5", "stable-diffusion-xl", "modelscope-video"]
)
def test_a_unet_has_the_parameters_and_flops_of_its_network(name: str) -> None:
    model = load_model(name)
    assert isinstance(model, DenoisingUNet)
    with FakeTensorMode():
        network = UNet(model)
        found = counted(network)
        total = sum(each.numel() for each in network.parameters())

    assert parameters(model).total == total
    assert flops(model).forward == found
