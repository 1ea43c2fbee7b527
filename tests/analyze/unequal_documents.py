"""What each of two processes runs in `test_unequal_documents.py`."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from foretrace.capture import record

WIDTH, HEADS, LAYERS, WORDS = 128, 4, 2, 256
DOCUMENTS = ([64] * 16, [1024])  # of rank 0, of rank 1: as many tokens


def main(rank: int, meeting: str, folder: str) -> None:
    """Record 3 steps: attention document by document, the rest over all tokens."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    lengths = DOCUMENTS[rank]
    torch.manual_seed(0)
    table, head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
    joint = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
    up = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
    parameters = [*table.parameters(), *joint.parameters(), *up.parameters(), *head.parameters()]
    with record(folder, steps=3, warmup=1, unprofiled=1) as recorder:
        while not recorder.is_done:
            tokens = torch.randint(WORDS, (sum(lengths),))
            hidden = table(tokens)
            for number in range(LAYERS):
                made = []
                for one in joint[number](hidden).split(lengths):
                    query, key, value = one.reshape(len(one), 3, HEADS, -1).permute(1, 2, 0, 3)
                    seen = functional.scaled_dot_product_attention(
                        query, key, value, is_causal=True
                    )
                    made.append(seen.transpose(0, 1).reshape(len(one), WIDTH))
                hidden = hidden + up[number](torch.cat(made))
            torch.autograd.backward(functional.cross_entropy(head(hidden), tokens))
            flat = torch.cat([one.grad.flatten() for one in parameters if one.grad is not None])
            dist.all_reduce(flat)
            recorder.step()
    dist.destroy_process_group()
