"""What each of two processes runs in `test_tensor_parallel.py`: shares against wholes."""

from __future__ import annotations

import torch
from torch import Tensor, distributed
from torch.nn import functional

from foretrace.capture.training.tensor_parallel import (
    DividedEmbedding,
    TensorRanks,
    cross_entropy,
    entered,
    left,
)

ROWS, WIDTH, TOKENS = 12, 4, 10


def main(rank: int, meeting: str) -> None:
    """Compare this rank's share of an embedding, two products and the loss with the whole."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    ranks = TensorRanks(distributed.group.WORLD, 2, rank)
    generator = torch.Generator().manual_seed(0)
    table, up, down = (
        torch.randn(rows, columns, generator=generator)
        for rows, columns in ((ROWS, WIDTH), (8, WIDTH), (WIDTH, 8))
    )
    tokens = torch.randint(ROWS, (TOKENS,), generator=generator)
    check_embedding(table, tokens, ranks)
    check_products(up, down, ranks)
    check_loss(torch.randn(TOKENS, ROWS, generator=generator), tokens, ranks)
    distributed.barrier()
    distributed.destroy_process_group()


def share(whole: Tensor, ranks: TensorRanks, dimension: int = 0) -> Tensor:
    """This rank's part of the rows or columns."""
    return whole.chunk(2, dim=dimension)[ranks.position].clone().requires_grad_()


def check_embedding(table: Tensor, tokens: Tensor, ranks: TensorRanks) -> None:
    """Each rank finds its rows; the sum has all of them."""
    divided = DividedEmbedding(ROWS, WIDTH, ranks)
    divided.table.weight.data.copy_(share(table, ranks))
    found = divided(tokens)
    torch.testing.assert_close(found, functional.embedding(tokens, table))
    found.sum().backward()
    counts = torch.bincount(tokens, minlength=ROWS).float().unsqueeze(1).expand(ROWS, WIDTH)
    torch.testing.assert_close(divided.table.weight.grad, share(counts, ranks).detach())


def check_products(up: Tensor, down: Tensor, ranks: TensorRanks) -> None:
    """Columns, then rows: the output and the input's gradient are those of the whole."""
    inputs = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(1))
    own, alone = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    hidden = functional.linear(entered(own, ranks), share(up, ranks))
    found = left(functional.linear(hidden, share(down, ranks, 1)), ranks)
    expected = functional.linear(functional.linear(alone, up), down)
    torch.testing.assert_close(found, expected)
    (found**2).sum().backward()  # type: ignore[no-untyped-call]  # PyTorch's
    (expected**2).sum().backward()  # type: ignore[no-untyped-call]  # PyTorch's
    torch.testing.assert_close(own.grad, alone.grad)


def check_loss(logits: Tensor, tokens: Tensor, ranks: TensorRanks) -> None:
    """The loss and each rank's share of its gradient."""
    whole = logits.clone().requires_grad_()
    own = share(logits, ranks, 1)
    found, expected = cross_entropy(own, tokens, ranks), functional.cross_entropy(whole, tokens)
    torch.testing.assert_close(found, expected)
    (3 * found).backward()  # type: ignore[no-untyped-call]
    (3 * expected).backward()  # type: ignore[no-untyped-call]
    assert whole.grad is not None
    torch.testing.assert_close(own.grad, share(whole.grad, ranks, 1).detach())
