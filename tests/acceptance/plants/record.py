"""Records the runs of this folder: small training loops on CPUs, one thing planted in each.

    python -m tests.acceptance.plants.record [NAME ...]

Each loop trains three layers on one or two ranks that average their gradients over gloo, 5 steps
recorded. A slow operator reads the same memory in a random order.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import foretrace
from tests.acceptance.plants.runs import RUNS, Run

FOLDER = Path(__file__).parent
STEPS, WARMUP, PLANTED_STEP = 5, 3, 6  # of the loop; the recorded ones are 4 to 8
WIDTH, BATCH, TABLE = 512, 512, 1 << 20


class Batches(IterableDataset[Tensor]):
    """Endless batches; some come late."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def __iter__(self) -> Iterator[Tensor]:
        """Every batch is of the same numbers."""
        while True:
            time.sleep(self.seconds)
            yield torch.ones(BATCH, WIDTH)


class Layer(nn.Module):
    """A look-up in a table, by an order that is fast or slow to follow, and a product."""

    def __init__(self, entries: int, *, is_slow: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        order = torch.randperm(entries) if is_slow else torch.arange(entries)
        self.order, self.table = order, torch.ones(entries)

    def forward(self, given: Tensor) -> Tensor:
        """Both."""
        found = torch.index_select(self.table, 0, self.order)
        product: Tensor = self.linear(given) * found[0]
        return product.relu()


def train(run: Run, folder: Path) -> None:
    """One rank's loop."""
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if run.num_ranks > 1:
        dist.init_process_group("gloo")
    mine = run if rank == run.rank else Run("nothing", run.num_ranks, rank, 0)
    is_slow = mine.cause == "slow operator"
    entries = int(run.amount) if run.cause == "slow operator" else TABLE
    model = nn.Sequential(*(Layer(entries, is_slow=is_slow) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    late = run.amount if mine.cause == "late loader" else 0.0
    loader = iter(DataLoader(Batches(late), batch_size=None))
    heap = [[at] for at in range(int(run.amount))] if mine.cause == "garbage collection" else []
    gc.disable()
    with foretrace.record(
        folder, steps=STEPS, warmup=WARMUP, unprofiled=0, execution_trace=None
    ) as recorder:
        for step in range(WARMUP + STEPS + 3):
            batch = next(loader)
            if mine.cause == "uneven work":
                batch = batch.repeat(int(run.amount), 1)
            if step == PLANTED_STEP and heap:
                gc.collect()
            loss = model(batch).square().mean()
            if step == PLANTED_STEP and mine.cause == "stall":
                time.sleep(run.amount)
            loss.backward()
            for parameter in model.parameters():
                if run.num_ranks > 1 and parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
            if recorder.is_done:
                break


def record(name: str) -> None:
    """Start a run's ranks, and keep their traces."""
    run = RUNS[name]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.acceptance.plants.record", "--rank", name, folder],
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(run.num_ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                },
            )
            for rank in range(run.num_ranks)
        ]
        if any(one.wait() for one in ranks):
            raise SystemExit(f"a rank of {name} failed")
        kept = FOLDER / name
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        for path in sorted(Path(folder).glob("rank*.kineto.json.gz")):
            shutil.copy(path, kept / path.name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        train(RUNS[sys.argv[2]], Path(sys.argv[3]))
    else:
        for chosen in sys.argv[1:] or RUNS:
            record(chosen)
