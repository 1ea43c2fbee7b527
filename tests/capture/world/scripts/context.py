"""Ring attention by context_parallel, with the block computed again where RECOMPUTE says so."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import experimental
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

_TOKENS, _WIDTH, _HEADS = 512, 32, 2
context_parallel: Any = experimental.context_parallel  # in no stub


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.out = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            one.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = x + self.out(y.transpose(1, 2).flatten(-2))
        return out


dist.init_process_group("gloo")
size = dist.get_world_size()
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("context",))
torch.manual_seed(0)
model = Block()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(os.environ.get("STEPS", "3"))):
    x = torch.randn(2, _TOKENS, _WIDTH)
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
        is_again = bool(os.environ.get("RECOMPUTE"))
        y = checkpoint(model, x, use_reentrant=False) if is_again else model(x)
        y.square().mean().backward()
    for one in model.parameters():
        dist.all_reduce(one.grad)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
