"""Whatever the way by which a module is seen, what it runs is the same, and the way is told."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn

from foretrace.base import WorkloadError
from foretrace.capture import capture
from foretrace.operators import ModuleProgram, Ran
from tests.capture.module.networks import (
    HIDDEN,
    Classifier,
    Llama,
    ResNet,
    classifier_inputs,
    tokens_and_answers,
)


def same(program: ModuleProgram) -> ModuleProgram:
    return replace(program, way="", notes=())


def test_an_exported_module_runs_what_the_module_itself_runs() -> None:
    exported = capture(Llama(), tokens_and_answers(), way="export")
    dispatched = capture(Llama(), tokens_and_answers())

    assert (exported.way, dispatched.way) == ("export", "dispatch")
    assert same(exported) == same(dispatched)


def test_a_traced_module_runs_what_the_module_itself_runs() -> None:
    inputs = (torch.randn(2, 3, 64, 64), torch.zeros(2, dtype=torch.long))

    traced = capture(ResNet(), inputs, way="fx")

    assert same(traced) == same(capture(ResNet(), inputs, way="dispatch"))


def test_what_export_refuses_runs_as_it_is() -> None:
    with pytest.raises(WorkloadError, match=r"torch\.export: RuntimeError: Found .*Output"):
        capture(Classifier(asks=False), classifier_inputs(), way="export")

    found = capture(Classifier(asks=False), classifier_inputs())

    assert (found.way, found.notes[0][:9]) == ("dispatch", "no rule k")


class OnlyExported(nn.Module):
    """Asks for a value unless it is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting() and float(data.sum()) > 0:
            data = data * 2
        return self.first(data).sum()  # type: ignore[no-any-return]


def test_where_the_module_itself_fails_its_export_is_taken_and_the_reason_told() -> None:
    found = capture(OnlyExported(), torch.ones(4, 8))

    assert found.way == "export"
    assert "running it without memory: RuntimeError: Tensor.item() cannot" in found.notes[0]
    assert found.notes[0].endswith("so torch.export was taken")


def test_where_values_decide_the_module_runs_for_real() -> None:
    found = capture(Classifier(asks=True), classifier_inputs())

    assert found.way == "run"
    assert "Tensor.item() cannot be called on meta tensors" in found.notes[0]
    assert any("ran for real" in note for note in found.notes)


def test_values_of_small_whole_numbers_are_carried_along() -> None:
    inputs = classifier_inputs()
    whole = {**inputs, "attention_mask": torch.ones(2, 16, dtype=torch.long)}
    holes = {**inputs, "attention_mask": torch.zeros(2, 16, dtype=torch.long)}

    plain, padded = (capture(Classifier(asks=True), each) for each in (whole, holes))

    assert (plain.way, padded.way) == ("dispatch", "dispatch")
    assert [one.name for one in added(padded, plain)] == ["aten::mul"]


def added(more: ModuleProgram, less: ModuleProgram) -> list[Ran]:
    """What the first layer of one runs that the other's does not."""
    found = [one for part in more.all_parts[:2] for one in part.forward]
    for one in (one for part in less.all_parts[:2] for one in part.forward):
        found.remove(one)
    return found


class Counting(nn.Module):
    """Counts up, changes its counts in place, and asks."""

    def __init__(self, *, by_draw: bool) -> None:
        super().__init__()
        self.first, self.by_draw = nn.Linear(8, 8), by_draw

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        places = torch.arange(8)
        places[2:] += torch.randint(1, 3, (6,)) if self.by_draw else 1
        if int(places.sum()) == 34:  # 28, and 6 times 1
            data = data.exp()
        return self.first(data).sum()  # type: ignore[no-any-return]


def test_values_that_change_in_place_are_followed() -> None:
    found = capture(Counting(by_draw=False), torch.ones(4, 8))

    assert found.way == "dispatch"
    assert any(one.name == "aten::exp" for one in found.layers[0].forward)


def test_values_that_are_drawn_are_not_known() -> None:
    with pytest.raises(WorkloadError, match="cannot be called on meta tensors"):
        capture(Counting(by_draw=True), torch.ones(4, 8), way="dispatch")


def test_where_values_decide_and_there_are_none_the_reasons_are_told() -> None:
    with torch.device("meta"):
        module, inputs = Classifier(asks=True), classifier_inputs()

    with pytest.raises(
        WorkloadError, match=r"without memory: .*torch\.export: .*for real: .*have no values"
    ):
        capture(module, inputs)


def test_a_module_that_fails_is_an_error_with_its_reason() -> None:
    with pytest.raises(WorkloadError, match="must have same reduction dim"):
        capture(nn.Linear(4, 4), torch.randn(2, 5), way="dispatch")


def test_a_module_without_gradients_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="nothing that it returns has a gradient"):
        capture(nn.ReLU(), torch.randn(2, 5), way="dispatch")


def test_an_unknown_way_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="choose one of dispatch, export, fx, run"):
        capture(nn.Linear(4, 4), torch.randn(2, 4), way="guess")


def test_the_user_s_module_is_left_as_it_is() -> None:
    module = Llama()
    before = {name: (id(one), one.clone()) for name, one in module.named_parameters()}
    module.output.weight.grad = torch.ones_like(module.output.weight)

    capture(module, tokens_and_answers(), way="dispatch")

    for name, one in module.named_parameters():
        assert id(one) == before[name][0]
        assert torch.equal(one, before[name][1])
    assert torch.equal(module.output.weight.grad, torch.ones_like(module.output.weight))
    assert not any(one._forward_pre_hooks for one in module.modules())


def test_gradients_of_the_user_s_module_survive_a_run_for_real() -> None:
    module = Classifier(asks=True)
    module.last.bias.grad = torch.ones(50)

    capture(module, classifier_inputs(), way="run")

    assert torch.equal(module.last.bias.grad, torch.ones(50))
    assert module.last.weight.grad is None


def test_pytorch_itself_is_left_as_it_is() -> None:
    query = torch.randn(1, 2, 8, 16, device="meta", dtype=torch.bfloat16)
    capture(Llama(), tokens_and_answers(), way="dispatch")

    with warnings.catch_warnings(), torch.utils.flop_counter.FlopCounterMode(display=False) as seen:
        nn.functional.scaled_dot_product_attention(query, query, query)

    assert torch.ops.aten.bmm in seen.get_flop_counts()["Global"]


@pytest.mark.slow
def test_a_llama_of_70b_takes_no_memory_and_is_complete() -> None:
    sizes = (8192, 64, 8, 28672, 128256)
    with torch.device("meta"):
        module, inputs = Llama(80, sizes=sizes, tokens=8192), tokens_and_answers(tokens=8192)

    found = capture(module, inputs)

    assert found.num_parameters == 70_553_706_496  # as Llama 3 70B is published
    assert (found.num_layers, found.sequence) == (80, 8192)
    assert (found.way, found.notes) == ("dispatch", ())


class Doubled(torch.autograd.Function):
    """A function of the user's own, with a derivative of its own."""

    @staticmethod
    def forward(ctx: object, data: torch.Tensor) -> torch.Tensor:
        del ctx
        return data * 2

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        del ctx
        return gradients[0] * 2


class WithOwnFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(self.first(data)).sum()  # type: ignore[no-any-return, no-untyped-call]


def test_functions_of_the_user_s_own_are_seen_both_ways() -> None:
    found = capture(WithOwnFunction(), torch.randn(3, HIDDEN), way="dispatch")

    assert [one.name for one in found.layers[0].forward] == [
        "aten::addmm",
        "aten::mul",
        "aten::sum",
    ]
    assert found.layers[0].backward[0].name == "aten::mul"


@torch.library.custom_op("foretrace_tests::scan", mutates_args=())
def scan(data: torch.Tensor) -> torch.Tensor:
    return data.cumsum(-1)


@scan.register_fake
def _(data: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(data)


scan.register_autograd(lambda _context, gradient: gradient)


class WithOwnOperator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return scan(self.first(data)).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["export", "dispatch"])
def test_operators_of_the_user_s_own_are_listed_and_count_what_passes_through(way: str) -> None:
    found = capture(WithOwnOperator(), torch.randn(4, 8), way=way)

    assert any("foretrace_tests::scan (1x)" in note for note in found.notes)
    moved = [one for one in found.layers[0].forward if one.label.endswith("scan")]
    assert [one.name for one in moved] == ["aten::copy_"]
    assert "[[128],[128],[]]" in moved[0].signature  # bytes of 4 x 8 numbers in and out
