"""A model's parts divided over tensor-parallel ranks, as in Megatron-LM; alone they are whole.

This file imports PyTorch at its top: only the processes of a training run load it.

Source:
    Shoeybi et al., "Megatron-LM", arXiv:1909.08053, sections 3 and 5; for the loss,
    megatron/core/tensor_parallel/cross_entropy.py.
"""

# ruff: noqa: D102 - `forward` and `backward` are what PyTorch says they are
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, distributed, nn
from torch.autograd.function import Function
from torch.nn import functional


@dataclass(frozen=True)
class TensorRanks:
    """The ranks that divide each layer, and which of them this is."""

    group: distributed.ProcessGroup | None  # `None`: alone
    count: int
    position: int


class _Enter(Function):
    """Into a divided part: the same forward, the sum of all ranks' gradients backward."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, group: distributed.ProcessGroup) -> Tensor:
        context.group = group
        return inputs.view_as(inputs)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous()
        distributed.all_reduce(gradient, group=context.group)
        return gradient, None


class _Leave(Function):
    """Out of a divided part: the sum of all ranks' outputs, the same gradient back."""

    @staticmethod
    def forward(context: Any, outputs: Tensor, group: distributed.ProcessGroup) -> Tensor:
        context.mark_dirty(outputs)
        distributed.all_reduce(outputs, group=group)
        return outputs

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004  PyTorch's signature
        return gradients[0], None


def _applied(function: type[Function], *arguments: object) -> Tensor:
    found: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]  # PyTorch's
    return found


def entered(inputs: Tensor, ranks: TensorRanks) -> Tensor:
    """Inputs of a part that each rank has a share of."""
    return inputs if ranks.group is None else _applied(_Enter, inputs, ranks.group)


def left(outputs: Tensor, ranks: TensorRanks) -> Tensor:
    """The sum of what the ranks' shares of a part give."""
    return outputs if ranks.group is None else _applied(_Leave, outputs, ranks.group)


class DividedEmbedding(nn.Module):
    """A table whose rows are divided: a rank finds its own tokens, the rest is summed."""

    def __init__(self, rows: int, width: int, ranks: TensorRanks) -> None:
        super().__init__()
        self.ranks = ranks
        self.rows = rows // ranks.count
        self.table = nn.Embedding(self.rows, width)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.ranks.group is None:
            return functional.embedding(tokens, self.table.weight)
        own = tokens - self.ranks.position * self.rows
        is_foreign = (own < 0) | (own >= self.rows)
        found = functional.embedding(own.masked_fill(is_foreign, 0), self.table.weight)
        return left(found.masked_fill(is_foreign.unsqueeze(-1), 0.0), self.ranks)


class _DividedLoss(Function):
    """Mean cross entropy of logits whose columns are divided."""

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor, ranks: TensorRanks) -> Tensor:
        group, columns = ranks.group, logits.shape[-1]
        largest = logits.amax(-1)
        distributed.all_reduce(largest, op=distributed.ReduceOp.MAX, group=group)
        shifted = logits - largest.unsqueeze(-1)
        own = targets - ranks.position * columns
        is_foreign = (own < 0) | (own >= columns)
        own = own.masked_fill(is_foreign, 0)
        right = shifted.gather(-1, own.unsqueeze(-1)).squeeze(-1).masked_fill(is_foreign, 0.0)
        distributed.all_reduce(right, group=group)
        exponentials = shifted.exp()
        total = exponentials.sum(-1)
        distributed.all_reduce(total, group=group)
        context.save_for_backward(exponentials / total.unsqueeze(-1), own, is_foreign)
        return (total.log() - right).mean()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        shares, own, is_foreign = context.saved_tensors
        ones = (~is_foreign).to(shares.dtype).neg().unsqueeze(-1)
        gradient = shares.scatter_add(-1, own.unsqueeze(-1), ones)
        return gradient * (gradients[0] / len(own)), None, None


def cross_entropy(logits: Tensor, targets: Tensor, ranks: TensorRanks) -> Tensor:
    """Mean loss of a rank's share of the logits, [tokens, columns]."""
    if ranks.group is None:
        return functional.cross_entropy(logits, targets)
    return _applied(_DividedLoss, logits, targets, ranks)
