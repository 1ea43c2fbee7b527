"""fully_shard over a mesh, with tensor parallelism where TP is above one, replicas with HSDP."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.relu(self.up(self.norm(x))))
        return x + y


dist.init_process_group("gloo")
tensor, replicas = int(os.environ.get("TP", "1")), int(os.environ.get("REPLICAS", "1"))
sharded = dist.get_world_size() // tensor // replicas
mesh = init_device_mesh(
    "cpu", (replicas, sharded, tensor), mesh_dim_names=("replicas", "shards", "tensor")
)
torch.manual_seed(0)
width, rows = int(os.environ.get("WIDTH", "32")), int(os.environ.get("ROWS", "4"))
model = nn.Sequential(*(Block(width) for _ in range(3)))
if tensor > 1:
    for block in model:
        parallelize_module(
            block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
        )
if sharded > 1:
    over = mesh["replicas", "shards"] if replicas > 1 else mesh["shards"]
    for block in model:
        fully_shard(block, mesh=over)
    fully_shard(model, mesh=over)
# Norms are plain tensors without shards, and one call cannot update those beside distributed ones.
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=sharded > 1 or tensor == 1)
for _ in range(int(os.environ.get("STEPS", "3"))):
    loss = model(torch.randn(rows, 16, width)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
