"""What sampling steps costs, how good folding is, and how one configuration tells another.

    python bench/risk.py speed [FOLDER]      # node-samples per second; 16,384 GPUs, 10,000 samples
    python bench/risk.py folded              # one cell against all 512 ranks
    python bench/risk.py record FOLDER       # two configurations of a small network, on this CPU
    python bench/risk.py held-out FOLDER     # predict each from the other's operator durations

`FOLDER` of `speed` is a recording, as of Megatron on 8 GPUs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import foretrace
from foretrace.analyze import windows
from foretrace.machine import load_machine
from foretrace.risk import (
    Sampling,
    Variation,
    cell_of,
    distance_between,
    estimated_steps,
    fit_models,
    recorded_steps,
    stated_model,
    variation_named,
)
from foretrace.workload import PlanDraft, Transformer, complete, load_model

MACHINE = "h100-24k"
ROUNDS = 20  # of each configuration, in turns, so that both see the same hours of the machine
STEPS = 30  # of each recording: 600 of each configuration
LAYERS = {"four-layers": 4, "seven-layers": 7}


def plan_steps(name: str, keys: dict[str, object], **how: object) -> None:
    """Sample a plan and print what it took."""
    model = load_model(name)
    plan = complete(PlanDraft().with_keys(keys), model)
    cell = cell_of(model, plan, load_machine(MACHINE))
    begin, used = time.perf_counter(), time.process_time()
    found = estimated_steps(
        model, plan, load_machine(MACHINE), variation=variation_named("prism-middle"),
        sampling=Sampling(has_shares=False, **how),
    )  # fmt: skip
    wall, used = time.perf_counter() - begin, time.process_time() - used
    print(
        f"{name} on {plan.num_ranks:,} GPUs: {found.num_samples:,} samples of "
        f"{cell.graph.num_nodes:,} nodes in {wall:.1f} s, {used:.1f} s of one core; {found}"
    )


def speed(folder: Path | None) -> None:
    """How fast samples are drawn."""
    if folder is not None:
        graph = foretrace.load(folder).graph
        recorded_steps(graph, sampling=Sampling(num_samples=8, has_shares=False))
        begin, used = time.perf_counter(), time.process_time()
        found = recorded_steps(
            graph, sampling=Sampling(num_samples=1000, has_shares=False, workers=1), has_host=True
        )
        wall, used = time.perf_counter() - begin, time.process_time() - used
        print(
            f"{folder.name}: {found.num_samples:,} samples of {graph.num_nodes:,} nodes in "
            f"{wall:.2f} s, {used:.2f} s of one core, fitting the models included"
        )
    big = {"tp": 8, "pp": 16, "dp": 128, "global_batch": 2048, "batch.sequence": 8192}
    plan_steps("llama3-405b", big, num_samples=10_000)
    sharded = {
        "dp": 16384, "global_batch": 16384, "batch.sequence": 8192, "sharding.level": "zero3"
    }  # fmt: skip
    plan_steps("llama3-8b", sharded, num_samples=10_000)


FOLDED: dict[str, dict[str, object]] = {
    "TP8 x DP64": {"tp": 8, "dp": 64, "global_batch": 64},
    "PP8 x DP64": {"pp": 8, "dp": 64, "global_batch": 512},
    "TP4 x PP4 x DP32": {"tp": 4, "pp": 4, "dp": 32, "global_batch": 128},
    "the same, buckets of 4 MB": {
        "tp": 4, "pp": 4, "dp": 32, "global_batch": 128, "sharding.bucket_bytes": 4_000_000
    },
    "the same, ZeRO-1": {
        "tp": 4, "pp": 4, "dp": 32, "global_batch": 128, "sharding.level": "zero1"
    },
    "FSDP over 512": {"dp": 512, "global_batch": 512, "sharding.level": "zero3"},
    "FSDP over 8, 64 times": {
        "dp": 512, "global_batch": 512, "sharding.level": "zero3", "sharding.ranks": 8
    },
}  # fmt: skip


def folded() -> None:
    """One cell against every rank, mean and 95% quantile."""
    model = load_model("llama3-8b")
    assert isinstance(model, Transformer)  # noqa: S101
    small = replace(model, num_layers=8)
    normal = Variation(
        gpu=stated_model("normal", 0.05),
        kernel=stated_model("normal", 0.03),
        collective=stated_model("normal", 0.05),
    )
    machine = load_machine(MACHINE)
    for name, keys in FOLDED.items():
        stated = {"sharding.level": "none", "batch.sequence": 2048, **keys}
        plan = complete(PlanDraft().with_keys(stated), small)
        whole, cell = (
            estimated_steps(
                small, plan, machine, variation=normal, folded=each,
                sampling=Sampling(num_samples=count, seed=seed, has_shares=False),
            )
            for each, count, seed in ((False, 2000, 1), (True, 16_000, 2))
        )  # fmt: skip
        mean = cell.mean_ns / whole.mean_ns - 1
        tail = cell.quantile(0.95).step_ns / whole.quantile(0.95).step_ns - 1
        error = whole.deviation_ns / whole.mean_ns / whole.num_samples**0.5
        print(
            f"{name:28} {whole.mean_ns / 1e6:9.3f} ms, {whole.deviation_ns / whole.mean_ns:.2%}; "
            f"one cell: mean {mean:+.3%} (sampling {error:.3%}), 95% {tail:+.3%}",
            flush=True,
        )


def record(folder: Path) -> None:
    """Record both configurations in turns, one thread, 600 steps of each."""
    import torch  # on demand: an optional dependency
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    width, inner, batch, classes = 256, 1024, 256, 64

    class Layer(nn.Module):
        """Norm, two products, residual."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, inner)
            self.down = nn.Linear(inner, width)

        def forward(self, data: torch.Tensor) -> torch.Tensor:
            """One layer."""
            gelu = nn.functional.gelu
            found: torch.Tensor = data + self.down(gelu(self.up(self.norm(data))))
            return found

    data, target = torch.randn(batch, width), torch.randint(0, classes, (batch,))
    nets = {
        name: nn.Sequential(*(Layer() for _ in range(count)), nn.Linear(width, classes))
        for name, count in LAYERS.items()
    }
    for turn in range(ROUNDS):
        for name, net in nets.items():
            optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, foreach=False)
            with foretrace.record(
                folder / name / str(turn), steps=STEPS, unprofiled=0, execution_trace=None
            ) as recorder:
                for _ in range(STEPS + 4):
                    nn.functional.cross_entropy(net(data), target).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    recorder.step()
        load = os.getloadavg()[0]
        print(f"round {turn + 1} of {ROUNDS}; load {load:.1f} on {os.cpu_count()} cores")


def held_out(folder: Path) -> None:
    """Predict each configuration's steps from the other's operators."""
    jobs = {
        name: [foretrace.load(folder / name / str(turn)) for turn in range(ROUNDS)]
        for name in LAYERS
    }
    for known, other in (tuple(LAYERS), tuple(LAYERS)[::-1]):
        models = fit_models([job.graph for job in jobs[known]])
        steps = [windows(job.measured).duration_ns.astype(float) for job in jobs[other]]
        measured = np.concatenate(steps)
        parts = [
            recorded_steps(job.graph, models, Sampling(num_samples=1000, seed=at, has_shares=False))
            for at, job in enumerate(jobs[other])
        ]
        sampled = np.concatenate([one.step_ns.ravel() for one in parts])
        halves = distance_between(np.concatenate(steps[::2]), np.concatenate(steps[1::2]))
        print(
            f"{other} from {known}: {len(measured)} measured, {len(sampled):,} sampled steps; "
            f"distance {distance_between(sampled, measured):.3f}, of two halves {halves:.3f}; "
            f"step variation {models.step_variation[0]:.2%}, of one operator "
            f"{models.temporal_variation(0):.2%}"
        )
        for share in (0.05, 0.5, 0.95):
            found, seen = np.quantile(sampled, share), np.quantile(measured, share)
            print(
                f"  {share:4.0%} {seen / 1e6:9.3f} ms measured, {found / 1e6:9.3f} sampled, "
                f"{found / seen - 1:+.2%}"
            )
        first, second = (np.quantile(np.concatenate(steps[at::2]), 0.95) for at in (0, 1))
        print(
            f"  95% of one half of the measured over that of the other: {first / second - 1:+.2%}"
        )
        mean = sampled.mean() / measured.mean() - 1
        print(f"  mean {mean:+.2%}; {'; '.join(parts[0].notes) or 'every operation known'}")


def main(words: Sequence[str]) -> None:
    """Run what is asked for."""
    what = words[0] if words else "speed"
    folder = Path(words[1]) if len(words) > 1 else None
    if what == "speed":
        speed(folder)
    elif what == "folded":
        folded()
    elif what in {"record", "held-out"} and folder is not None:
        (record if what == "record" else held_out)(folder)
    else:
        print(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
