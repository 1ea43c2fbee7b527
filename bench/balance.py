"""Steps of unequal documents on two processes of this host: predicted beside measured.

    python bench/balance.py [rounds]       two minutes on two idle cores; needs PyTorch

Two gloo processes train a small transformer on the sampler's microbatches, packed as documents come
and by two queues, with attention document by document. In the same processes a window's tokens are
timed in documents of each of a few lengths: `predicted` is the slowest copy's sum of those times
and one exchange of gradients; `FLOPs` is the same sum with time by FLOPs, scaled to the longest
document. Nothing of the steps themselves is used. Lengths and steps are timed in turn, round by
round, and each counts by its median: a host that lends its cores to others is as slow for both.
Printed, on the wall's clock and the processor's: mean error of steps, their bias, how the two
packers compare, and how far one round of a step is off the median of its rounds (repeated).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from foretrace.balance import BatchSampler, DocumentWork
from foretrace.base import Float64s, Int64s

TARGET = "target: 8 % in the mean"
WINDOW, MICROBATCHES, STEPS = 2048, 2, 20
WORDS, WIDTH, HEADS, LAYERS = 256, 128, 4, 2
LENGTHS = np.array([32, 64, 128, 256, 512, 1024, 2048])
ROUNDS = 5
PACKERS = {"as it comes": [], "two queues": [WINDOW // 4, WINDOW // 2]}


def documents() -> Int64s:
    """Lengths, lognormal up to the window."""
    drawn = np.random.default_rng(0).lognormal(5.3, 1.2, 2_000)
    return np.clip(drawn, 16, WINDOW).astype(np.int64)


def process(meeting: str, rank: int, out: Path, rounds: int) -> None:
    """Measure lengths and steps in turn; write both."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    microbatch, exchange = trainer()
    steps = {name: packed(rank, thresholds) for name, thresholds in PACKERS.items()}

    def spent_ns(work: list[list[int]], *, exchanges: bool) -> tuple[int, int]:
        distributed.barrier()
        begin = time.perf_counter_ns(), time.process_time_ns()
        for one in work:
            microbatch(one)
        if exchanges:
            exchange()
        return time.perf_counter_ns() - begin[0], time.process_time_ns() - begin[1]

    alike = [[[length] * (WINDOW // length)] for length in LENGTHS.tolist()]
    spent_ns([[WINDOW]] * MICROBATCHES, exchanges=True)  # what only the first of all takes
    measured: dict[str, list[list[tuple[int, int]]]] = {
        name: [] for name in ("lengths", "exchange", *steps)
    }
    for _ in range(rounds):
        measured["lengths"].append([spent_ns(one, exchanges=False) for one in alike])
        measured["exchange"].append([spent_ns([], exchanges=True)])
        for name, work in steps.items():
            measured[name].append([spent_ns(one, exchanges=True) for one in work])
    out.write_text(json.dumps({"steps": steps, "ns": measured}))
    distributed.destroy_process_group()


def packed(rank: int, thresholds: list[int]) -> list[list[list[int]]]:
    """Lengths of documents, by step and microbatch of this copy of the model."""
    lengths = documents()
    sampler = BatchSampler(
        lengths, window=WINDOW, num_microbatches=MICROBATCHES, num_copies=2, copy=rank,
        thresholds=thresholds,
    )  # fmt: skip
    each = [lengths[one].tolist() for one in sampler][: STEPS * MICROBATCHES]
    return [each[at : at + MICROBATCHES] for at in range(0, len(each), MICROBATCHES)]


def trainer() -> tuple[Callable[[list[int]], None], Callable[[], None]]:
    """What runs a microbatch of documents forward and backward, and what exchanges gradients."""
    import torch
    from torch import distributed, nn
    from torch.nn import functional

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, hidden: torch.Tensor, lengths: list[int]) -> torch.Tensor:
            each = self.joint(functional.layer_norm(hidden, (WIDTH,))).split(lengths)
            made = []
            for one in each:
                heads = one.reshape(len(one), 3, HEADS, -1).permute(1, 2, 0, 3)
                seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
                made.append(seen.transpose(0, 1).reshape(len(one), WIDTH))
            hidden = hidden + self.out(torch.cat(made))
            return hidden + self.down(functional.gelu(self.up(hidden)))

    torch.manual_seed(0)
    table, head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
    layers = nn.ModuleList(Layer() for _ in range(LAYERS))
    parameters = [*table.parameters(), *layers.parameters(), *head.parameters()]

    def microbatch(lengths: list[int]) -> None:
        tokens = torch.randint(WORDS, (sum(lengths),))
        hidden = table(tokens)
        for layer in layers:
            hidden = layer(hidden, lengths)
        torch.autograd.backward(functional.cross_entropy(head(hidden), tokens))

    def exchange() -> None:
        flat = torch.cat([one.grad.flatten() for one in parameters if one.grad is not None])
        distributed.all_reduce(flat)

    return microbatch, exchange


def by_flops(work: DocumentWork) -> DocumentWork:
    """Time by FLOPs, right for one document as long as the window."""
    per_token = 6 * (12 * WIDTH * WIDTH * LAYERS + WIDTH * WORDS)
    attention = 6.0 * WIDTH * LAYERS * LENGTHS.astype(float) ** 2
    whole = float(work.work_of(np.array([WINDOW]))[0]) / (attention[-1] + per_token * WINDOW)
    return DocumentWork(WINDOW, LENGTHS, attention * whole, per_token * whole)


def predicted(work: DocumentWork, copies: list[list[list[list[int]]]]) -> Float64s:
    """Steps of both copies: the slower one's microbatches."""
    each = [
        [sum(float(work.work_of(np.array(one)).sum()) for one in step) for step in steps]
        for steps in copies
    ]
    longest: Float64s = np.array(each).max(axis=0)
    return longest


def main(rounds: int) -> None:
    """Run both processes and print."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{rank}.json" for rank in range(2)]
        meeting = f"file://{folder}/meeting"
        running = [
            subprocess.Popen([sys.executable, __file__, meeting, str(rank), str(out), str(rounds)])
            for rank, out in enumerate(outs)
        ]
        if any(one.wait() for one in running):
            sys.exit("a process failed")
        found = [json.loads(out.read_text()) for out in outs]
    print(TARGET)
    for clock, title in enumerate(("on the wall", "on the processor")):
        print(title)
        ns = {
            name: np.array([one["ns"][name] for one in found], np.float64)[..., clock]
            for name in ("lengths", "exchange", *PACKERS)
        }
        tell({name: [one["steps"][name] for one in found] for name in PACKERS}, ns)


def tell(steps: dict[str, list[list[list[list[int]]]]], ns: dict[str, Float64s]) -> None:
    """Print what was predicted beside what was measured, by the median of rounds.

    Args:
        steps: lengths of documents, by packer, process, step and microbatch.
        ns: of lengths, the exchange and steps; float64[processes, rounds, lengths or steps].
    """
    median = {name: np.median(each, axis=1) for name, each in ns.items()}
    work = DocumentWork.of_measured(WINDOW, LENGTHS, median["lengths"].mean(axis=0))
    slower = {name: median[name].max(axis=0) for name in PACKERS}
    for name, measured in slower.items():
        for title, law in (("predicted", work), ("FLOPs", by_flops(work))):
            expected = predicted(law, steps[name]) + median["exchange"].mean()
            off = expected / measured - 1
            print(
                f"{name:12} {title:10} mean error {100 * np.abs(off).mean():5.1f} %  bias "
                f"{100 * (expected.sum() / measured.sum() - 1):+5.1f} %  steps "
                f"{measured.min() / 1e6:.0f} to {measured.max() / 1e6:.0f} ms"
            )
        again = np.abs(ns[name].max(axis=0) / measured - 1).mean()
        print(f"{name:12} {'repeated':10} mean error {100 * again:5.1f} %")
    came, queued = (slower[name].mean() for name in PACKERS)
    print(f"two queues: {came / queued:.3f} times as fast a step")


if __name__ == "__main__":
    if sys.argv[2:]:
        process(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
