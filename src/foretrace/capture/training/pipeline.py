"""One step of one process: its microbatches forward and backward in the order of 1F1B.

This file imports PyTorch at its top: only the processes of a training run load it. Without a
pipeline the order is that of accumulated gradients: each microbatch forward, then backward.

Source:
    Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
    arXiv:2104.04473, section 2.2.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from foretrace.capture.training.data_parallel import awaits_gradients
from foretrace.capture.training.settings import TrainingSettings


@dataclass(frozen=True)
class Neighbours:
    """Ranks of the stages before and after this one; `None` at the ends."""

    before: int | None
    after: int | None


@dataclass
class PipelineStep:
    """What is under way in one step."""

    module: nn.Module  # of one stage, replicated or not
    neighbours: Neighbours
    settings: TrainingSettings
    waiting: deque[tuple[Tensor, Tensor]] = field(default_factory=deque)  # inputs, outputs
    sends: list[distributed.Work] = field(default_factory=list)
    num_done: int = 0  # microbatches whose backward pass is over

    def run(self, tokens: Tensor, *, stage: int) -> Tensor:
        """All microbatches; the loss of the last one on the last stage, else what it gives.

        Args:
            tokens: [microbatches, batch, sequence + 1].
            stage: which one this is, from 0.
        """
        count = len(tokens)
        ahead = min(self.settings.pipeline - stage - 1, count)
        output = tokens
        for index in range(count):
            output = self._forward(tokens[index])
            if index >= ahead:
                self._backward(count)
        while self.waiting:
            self._backward(count)
        for send in self.sends:
            send.wait()
        self.sends.clear()
        self.num_done = 0
        return output.detach()

    def _forward(self, tokens: Tensor) -> Tensor:
        inputs = tokens[:, :-1]
        if self.neighbours.before is not None:
            inputs = self._received(self.neighbours.before).requires_grad_()
        with self._unsynchronised():
            output: Tensor = self.module(inputs, tokens[:, 1:])
        if self.neighbours.after is not None:
            self._send(output.detach(), self.neighbours.after)
        else:
            output = output / self.settings.num_microbatches
        self.waiting.append((inputs, output))
        return output

    def _backward(self, count: int) -> None:
        inputs, output = self.waiting.popleft()
        gradient = None
        if self.neighbours.after is not None:
            gradient = self._received(self.neighbours.after)
        self.num_done += 1
        if self.num_done == count:
            awaits_gradients(self.module, output)
            torch.autograd.backward(output, gradient)
        else:
            with self._unsynchronised():
                torch.autograd.backward(output, gradient)
        if self.neighbours.before is not None and inputs.grad is not None:
            self._send(inputs.grad, self.neighbours.before)

    def _received(self, rank: int) -> Tensor:
        settings = self.settings
        shape = (settings.micro_batch, settings.sequence, settings.hidden)
        buffer = torch.empty(shape, device=settings.device)
        distributed.recv(buffer, rank)
        return buffer

    def _send(self, tensor: Tensor, rank: int) -> None:
        work = distributed.isend(tensor, rank)
        if work is not None:
            self.sends.append(work)

    def _unsynchronised(self) -> AbstractContextManager[None]:
        if isinstance(self.module, DistributedDataParallel):
            return self.module.no_sync()
        return nullcontext()
