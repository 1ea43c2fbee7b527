"""What analyze says first of training with one thing made slow on purpose, recorded here.

    python bench/planted.py                              all of it, on a GPU some minutes
    python bench/planted.py --only nothing slow-loader   some of it
    python bench/planted.py --device cpu --shrink 16     sizes that a CPU can train

The model is that of `examples/h200/record.py`, fed by a `DataLoader`. `PLANTS` says what is slow; a
line of each is the first sentence of the diagnosis, to be read beside the name of what was planted.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, Dataset

import foretrace
from foretrace.analyze import diagnosis
from foretrace.graph import build_recording
from foretrace.trace import load_traces

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "h200"))
from record import BASE, SMALL_ONE, Model, Variant, shrunk  # the model of the other example


@dataclass(frozen=True, kw_only=True)
class Plant:
    """What a step does besides training, and how it is fed."""

    variant: Variant = BASE
    optimizer: str = "fused"  # "foreach", "each": a kernel for each operation of each parameter
    workers: int = 2  # processes that load data; 0: the training's own
    is_pinned: bool = True
    copies_aside: bool = True  # the next batch is copied while this one is worked on
    features: int = 0  # float32 channels of every token that come with a batch
    loading_s: float = 0.0  # that the data set sleeps for a sequence
    starts_workers: bool = False  # anew in every step
    reads_layers: bool = False  # the host reads a number of every layer
    reads_gradients: bool = False  # the host reads the norm of each gradient
    chooses_rows: bool = False  # rows by a mask on the device, in every layer
    makes_masks: bool = False  # of attention, on the host, in every layer
    empties_cache: bool = False  # of the allocator, after each pass
    collects: bool = False  # Python's garbage, in each step
    sleeps_s: float = 0.0  # in the forward of every layer
    stalls_s: float = 0.0  # in the forward of one layer, now and then
    spins: bool = False  # a second thread of Python that never lets go for long
    is_crowded: bool = False  # other processes on the only core that it may use
    saves: bool = False  # weights and optimizer, in each step
    finds_anomalies: bool = False
    blocks_launches: bool = False  # CUDA_LAUNCH_BLOCKING


SMALL = Plant(variant=SMALL_ONE)
PLANTS = {
    "nothing": Plant(),
    "nothing-small": SMALL,
    "reads-layers": Plant(reads_layers=True),
    "reads-layers-small": replace(SMALL, reads_layers=True),
    "reads-gradients-small": replace(SMALL, reads_gradients=True),
    "chooses-rows": Plant(chooses_rows=True),
    "makes-masks": Plant(variant=replace(BASE, sequence=2048), makes_masks=True),
    "empties-cache": Plant(empties_cache=True),
    "slow-loader": Plant(workers=0, loading_s=0.03),
    "slow-workers": Plant(loading_s=0.15),
    "starts-workers": Plant(starts_workers=True),
    "pageable": Plant(features=16_384, is_pinned=False, copies_aside=False),
    "pinned": Plant(features=16_384, copies_aside=False),
    "copies-aside": Plant(features=16_384),
    "collects-small": replace(SMALL, collects=True),
    "sleeps-small": replace(SMALL, sleeps_s=0.002),
    "stalls": Plant(stalls_s=0.06),
    "stalls-small": replace(SMALL, stalls_s=0.03),
    "spins-small": replace(SMALL, spins=True),
    "crowded-small": replace(SMALL, is_crowded=True),
    "saves": Plant(variant=replace(BASE, layers=2), saves=True),
    "anomalies-small": replace(SMALL, finds_anomalies=True),
    "blocking-small": replace(SMALL, blocks_launches=True),
    "each-parameter-small": replace(SMALL, optimizer="each"),
    "foreach-small": replace(SMALL, optimizer="foreach"),
    "plain-attention": Plant(variant=replace(BASE, sequence=2048, attention=SDPBackend.MATH)),
    "attention": Plant(variant=replace(BASE, sequence=2048)),
}


class Tokens(Dataset[tuple[Tensor, ...]]):
    """Random sequences, as slow as they shall be."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        shape = (plant.variant.sequence, plant.features)
        self.features = torch.randn(shape) if plant.features else torch.empty(0)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        variant = self.plant.variant
        time.sleep(self.plant.loading_s)
        tokens = torch.randint(variant.vocabulary, (variant.sequence,))
        return tokens, tokens.roll(-1), self.features


def loader_of(plant: Plant) -> DataLoader[tuple[Tensor, ...]]:
    """Batches of a pass."""
    return DataLoader(
        Tokens(plant),
        batch_size=plant.variant.micro_batch,
        num_workers=plant.workers,
        pin_memory=plant.is_pinned,
    )


class Feed:
    """Batches on the device, one after the other."""

    def __init__(self, plant: Plant, device: str) -> None:
        self.plant, self.device = plant, device
        self.loader = loader_of(plant)
        self.batches = iter(self.loader)
        self.is_aside = plant.copies_aside and device == "cuda"
        self.stream = torch.cuda.Stream() if self.is_aside else None
        self.coming = self.copied() if self.is_aside else None

    def copied(self) -> list[Tensor]:
        """One batch, on its way to the device."""
        if self.plant.starts_workers:
            self.batches = iter(self.loader)
        batch = next(self.batches)
        if self.stream is None:
            return [part.to(self.device) for part in batch]
        with torch.cuda.stream(self.stream):
            return [part.to(self.device, non_blocking=True) for part in batch]

    def next(self) -> list[Tensor]:
        """The batch of this step."""
        if self.stream is None:
            return self.copied()
        torch.cuda.current_stream().wait_stream(self.stream)
        batch, self.coming = self.coming, None
        for part in batch:
            part.record_stream(torch.cuda.current_stream())
        return batch

    def fetch(self) -> None:
        """Begin to copy what comes next."""
        if self.stream is not None:
            self.coming = self.copied()


def slowed(layer: nn.Module, plant: Plant) -> None:
    """Give a layer what is planted in it."""
    plain = layer.forward

    def forward(hidden: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
        if plant.sleeps_s:
            time.sleep(plant.sleeps_s)
        if plant.stalls_s and random.random() < 3 / 16:
            time.sleep(plant.stalls_s)
        if plant.makes_masks:
            size = hidden.shape[1]
            mask = torch.full((size, size), float("-inf")).triu(1).to(hidden.device)
            hidden = hidden + mask[0, 0].to(hidden.dtype)
        if plant.chooses_rows:
            rows = hidden.flatten(0, 1)
            chosen = rows[rows[:, 0] > 0]
            hidden = hidden + chosen.mean() * 0
        hidden = plain(hidden, factors)
        if plant.reads_layers:
            hidden.detach().abs().max().item()
        return hidden

    layer.forward = forward


def step_of(plant: Plant, device: str) -> Callable[[], None]:
    """One step of training, ready to be called."""
    torch.manual_seed(0)
    variant = plant.variant
    with torch.device(device):
        model = Model(variant).bfloat16()
    for layer in model.layers:
        slowed(layer, plant)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1e-4,
        fused=plant.optimizer == "fused",
        foreach=plant.optimizer == "foreach",
    )
    feed = Feed(plant, device)

    def step() -> None:
        optimizer.zero_grad()
        tokens, targets, features = feed.next()
        with sdpa_kernel(variant.attention):
            loss = model(tokens, targets)
            if plant.features:
                loss = loss + features.mean()
            loss.backward()
        feed.fetch()
        if plant.reads_gradients:
            sum(parameter.grad.norm().item() for parameter in model.parameters())
        optimizer.step()
        if plant.empties_cache:
            torch.cuda.empty_cache()
        if plant.collects:
            garbage()
        if plant.saves:
            torch.save([model.state_dict(), optimizer.state_dict()], io.BytesIO())

    return step


def garbage() -> None:
    """Many objects that hold each other, and a collection that finds them."""
    nodes: list[list[object]] = [[] for _ in range(300_000)]
    for node in nodes:
        node.append(nodes)
    del nodes, node
    gc.collect()


@contextlib.contextmanager
def disturbed(plant: Plant) -> Iterator[None]:
    """What goes on beside the training."""
    done = threading.Event()
    others: list[subprocess.Popen[bytes]] = []
    cores = os.sched_getaffinity(0)
    if plant.spins:
        threading.Thread(target=spin, args=(done,), daemon=True).start()
    if plant.is_crowded:
        core = min(cores)
        os.sched_setaffinity(0, {core})
        busy = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(2)]
    torch.autograd.set_detect_anomaly(plant.finds_anomalies)
    try:
        yield
    finally:
        torch.autograd.set_detect_anomaly(False)
        done.set()
        for other in others:
            other.kill()
        os.sched_setaffinity(0, cores)


def spin(done: threading.Event) -> None:
    """Count, in Python, until it is done."""
    count = 0
    while not done.is_set():
        count += 1


def recorded(name: str, options: argparse.Namespace) -> None:
    """Record some steps of a plant."""
    plant = PLANTS[name]
    plant = replace(plant, variant=shrunk(plant.variant, options.shrink))
    if options.shrink > 1:
        plant = replace(plant, features=plant.features // options.shrink)
    step = step_of(plant, options.device)
    with (
        disturbed(plant),
        foretrace.record(
            options.out / name,
            steps=options.steps,
            warmup=3,
            unprofiled=8,
            execution_trace=None,
        ) as recorder,
    ):
        for _ in range(recorder.schedule.num_needed + 3):
            step()
            recorder.step()


def told(folder: Path) -> str:
    """The first sentence about a recording."""
    return diagnosis(build_recording(load_traces(folder, cache_folder=None))).headline


def main() -> None:
    """Record what is asked for, and print a line of each; one that fails stops no other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="keep the recordings in this folder")
    parser.add_argument("--only", nargs="+", choices=PLANTS, default=list(PLANTS))
    parser.add_argument("--steps", type=int, default=3, help="steps to profile")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shrink", type=int, default=1, help="divide sizes by this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.out = options.out or Path(folder)
        failed = [name for name in options.only if not shown(name, options)]
    if failed:
        sys.exit(f"not recorded: {', '.join(failed)}")


def shown(name: str, options: argparse.Namespace) -> bool:
    """Record a plant and print what is said of it; whether that went well."""
    begun = time.perf_counter()
    if PLANTS[name].blocks_launches and "CUDA_LAUNCH_BLOCKING" not in os.environ:
        return shown_apart(name, options)
    try:
        recorded(name, options)
        print(
            f"{name} ({time.perf_counter() - begun:.0f} s): {told(options.out / name)}", flush=True
        )
    except Exception:  # noqa: BLE001 - whatever one raises, the others are recorded
        traceback.print_exc()
        return False
    finally:
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    return True


def shown_apart(name: str, options: argparse.Namespace) -> bool:
    """The same in a process of its own, where launches wait for their kernels."""
    again = [sys.executable, __file__, "--out", str(options.out), "--only", name]
    again += ["--device", options.device, "--shrink", str(options.shrink)]
    again += ["--steps", str(options.steps)]
    environment = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1"}
    return not subprocess.run(again, env=environment, check=False).returncode


if __name__ == "__main__":
    main()
