"""How what a module runs is cut into layers, and what each of them keeps and hands on."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn

from foretrace.base import WorkloadError
from foretrace.capture import capture
from foretrace.operators import ModuleProgram, parsed_shapes
from tests.capture.module.networks import (
    HIDDEN,
    TOKENS,
    VOCABULARY,
    Llama,
    Recommender,
    ResNet,
    recommender_inputs,
    tokens_and_answers,
)


def llama(**settings: bool) -> ModuleProgram:
    return capture(Llama(3, **settings), tokens_and_answers(2), way="dispatch")  # type: ignore[arg-type]


def test_modules_with_numbers_are_layers_in_the_order_in_which_they_run() -> None:
    found = llama()

    assert [part.path for part in found.layers] == ["layers.0", "layers.1", "layers.2"]
    assert found.layers[1].is_like(found.layers[2])
    assert found.before is not None
    assert [one.label for one in found.before.forward] == ["tok embedding"]
    assert found.behind is not None
    assert found.behind.forward[-1].name == "aten::nll_loss_forward"
    assert (found.batch, found.sequence) == (2, TOKENS)


def test_every_operator_is_in_one_part() -> None:
    forward, backward = (
        sum(len(getattr(part, way)) for part in llama().all_parts)
        for way in ("forward", "backward")
    )

    whole = capture(Llama(3), tokens_and_answers(2), way="dispatch", layers="tok")

    assert forward == sum(len(part.forward) for part in whole.all_parts)
    assert backward == sum(len(part.backward) for part in whole.all_parts)


def test_layers_of_several_lists_follow_each_other() -> None:
    found = capture(
        ResNet(), (torch.randn(2, 3, 64, 64), torch.zeros(2, dtype=torch.long)), way="dispatch"
    )

    assert [part.path for part in found.layers] == ["stages.0", "stages.1"]


def test_a_model_without_layers_is_one_part() -> None:
    found = capture(Recommender(), recommender_inputs(), way="dispatch")

    assert (len(found.layers), found.before, found.behind) == (1, None, None)
    assert found.num_parameters == sum(one.numel() for one in Recommender().parameters())
    assert found.sequence is None


def test_a_pattern_names_layers() -> None:
    found = capture(Llama(2), tokens_and_answers(), way="dispatch", layers="layers.*.feed_forward")

    assert [part.path for part in found.layers] == [
        "layers.0.feed_forward",
        "layers.1.feed_forward",
    ]


def test_a_pattern_that_names_nothing_is_an_error() -> None:
    with pytest.raises(WorkloadError, match=r"no module that runs is called 'h\.\*'"):
        capture(Llama(1), tokens_and_answers(), way="dispatch", layers="h.*")


class Looped(nn.Module):
    """One layer that runs three times, as ALBERT's."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh())])

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            data = self.blocks[0](data)
        return data.sum()


@pytest.mark.parametrize("way", ["dispatch", "export"])
def test_a_layer_that_runs_again_is_one_more_layer_without_parameters(way: str) -> None:
    found = capture(Looped(), torch.randn(2, 8), way=way)

    assert [len(part.forward) for part in found.layers] == [2, 2, 2]
    assert [part.num_parameters for part in found.layers] == [72, 0, 0]


def test_gradients_that_no_earlier_part_waits_for_are_weights_gradients() -> None:
    found = capture(Llama(3), tokens_and_answers(3), way="dispatch")

    layer = found.layers[1]
    products = [one for one in layer.backward if one.name == "aten::mm"]
    # Of each of seven weights one product for it, and one for what went in.
    assert len(products) == 14
    assert sum(one.is_weight_gradient for one in products) == 7
    for one in products:
        shapes = parsed_shapes(one.signature)
        assert shapes is not None
        first, second = shapes.single
        assert one.is_weight_gradient is (first.shape[1] == second.shape[0] == 3 * TOKENS)
    assert found.before is not None
    assert all(one.is_weight_gradient for one in found.before.backward)


def test_what_crosses_into_a_layer_is_the_residual_stream() -> None:
    found = llama()

    stream = 2 * TOKENS * HIDDEN * 2
    assert [part.input_bytes for part in found.all_parts] == [0, stream, stream, stream, stream]
    assert found.layers[0].input_dtype == "bf16"


def test_tied_parameters_count_once() -> None:
    found = llama(ties=True)

    assert found.tied_parameters == VOCABULARY * HIDDEN
    assert found.num_parameters == sum(one.numel() for one in Llama(3, ties=True).parameters())


def test_what_the_module_computes_again_is_told_from_its_backward_pass() -> None:
    plain, repeated = llama(), llama(repeats=True)

    layer = repeated.layers[1]
    again = [one for one in layer.backward if one.is_again]
    rest = [one for one in layer.backward if not one.is_again]
    assert repeated.computes_again
    assert not plain.computes_again
    # torch.utils.checkpoint stops where the last tensor that is needed is there again.
    assert [one.name for one in again] == [one.name for one in layer.forward[: len(again)]]
    assert len(again) >= len(layer.forward) - 3
    assert len(rest) == len(plain.layers[1].backward)
    assert repeated.behind is not None
    assert plain.behind is not None
    assert repeated.behind.backward == plain.behind.backward
    stream = 2 * TOKENS * HIDDEN * 2
    assert stream <= layer.kept_bytes < 0.1 * plain.layers[1].kept_bytes


def test_what_a_layer_keeps_is_what_autograd_saves() -> None:
    module, (tokens, answers) = Llama(1), tokens_and_answers(2)
    known = {one.untyped_storage().data_ptr() for one in (*module.parameters(), module.angles)}
    saved: dict[int, int] = {}
    held: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            held.append(tensor)
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    layer = module.layers[0]
    data = module.tok(tokens).detach().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(data, module.angles)
    found = capture(module, (tokens, answers), way="dispatch").layers[0]

    # A GPU's attention saves its statistics in another shape than a CPU's, and seeds.
    assert found.kept_bytes == pytest.approx(sum(saved.values()), rel=0.01)


def test_frozen_parameters_are_noted() -> None:
    module = Llama(2)
    module.tok.weight.requires_grad = False

    found = capture(module, tokens_and_answers(), way="dispatch")

    assert any(note.startswith("1 parameters are not trained") for note in found.notes)
    assert found.before is not None
    assert found.before.num_frozen == VOCABULARY * HIDDEN
    assert found.before.backward == ()


class Wrapped(nn.Module):
    """Runs its layers' forward functions, past what calling a module does, as wrappers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            data = layer.forward(data)
        return data.sum()


def test_layers_are_known_by_their_modules() -> None:
    found = capture(Wrapped(), torch.randn(2, 8))

    assert [part.path for part in found.layers] == ["layers.0", "layers.1"]
    assert [len(part.forward) for part in found.layers] == [2, 2]
