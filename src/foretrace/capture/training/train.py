"""One process of a training run: joins the others, times its steps, records some if asked.

This file imports PyTorch at its top: only the processes of a training run load it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor, distributed, nn

from foretrace.base import write_whole
from foretrace.capture.recorder import record
from foretrace.capture.training.data_parallel import replicated
from foretrace.capture.training.model import Stage
from foretrace.capture.training.pipeline import Neighbours, PipelineStep
from foretrace.capture.training.settings import Task, Times, TrainingSettings, times_path
from foretrace.capture.training.tensor_parallel import TensorRanks

_LEARNING_RATE = 1e-3
_NUM_BATCHES = 4  # that are made beforehand and taken in turns


@dataclass(frozen=True)
class _Place:
    """Where a rank stands, and whom it talks to."""

    stage: int
    data_position: int
    tensor: TensorRanks
    data_group: distributed.ProcessGroup | None
    neighbours: Neighbours


def train(task: Task, rank: int) -> None:
    """Run this rank's part of the task, and leave its times last of all.

    The process group stays: a rank that left it could take along what another still waits for.
    """
    settings = task.settings
    is_gpu = settings.device != "cpu"
    if is_gpu:
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    distributed.init_process_group(
        "nccl" if is_gpu else "gloo",
        init_method=task.meeting,
        rank=rank,
        world_size=settings.num_ranks,
    )
    trainer = _trainer(settings, _placed(settings, rank))
    for _ in range(task.warmup):
        trainer.step()
    ends_ns = [trainer.now_ns()]
    for _ in range(task.steps):
        trainer.step()
        ends_ns.append(trainer.now_ns())
    _record(trainer, task)
    times = Times(rank=rank, end_ns=tuple(ends_ns), loss=trainer.loss)
    write_whole(times_path(task, rank), msgspec.json.encode(times))


def _record(trainer: _Trainer, task: Task) -> None:
    if task.recording is None:
        return
    with record(
        task.recording,
        steps=task.profiled,
        warmup=0,
        unprofiled=task.unprofiled,
        execution_trace=None,
    ) as recorder:
        while not recorder.is_done:
            trainer.step()
            recorder.step()


@dataclass
class _Trainer:
    """Everything that a step needs."""

    settings: TrainingSettings
    place: _Place
    module: nn.Module
    pipeline: PipelineStep
    optimizer: torch.optim.Optimizer
    batches: Tensor  # int64[batches, microbatches, micro_batch, sequence + 1]
    num_steps: int = 0
    output: Tensor | None = None

    def step(self) -> None:
        """Train one step."""
        tokens = self.batches[self.num_steps % len(self.batches)]
        self.num_steps += 1
        self.output = self.pipeline.run(tokens, stage=self.place.stage)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def now_ns(self) -> int:
        """The time at which all work so far is done."""
        if self.settings.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter_ns()

    @property
    def loss(self) -> float | None:
        """Of the last microbatch, on the last stage."""
        if self.place.neighbours.after is not None or self.output is None:
            return None
        return float(self.output) * self.settings.num_microbatches


def _placed(settings: TrainingSettings, rank: int) -> _Place:
    """The place of a rank; every rank makes all groups, in the same order."""
    tensor, data, pipeline = settings.tensor, settings.data, settings.pipeline
    grid = torch.arange(settings.num_ranks).view(pipeline, data, tensor)
    tensor_group = _own_group(grid.flatten(0, 1).tolist(), rank, "tensor")
    data_group = _own_group(grid.transpose(1, 2).flatten(0, 1).tolist(), rank, "data")
    stage, data_position = rank // (tensor * data), rank // tensor % data
    stride = tensor * data
    return _Place(
        stage=stage,
        data_position=data_position,
        tensor=TensorRanks(tensor_group, tensor, rank % tensor),
        data_group=data_group,
        neighbours=Neighbours(
            before=rank - stride if stage else None,
            after=rank + stride if stage < pipeline - 1 else None,
        ),
    )


def _own_group(
    rows: list[list[int]], rank: int, description: str
) -> distributed.ProcessGroup | None:
    """The group among these that a rank is in; `None` if it is alone in it."""
    if len(rows[0]) == 1:
        return None
    groups = [distributed.new_group(row, group_desc=description) for row in rows]
    own: distributed.ProcessGroup = groups[next(i for i, row in enumerate(rows) if rank in row)]
    return own


def _trainer(settings: TrainingSettings, place: _Place) -> _Trainer:
    # Copies start alike because DDP sends the first one's parameters to the others; of what is
    # not divided over tensor ranks the values differ, which changes no time.
    torch.manual_seed(place.stage * settings.tensor + place.tensor.position)
    is_slow = distributed.get_rank() == settings.slow_rank
    stage = Stage(
        settings,
        place.tensor,
        stage=place.stage,
        extra_ns=settings.slow_ns if is_slow else 0,
    ).to(settings.device)
    module = replicated(stage, settings, place.data_group)
    return _Trainer(
        settings=settings,
        place=place,
        module=module,
        pipeline=PipelineStep(module, place.neighbours, settings),
        optimizer=torch.optim.AdamW(stage.parameters(), lr=_LEARNING_RATE, fused=True),
        batches=_batches(settings, place.data_position),
    )


def _batches(settings: TrainingSettings, seed: int) -> Tensor:
    """Counting sequences: something that can be learnt."""
    generator = torch.Generator().manual_seed(seed)
    shape = (_NUM_BATCHES, settings.num_microbatches, settings.micro_batch, 1)
    first = torch.randint(settings.vocabulary, shape, generator=generator)
    tokens = (first + torch.arange(settings.sequence + 1)) % settings.vocabulary
    return tokens.to(settings.device)
