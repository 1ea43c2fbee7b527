"""What scripts call beside their operators, where no GPU and no other rank is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.machine import load_machine
from foretrace.world import WorldRun

pytest.importorskip("torch")

HEAD = """
import json, os, sys, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % torch.cuda.device_count())
told = []
"""
TAIL = """
with open(os.path.join(sys.argv[1], f"told-{rank}.json"), "w") as file:
    json.dump(told, file)
"""
STEP = """
    model(torch.randn(8, 16, device=0)).sum().backward()
    update.step()
    update.zero_grad()
"""


def run(folder: Path, made: str, in_step: str, world: int = 4) -> WorldRun:
    """Run a script of three steps; its last part is what it says of itself."""
    loop = "for step in range(9):" + STEP + in_step + "    if step == 1:\n"
    last = "".join(f"        {line}\n" for line in TAIL.strip().splitlines())
    script = folder / "script.py"
    script.write_text(HEAD + made + loop + last)
    return ft.run(
        script, [str(folder)], world=world, out=folder / "job", machine=load_machine("dgx-h100")
    )


def told(folder: Path, rank: int) -> list[object]:
    found: list[object] = json.loads((folder / f"told-{rank}.json").read_text())
    return found


DDP = """
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 16).to(0), device_ids=[0])
update = torch.optim.SGD(model.parameters(), 0.1)
"""


def test_a_gpu_that_is_not_there_answers(tmp_path: Path) -> None:
    run(
        tmp_path,
        DDP + "first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n"
        "stream = torch.cuda.Stream()\n",
        """
    first.record()
    torch.cuda.nvtx.range_push("step")
    with torch.cuda.stream(stream):
        rows = torch.randn(8, 16).pin_memory().to(0, non_blocking=True)
        rows.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.nvtx.range_pop()
    last.record()
    torch.cuda.synchronize()
    told = [first.elapsed_time(last), torch.cuda.mem_get_info()[1], torch.cuda.memory_stats()["x"]]
""",
    )

    assert told(tmp_path, 0) == [1.0, 80 << 30, 0]


def test_objects_of_one_rank_arrive_at_the_others(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        DDP,
        """
    given = [{"from": rank} if rank == 0 else None]
    dist.broadcast_object_list(given, src=0)
    part = [None]
    dist.scatter_object_list(part, list(range(10, 10 + world)) if rank == 0 else None, src=0)
    every = [None] * world
    dist.all_gather_object(every, rank)
    told = [given[0], part[0], every]
""",
    )

    assert told(tmp_path, 0) == [{"from": 0}, 10, [0] * 4]
    assert told(tmp_path, 3) == [{"from": 0}, 13, [3] * 4]
    assert "objects that other ranks gave were this rank's own" in str(found)


def test_checkpoints_are_not_written_and_it_is_said(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
import torch.distributed.checkpoint as checkpoint
from torch.distributed.fsdp import fully_shard
model = fully_shard(nn.Linear(16, 16).to(0))
update = torch.optim.AdamW(model.parameters())
""",
        """
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=sys.argv[1] + "/saved")
""",
    )

    assert not (tmp_path / "saved").exists()
    assert "torch.distributed.checkpoint.save did nothing" in str(found)
    assert {one.kind for one in found.timeline.graph.collectives} >= {"allgather"}
