"""torch.distributed.pipelining: the schedule named in the environment, replicas beside it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
stages = int(os.environ.get("STAGES", str(dist.get_world_size())))
kind = os.environ.get("SCHEDULE", "1F1B")
mesh = init_device_mesh(
    "cpu", (dist.get_world_size() // stages, stages), mesh_dim_names=("data", "stages")
)
stage = mesh.get_local_rank("stages")
group = mesh.get_group("stages")
torch.manual_seed(0)
width, rows = int(os.environ.get("WIDTH", "16")), int(os.environ.get("ROWS", "4"))
is_interleaved = kind.startswith("Interleaved")
places = [stage, stage + stages] if is_interleaved else [stage]
total = stages * len(places)
modules = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in places]
made = [
    pipelining.PipelineStage(module, place, total, torch.device("cpu"), group=group)
    for module, place in zip(modules, places, strict=True)
]
schedule_class = pipelining.schedules.get_schedule_class(kind)
schedule = schedule_class(
    made if is_interleaved else made[0],
    n_microbatches=2 * stages,
    loss_fn=nn.functional.mse_loss,
)
optimizer = torch.optim.SGD([one for module in modules for one in module.parameters()], lr=0.1)
inputs, target = (torch.randn(rows * stages, width) for _ in range(2))
for _ in range(int(os.environ.get("STEPS", "3"))):
    losses: list[torch.Tensor] = []
    is_last = stage == stages - 1
    schedule.step(
        *([inputs] if stage == 0 else []),
        **({"target": target, "losses": losses} if is_last else {}),
    )
    for module in modules:
        for one in module.parameters():
            dist.all_reduce(one.grad, group=mesh.get_group("data"))
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
