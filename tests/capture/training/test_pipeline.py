"""Microbatches in the order of 1F1B give the gradients of the whole batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from foretrace.capture import TrainingSettings
from foretrace.capture.training.model import Stage, work
from foretrace.capture.training.pipeline import Neighbours, PipelineStep
from foretrace.capture.training.tensor_parallel import TensorRanks

SMALL = TrainingSettings(
    layers=2,
    hidden=16,
    heads=2,
    feed_forward=32,
    vocabulary=64,
    sequence=8,
    micro_batch=2,
    num_microbatches=3,
    data=1,
)
ALONE = TensorRanks(None, 1, 0)


def stage(settings: TrainingSettings = SMALL, *, number: int = 0, extra_ns: int = 0) -> Stage:
    torch.manual_seed(0)
    return Stage(settings, ALONE, stage=number, extra_ns=extra_ns)


def tokens() -> torch.Tensor:
    shape = (SMALL.num_microbatches, SMALL.micro_batch, SMALL.sequence + 1)
    return torch.randint(SMALL.vocabulary, shape, generator=torch.Generator().manual_seed(1))


def test_microbatches_add_up_to_the_whole_batch() -> None:
    apart, whole, batch = stage(), stage(), tokens()

    PipelineStep(apart, Neighbours(None, None), SMALL).run(batch, stage=0)

    joined = batch.flatten(0, 1)
    whole(joined[:, :-1], joined[:, 1:]).backward()
    for one, other in zip(apart.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_second_step_does_what_the_first_did() -> None:
    module = stage()
    step = PipelineStep(module, Neighbours(None, None), SMALL)

    losses = [float(step.run(tokens(), stage=0)) for _ in range(2)]

    assert losses[0] == losses[1]
    assert not step.waiting
    assert step.num_done == 0


def test_stages_hold_their_layers_and_the_ends_their_own_parts() -> None:
    settings = replace(SMALL, pipeline=2)

    first, last = stage(settings), stage(settings, number=1)

    assert (len(first.layers), len(last.layers)) == (1, 1)
    assert hasattr(first, "embedding")
    assert not hasattr(first, "head")
    assert hasattr(last, "head")
    assert not hasattr(last, "embedding")


def test_stages_in_a_row_are_the_whole_model() -> None:
    settings, batch = replace(SMALL, pipeline=2), tokens()[0]
    first, last, whole = stage(settings), stage(settings, number=1), stage()
    whole.embedding.load_state_dict(first.embedding.state_dict())
    whole.positions.load_state_dict(first.positions.state_dict())
    whole.layers[0].load_state_dict(first.layers[0].state_dict())
    whole.layers[1].load_state_dict(last.layers[0].state_dict())
    whole.norm.load_state_dict(last.norm.state_dict())
    whole.head.load_state_dict(last.head.state_dict())

    inputs, targets = batch[:, :-1], batch[:, 1:]
    loss = last(first(inputs, targets), targets)

    torch.testing.assert_close(loss, whole(inputs, targets))


def test_work_keeps_a_thread_busy_for_as_long_as_it_says() -> None:
    import time  # here: only this test looks at a clock

    begun_ns = time.perf_counter_ns()
    work(2_000_000)

    assert time.perf_counter_ns() - begun_ns >= 2_000_000
