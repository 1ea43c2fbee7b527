"""What each of two processes runs in `test_training.py`: an epoch of packed documents."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from foretrace.balance import BatchSampler

WORDS, WIDTH, WINDOW = 50, 16, 64


class Documents(torch.utils.data.Dataset[Tensor]):
    """Documents of random words, the same in every process."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, document: int) -> Tensor:
        generator = torch.Generator().manual_seed(document)
        return torch.randint(WORDS, (self.lengths[document],), generator=generator)


class Model(nn.Module):
    """One layer of causal attention that sees no other document."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(WORDS, WIDTH)
        self.joint = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor, document: Tensor) -> Tensor:
        query, key, value = self.joint(self.table(tokens)).chunk(3, dim=-1)
        sees = (document[:, None] == document[None]).tril()
        made = functional.scaled_dot_product_attention(query, key, value, attn_mask=sees)
        logits: Tensor = self.head(made)
        return logits


def packed(documents: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Tokens of a microbatch, and which document each belongs to."""
    numbers = [torch.full_like(one, at) for at, one in enumerate(documents)]
    return torch.cat(documents), torch.cat(numbers)


def main(rank: int, meeting: str, queues: list[list[int]], out: str) -> None:
    """Write what an epoch with each list of thresholds found."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    epochs = [epoch(rank, thresholds) for thresholds in queues]
    if rank == 0:
        Path(out).write_text(json.dumps(epochs))
    distributed.destroy_process_group()


def epoch(rank: int, thresholds: list[int]) -> dict[str, list[float]]:
    """Every document's loss and the gradient of an epoch, and the documents seen."""
    lengths = torch.randint(2, WINDOW + 1, (200,), generator=torch.Generator().manual_seed(1))
    data = Documents(lengths.tolist())
    sampler = BatchSampler(
        data.lengths, window=WINDOW, num_microbatches=2, num_copies=2, copy=rank,
        thresholds=thresholds,
    )  # fmt: skip
    microbatches = list(sampler)
    full = [one for one in microbatches if one]
    loader = torch.utils.data.DataLoader(data, batch_sampler=full, collate_fn=packed)
    model, loss = Model().double(), torch.zeros(len(data), dtype=torch.float64)
    for held, (tokens, document) in zip(full, loader, strict=True):
        logits = model(tokens, document)[:-1]
        is_next = document[1:] == document[:-1]
        lost = functional.cross_entropy(logits[is_next], tokens[1:][is_next], reduction="none")
        torch.autograd.backward(lost.sum())
        loss.index_add_(0, torch.tensor(held)[document[1:][is_next]], lost.detach())
    gradients = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
    found = torch.cat([loss, *gradients])
    distributed.all_reduce(found)
    drawn = torch.tensor([document for one in microbatches for document in one])
    seen = torch.bincount(drawn, minlength=len(data))
    distributed.all_reduce(seen)
    return {"found": found.tolist(), "seen": seen.tolist()}
