"""Experts on ranks of their own: tokens go there and back, as many each as counts say."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn import functional

_TOKENS = int(os.environ.get("ROWS", "32"))
_WIDTH = int(os.environ.get("WIDTH", "16"))
all_to_all_single: Any = functional.all_to_all_single

dist.init_process_group("gloo")
size = dist.get_world_size()
torch.manual_seed(0)
expert = nn.Linear(_WIDTH, _WIDTH)
optimizer = torch.optim.SGD(expert.parameters(), lr=0.1)
for _ in range(int(os.environ.get("STEPS", "3"))):
    tokens = torch.randn(_TOKENS, _WIDTH, requires_grad=True)
    routed = torch.arange(_TOKENS) % size
    counts = torch.bincount(routed, minlength=size)
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts)
    there, back = counts.tolist(), received.tolist()
    sent = tokens[torch.argsort(routed)]
    arrived = all_to_all_single(sent.new_empty(sum(back), _WIDTH), sent, back, there)
    returned = all_to_all_single(torch.empty_like(sent), expert(arrived), there, back)
    returned.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
