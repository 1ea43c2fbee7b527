"""Plain DistributedDataParallel, as a user would write it."""

import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
width, rows = int(os.environ.get("WIDTH", "64")), int(os.environ.get("ROWS", "8"))
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)),
    bucket_cap_mb=0.05,
    find_unused_parameters=os.environ.get("UNUSED") == "1",
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(int(os.environ.get("STEPS", "4"))):
    loss = model(torch.randn(rows, width)).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss.detach())
    if loss.item() < 0:
        raise ValueError("a square is below 0")
dist.destroy_process_group()
