"""Scripts run as a few ranks of a world, and the job that comes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import numpy as np
import pytest

import foretrace as ft
from foretrace.base import ModelError, WorkloadError
from foretrace.capture import (
    DeviceWork,
    IssuedExchange,
    IssuedRole,
    IssuedWork,
    StepBegin,
    StreamHold,
    WorldRoles,
)
from foretrace.capture.world import launch
from foretrace.capture.world.role import Entry, RoleMemory
from foretrace.graph import NodeKind
from foretrace.machine import load_machine
from foretrace.trace import Category
from foretrace.world import WorldRun
from tests import ranks

SCRIPTS = Path(__file__).parents[1] / "capture" / "world" / "scripts"
EXAMPLES = Path(__file__).parents[2] / "examples"

pytest.importorskip("torch")


def issue(arguments: list[str], environment: dict[str, str], said: str) -> None:
    """What a rank's process does."""
    from foretrace.capture.world.__main__ import main  # needs PyTorch

    os.environ.update(environment)
    sys.argv = ["", *arguments]
    with Path(said).open("ab") as out:
        for number in (1, 2):
            os.dup2(out.fileno(), number)
    os._exit(main())


def copied(command: list[str], *, env: dict[str, str], stdout: BinaryIO, stderr: int) -> object:
    """In the place of `Popen`."""
    assert command[1:3] == ["-m", "foretrace.capture.world"]
    assert stderr == subprocess.STDOUT
    return ranks.CopiedProcess(issue, command[3:], env, stdout.name)


@pytest.fixture
def _copied(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = SimpleNamespace(Popen=copied, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(launch, "subprocess", processes)


def test_an_error_of_the_script_is_its_own_traceback_with_the_rank(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("def f():\n    raise KeyError('batch')\nf()\n")

    with pytest.raises(ModelError, match=r"as rank 0 of 8") as raised:
        ft.run(script, world=8, out=tmp_path / "job", device="cpu", ranks=[0])

    assert "KeyError: 'batch'" in str(raised.value)
    assert "capture/world" not in str(raised.value)


def test_a_device_without_memory_needs_a_machine(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="name one"):
        ft.run(SCRIPTS / "ddp.py", world=8, out=tmp_path)


@pytest.mark.usefixtures("_copied")
def test_stages_of_a_pipeline_are_roles_that_agree_on_shapes_and_meet(tmp_path: Path) -> None:
    found = ft.run(
        SCRIPTS / "pipeline.py", world=2, out=tmp_path, machine=load_machine("dgx-h100"), steps=1
    )

    assert [one.num_ranks for one in found.roles] == [1, 1]
    job = ft.load(tmp_path)
    assert {one.group for one in job.graph.collectives if one.is_pair} == {"0:0-1", "0:1-0"}
    assert job.replayed.end_ns.max() == pytest.approx(found.timeline.end_ns.max(), rel=0.01)


@pytest.mark.usefixtures("_copied")
def test_a_world_of_10_000_runs_its_roles_alone_and_writes_its_files_once(tmp_path: Path) -> None:
    script = tmp_path / "saving.py"
    script.write_text(
        "import foretrace, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        f"log = open({str(tmp_path / 'log')!r}, 'a')\n"
        "print(dist.get_rank(), file=log, flush=True)\n"
        "assert torch.cuda.get_device_properties(0).total_memory == 80 << 30\n"
        "rows = torch.randn(64, 8, device='cuda:0')\n"
        "loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)\n"
        "model = torch.nn.Linear(8, 8).to('cuda')\n"
        "wrapped = torch.nn.parallel.DistributedDataParallel\n"
        "model = torch.compile(wrapped(model, device_ids=[0], find_unused_parameters=True))\n"
        "update = torch.optim.SGD(model.parameters())\n"
        "with foretrace.record('never', world=10_000) as recorder:\n"
        "    for row in loader:\n"
        "        with torch.autocast('cuda', dtype=torch.bfloat16):\n"
        "            out = model(row)\n"
        "        assert out.dtype is torch.bfloat16\n"
        "        out.sum().backward()\n"
        "        update.step()\n"
        "        recorder.step()\n"
    )

    found = ft.run(
        script, world=10_000, out=tmp_path / "job", machine=load_machine("dgx-h100"), steps=1
    )

    assert [one.num_ranks for one in found.roles] == [10_000]
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "9999"]
    assert any("operators are those of eager PyTorch, 1 time" in one for one in found.notes)


def test_a_script_that_records_a_world_runs_as_its_ranks_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, object] = {}

    def run(script: Path, arguments: list[str], **settings: object) -> str:
        asked.update(settings, script=script, arguments=arguments)
        return "a step takes 1 ms"

    monkeypatch.setattr("foretrace.api.recording.run", run)
    monkeypatch.setattr("sys.argv", [str(SCRIPTS / "ddp.py"), "--its", "own"])

    with pytest.raises(SystemExit, match="0"):
        ft.record(tmp_path, world=8, device="cpu")

    assert asked == {
        "script": SCRIPTS / "ddp.py", "arguments": ["--its", "own"], "world": 8, "out": tmp_path,
        "device": "cpu",
    }  # fmt: skip
    assert capsys.readouterr().out == "a step takes 1 ms\n"
    monkeypatch.setattr("sys.argv", [""])
    with pytest.raises(WorkloadError, match=r"call it in a script, or call foretrace\.run"):
        ft.record(tmp_path, world=8)


@pytest.mark.usefixtures("_copied")
def test_parameters_without_a_device_and_freed_gathers_are_no_memory(tmp_path: Path) -> None:
    """Also what DTensor computes to learn shapes is none of the script's work."""
    found = ft.run(
        EXAMPLES / "llama-fsdp2-tp" / "train.py",
        ("--size", "tiny", "--sequence", "16", "--tp", "2"),
        world=64,
        out=tmp_path,
        machine=load_machine("dgx-h100"),
        ranks=[0],  # whose work is asked about here
        steps=1,
        warmup=0,
    )

    (role,) = found.roles
    whole_bytes = 4 * (2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 256 * 64 + 64)
    assert whole_bytes / 64 < role.parameter_bytes < 1.1 * whole_bytes / 32
    assert role.peak_bytes < whole_bytes
    graph = ft.load(tmp_path).graph
    ran = [graph.names[one] for one in graph.operator.tolist() if one >= 0]
    assert ran.count("aten::_fused_rms_norm") in {5, 10}  # of launch and kernel
    assert not ran.count("aten::rsqrt")


def _timed(rank: int = 0) -> IssuedRole:
    """A step of one operator that started two kernels, and a sum over two ranks behind it."""
    kernel = int(Category.KERNEL)
    entries: list[Entry] = [
        StepBegin(0),
        IssuedWork(0, 1, 0, "forward", started=(
            DeviceWork(2, int(Category.MEMSET), 1_000), DeviceWork(3, kernel, 70_000),
        )),
        IssuedWork(4, 1, 0, "forward"),  # which started nothing
        IssuedExchange("allreduce", "0", 1 << 20, 1 << 20, "float32", 1, "backward", 1),
        StreamHold(0, 3),
        StepBegin(1),
    ]  # fmt: skip
    signature = '{"dims":[[64,64],[64,64]],"types":["float","float"]}'
    return IssuedRole(
        rank=rank, world_size=2, device="cuda", entries=entries,
        texts=["aten::mm", signature, "Memset (Device)", "gemm_64x64", "aten::view"],
        groups={"0": (0, 1)}, other_groups=[], memory=RoleMemory(peak=5, allocated=512),
        device_name="NVIDIA H200", device_bytes=1 << 37,
    )  # fmt: skip


def test_kernels_that_a_gpu_timed_keep_their_times_unless_another_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = WorldRoles({0: _timed()}, {0: 2}, is_checked=False)
    monkeypatch.setattr("foretrace.world.script_run.roles_of", lambda *_given, **_more: roles)

    def ran(machine: str | None) -> tuple[WorldRun, dict[str, int]]:
        found = ft.run(
            SCRIPTS / "ddp.py", world=2, out=tmp_path / str(machine), device="cuda", warmup=0,
            machine=None if machine is None else load_machine(machine),
        )  # fmt: skip
        graph = found.timeline.graph
        spent_ns = found.timeline.end_ns - found.timeline.start_ns
        return found, {
            graph.names[graph.name[node]]: int(spent_ns[node])
            for node in np.flatnonzero(graph.is_device | (graph.kind == NodeKind.FINISH)).tolist()
        }

    alone, own_ns = ran(None)
    beside, with_sums_ns = ran("dgx-h200")
    other, of_costs_ns = ran("dgx-h100")

    sums = "ncclDevKernel_AllReduce"
    assert own_ns == {"Memset (Device)": 1_000, "gemm_64x64": 70_000, sums: 0}
    assert with_sums_ns == own_ns | {sums: with_sums_ns[sums]}
    assert with_sums_ns[sums] > 10_000
    assert set(of_costs_ns) == {"aten::mm", "aten::view", sums}
    assert of_costs_ns["aten::mm"] < 70_000
    assert any("take what cost models say" in one for one in other.notes)
    assert (alone.memory_bytes, alone.roles[0].peak_bytes, alone.roles[0].storage_bytes) == (
        1 << 37, 512, 5,
    )  # fmt: skip
    assert beside.memory_bytes == load_machine("dgx-h200").chip.memory_bytes
    assert ft.load(tmp_path / "dgx-h200").replayed.end_ns.max() == beside.timeline.end_ns.max()


def test_a_barrier_is_the_sum_of_one_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = _timed()
    role.entries.insert(-1, IssuedExchange("barrier", "0", 0, 0, "", 1, "forward", 3))
    roles = WorldRoles({0: role}, {0: 2}, is_checked=False)
    monkeypatch.setattr("foretrace.world.script_run.roles_of", lambda *_given, **_more: roles)

    found = ft.run(
        SCRIPTS / "ddp.py", world=2, out=tmp_path, device="cuda", warmup=0,
        machine=load_machine("dgx-h200"),
    )  # fmt: skip

    last = found.timeline.graph.collectives[-1]
    assert (last.name, last.num_bytes, last.dtype) == ("allreduce", 4, "fp32")


def test_a_gpu_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(WorkloadError, match="PyTorch sees none here"):
        ft.run(SCRIPTS / "ddp.py", world=8, out=tmp_path, device="cuda")
