"""What scripts call beside their operators, where no GPU and no other rank is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.base import GraphError, ModelError
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
    told += [torch.cuda.device_count(), f"{rows.mean():.2f}", repr(torch.cuda.CUDAGraph | None)]
""",
    )

    assert told(tmp_path, 0)[:5] == [1.0, 80 << 30, 0, 4, "1.00"]


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


def test_what_a_script_saves_is_what_it_loads(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        DDP,
        """
    path = os.path.join(sys.argv[1], "saved.pt")
    torch.save({"model": model.state_dict(), "step": step}, path)
    told = [torch.load(path, map_location="cuda:0")["step"], os.path.exists(path)]
    model.load_state_dict(torch.load(path)["model"])
""",
        world=1,
    )

    assert told(tmp_path, 0) == [1, False]
    assert "torch.save wrote no file" in str(found)


def test_a_copy_of_a_module_is_one_of_its_own(tmp_path: Path) -> None:
    """Means of weights (EMA, SWA) are copies, of parameters and of buffers."""
    run(
        tmp_path,
        """
import copy
from torch.optim.swa_utils import AveragedModel
model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).to(0)
mean, again = AveragedModel(model), copy.deepcopy(model)
update = torch.optim.SGD(model.parameters(), 0.1)
""",
        """
    mean.update_parameters(model)
    own = [one.data for one in model.parameters()]
    told = [isinstance(again[0].weight, nn.Parameter), len(list(mean.parameters()))]
    told += [again[0].weight.shape == own[0].shape, again[0].weight.data is not own[0]]
    told += [again[1].num_batches_tracked.dtype == torch.int64, again[0].weight.requires_grad]
""",
        world=1,
    )

    assert told(tmp_path, 0) == [True, 4, True, True, True, True]


def test_sparse_gradients_have_no_storage_of_their_own(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
model = nn.Embedding(1_000, 16, sparse=True).to(0)
update = torch.optim.SparseAdam(list(model.parameters()))
torch.randn = lambda *_given, **_named: torch.zeros(8, dtype=torch.int64, device=0)
""",
        "",
        world=1,
    )

    (role,) = found.roles
    assert role.parameter_bytes == 1_000 * 16 * 4
    assert role.optimizer_bytes == 2 * role.parameter_bytes


def test_a_script_that_starts_its_own_ranks_is_one_of_them(tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def work(rank, world, scale):\n"
        "    dist.init_process_group('nccl', rank=rank, world_size=world)\n"
        "    model = torch.nn.Linear(16, 16).to(rank)\n"
        "    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])\n"
        "    update = torch.optim.SGD(model.parameters(), 0.1)\n"
        "    for step in range(5):\n"
        "        model(torch.randn(8, 16, device=rank)).sum().mul(scale).backward()\n"
        "        update.step()\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, args=(4, 2.0), nprocs=4, join=True)\n"
    )

    found = ft.run(script, world=4, out=tmp_path / "job", machine=load_machine("dgx-h100"))

    assert "torch.multiprocessing.spawn started no processes" in str(found)
    (role,) = found.roles
    assert role.num_ranks == 4
    assert role.collectives > 0


def test_loaders_work_without_processes_of_their_own(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from torch.utils.data import DataLoader, TensorDataset
rows = TensorDataset(torch.zeros(64, 16))
model = nn.Linear(16, 16).to(0)
update = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(rows, 8, num_workers=2, persistent_workers=True, prefetch_factor=4)
""",
        """
    told = [len(list(loader)), len(loader)]
""",
        world=1,
    )

    assert told(tmp_path, 0) == [8, 8]


def test_places_that_are_drawn_are_known(tmp_path: Path) -> None:
    """Batches are cut out of data where whole numbers that were drawn say."""
    run(
        tmp_path,
        DDP + "data = torch.zeros(512, 16)\n",
        """
    places = torch.randint(len(data) - 8, (4,))
    rows = torch.stack([data[one : one + 8] for one in places])
    order = [len(one) for one in torch.randperm(6).split(4)]
    torch.distributions.Categorical(logits=model(torch.zeros(4, 16))).sample()
    told = [list(rows.shape), all(0 <= int(one) < 504 for one in places), order]
""",
        world=1,
    )

    assert told(tmp_path, 0) == [[4, 8, 16], True, [4, 2]]


def test_a_cuda_graph_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"CUDA graph.*run the script without them"):
        run(tmp_path, "graph = torch.cuda.CUDAGraph()\n", "", world=1)


def test_shapes_of_values_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"depends on values.*--device cpu"):
        run(tmp_path, DDP + "net = model.module\n", "    net.weight[net.weight > 0]\n", world=1)


def test_scripts_find_gpus_and_pytorch_does_not(tmp_path: Path) -> None:
    """Examples of PyTorch's own end where `torch.accelerator` finds too few."""
    run(
        tmp_path,
        """
assert torch.cuda.is_available() and torch.accelerator.is_available()
device = torch.accelerator.current_accelerator()
torch.accelerator.set_device_index(rank)
told += [str(device), torch.accelerator.device_count(), dist.is_nccl_available()]
told += [dist.get_default_backend_for_device(device), torch.accelerator.current_device_index()]
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 16).to(device), device_ids=[0])
update = torch.optim.SGD(model.parameters(), 0.1)
rows = torch.utils.data.TensorDataset(torch.zeros(8, 16))
loader = torch.utils.data.DataLoader(rows, 8, pin_memory=True)  # which asks for one
scaler = torch.amp.GradScaler("cuda")  # as does this
""",
        """
    torch.accelerator.synchronize()
    if step == 0:
        told += [len(batch) for batch, in loader] + [scaler.is_enabled()]
""",
        world=1,
    )

    assert told(tmp_path, 0) == ["cuda", 1, True, "nccl", 0, 8, False]


def test_ranks_that_exchange_nothing_are_one_role(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(
        "import torch\nprint(torch.randn(8, 8, device='cuda').mm(torch.ones(8, 8)))\n"
    )

    found = ft.run(
        script, world=1_000, out=tmp_path / "job", machine=load_machine("dgx-h100"), steps=1,
        warmup=0,
    )  # fmt: skip

    assert [(one.rank, one.num_ranks) for one in found.roles] == [(0, 1_000)]


def test_a_script_that_ends_early_is_refused_with_what_it_said(tmp_path: Path) -> None:
    script = tmp_path / "early.py"
    script.write_text("import os\nprint('too few of', os.environ['RANK'])\n")
    begun: list[int] = []

    with pytest.raises(GraphError, match=r"ended after 1 step.*it said:\ntoo few of 0"):
        ft.run(
            script, world=1_000, out=tmp_path / "job", machine=load_machine("dgx-h100"),
            progress=begun.append,
        )  # fmt: skip

    assert sorted(begun) == [0, 999]


def test_a_scaler_of_gradients_leaves_out_no_step(tmp_path: Path) -> None:
    run(
        tmp_path,
        DDP
        + """
scaler = torch.amp.GradScaler(torch.device("cuda", 0).type)
other = torch.optim.SGD(model.parameters(), 0.1)
other.register_step_post_hook(lambda *_: told.append(scaler.is_enabled()))
""",
        """
    scaler.scale(model(torch.randn(8, 16, device=0)).sum()).backward()
    scaler.step(other)
    scaler.update()
""",
        world=1,
    )

    assert told(tmp_path, 0) == [True, True]


def test_a_module_that_was_made_without_a_device_gets_one(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
with torch.device("meta"):
    model = nn.Linear(16, 16)
model.to_empty(device=torch.device("cuda", 0))
told = [isinstance(model.weight, nn.Parameter), model.weight.is_meta]
model = nn.parallel.DistributedDataParallel(model, device_ids=[0])
update = torch.optim.AdamW(model.parameters())
""",
        "",
        world=1,
    )

    assert told(tmp_path, 0) == [True, False]
    (role,) = found.roles
    assert role.parameter_bytes == role.gradient_bytes == (16 * 16 + 16) * 4
