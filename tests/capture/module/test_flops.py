"""FLOPs of what is captured are those that PyTorch's own counter finds."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from foretrace.capture import capture
from foretrace.capture.module.kernels import as_on_a_gpu
from foretrace.capture.module.without_memory import (
    module_without_memory,
    value_without_memory,
)
from foretrace.operators import ModuleProgram, attention_shape
from tests.capture.module.networks import (
    Classifier,
    Llama,
    Recommender,
    ResNet,
    classifier_inputs,
    encoder,
    recommender_inputs,
    tokens_and_answers,
)

Case = tuple[nn.Module, Any]


def encoder_case() -> Case:
    return encoder(), torch.randn(2, 16, 32)


def resnet_case() -> Case:
    return ResNet(), (torch.randn(2, 3, 64, 64), torch.zeros(2, dtype=torch.long))


def counted(module: nn.Module, inputs: Any) -> tuple[int, int]:
    """FLOPs forward, and of both passes, by PyTorch, with the kernels that a GPU runs."""
    module, inputs = module_without_memory(module), value_without_memory(inputs)
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    with as_on_a_gpu(), torch.device("meta"), FlopCounterMode(display=False) as counter:
        output = module(**inputs) if isinstance(inputs, dict) else module(*inputs)
        forward = counter.get_total_flops()
        getattr(output, "loss", output).sum().backward()
    return forward, counter.get_total_flops()


def masked_flops(program: ModuleProgram, *, is_backward: bool) -> int:
    """What PyTorch counts of causal attention and a GPU leaves out."""
    found = 0
    for part in program.all_parts:
        for one in part.backward if is_backward else part.forward:
            shape = attention_shape(one.name, one.signature)
            if shape is not None and shape.is_causal:
                pairs = shape.query_length * shape.kv_length - shape.num_pairs
                sizes = (3, 2) if is_backward else (1, 1)
                size = sizes[0] * shape.head_size + sizes[1] * shape.value_size
                found += 2 * shape.batch * shape.heads * pairs * size
    return found


@pytest.mark.parametrize("way", ["dispatch", "export"])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(encoder_case, id="encoder"),
        pytest.param(lambda: (Llama(), tokens_and_answers()), id="llama"),
        pytest.param(resnet_case, id="resnet"),
        pytest.param(lambda: (Recommender(), recommender_inputs()), id="dlrm"),
    ],
)
def test_flops_are_those_of_pytorch_s_counter(case: Any, way: str) -> None:
    module, inputs = case()
    forward, both = counted(module, inputs)

    found = capture(module, inputs, way=way)

    own = found.product_flops(is_backward=False) + masked_flops(found, is_backward=False)
    back = found.product_flops(is_backward=True) + masked_flops(found, is_backward=True)
    assert forward > 0
    assert (own, back) == (forward, both - forward)


def test_flops_of_a_module_that_returns_what_export_refuses_are_counted_too() -> None:
    module, inputs = Classifier(asks=False), classifier_inputs()
    forward, both = counted(module, inputs)

    found = capture(module, inputs)

    assert found.product_flops(is_backward=False) == forward
    assert found.product_flops(is_backward=True) == both - forward
