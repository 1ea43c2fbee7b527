"""Steps of unequal documents on two processes of this host: predicted beside measured.

    python bench/balance.py                a minute on two cores; needs PyTorch

Two gloo processes train a small transformer on the sampler's microbatches, packed as documents come
and by two queues, with attention document by document. Before that, in the same processes, a
window's tokens are timed in documents of each of a few lengths: `predicted` is the slowest copy's
sum of those times and one exchange of gradients; `FLOPs` is the same sum with time by FLOPs, scaled
to the longest document. Nothing of the steps themselves is used. Printed: mean error of steps,
their bias, and how the two packers compare.
"""

from __future__ import annotations

import json
import statistics
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
WINDOW, MICROBATCHES, STEPS = 2048, 2, 40
WORDS, WIDTH, HEADS, LAYERS = 256, 128, 4, 2
LENGTHS = np.array([32, 64, 128, 256, 512, 1024, 2048])
REPEATS = 5
PACKERS = {"as it comes": [], "two queues": [WINDOW // 4, WINDOW // 2]}


def documents() -> Int64s:
    """Lengths, lognormal up to the window."""
    drawn = np.random.default_rng(0).lognormal(5.3, 1.2, 2_000)
    return np.clip(drawn, 16, WINDOW).astype(np.int64)


def process(meeting: str, rank: int, out: Path) -> None:
    """Measure lengths, then steps; write both."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    microbatch, exchange = trainer()
    measured: dict[str, object] = {"lengths": calibrated(microbatch, distributed.barrier)}
    measured["exchange"] = repeated(exchange, distributed.barrier)
    lengths = documents()
    for name, thresholds in PACKERS.items():
        sampler = BatchSampler(
            lengths, window=WINDOW, num_microbatches=MICROBATCHES, num_copies=2, copy=rank,
            thresholds=thresholds,
        )  # fmt: skip
        packed = [lengths[one].tolist() for one in sampler][: STEPS * MICROBATCHES]
        steps = [packed[at : at + MICROBATCHES] for at in range(0, len(packed), MICROBATCHES)]
        spent = []
        for step in steps:
            distributed.barrier()
            begin = time.perf_counter_ns()
            for one in step:
                microbatch(one)
            exchange()
            spent.append(time.perf_counter_ns() - begin)
        measured[name] = {"steps": steps, "ns": spent}
    out.write_text(json.dumps(measured))
    distributed.destroy_process_group()


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


def calibrated(
    microbatch: Callable[[list[int]], None], barrier: Callable[[], object]
) -> list[float]:
    """Time of a window's tokens in documents of each length, in ns; both processes at once."""
    microbatch([WINDOW])
    return [
        repeated(lambda length=length: microbatch([length] * (WINDOW // length)), barrier)
        for length in LENGTHS.tolist()
    ]


def repeated(run: Callable[[], None], barrier: Callable[[], object]) -> float:
    """The median of some runs, in ns."""
    spent = []
    for _ in range(REPEATS):
        barrier()
        begin = time.perf_counter_ns()
        run()
        spent.append(time.perf_counter_ns() - begin)
    return statistics.median(spent)


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


def main() -> None:
    """Run both processes and print."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{rank}.json" for rank in range(2)]
        running = [
            subprocess.Popen(
                [sys.executable, __file__, f"file://{folder}/meeting", str(rank), str(out)]
            )
            for rank, out in enumerate(outs)
        ]
        if any(one.wait() for one in running):
            sys.exit("a process failed")
        found = [json.loads(out.read_text()) for out in outs]
    packed_ns = np.array([one["lengths"] for one in found]).max(axis=0)
    exchange_ns = max(one["exchange"] for one in found)
    work = DocumentWork.of_measured(WINDOW, LENGTHS, packed_ns)
    print(TARGET)
    means = {}
    for name in PACKERS:
        measured = np.array([one[name]["ns"] for one in found]).max(axis=0)
        means[name] = measured.mean()
        for title, law in (("predicted", work), ("FLOPs", by_flops(work))):
            expected = predicted(law, [one[name]["steps"] for one in found]) + exchange_ns
            off = expected / measured - 1
            print(
                f"{name:12} {title:10} mean error {100 * np.abs(off).mean():5.1f} %  bias "
                f"{100 * (expected.sum() / measured.sum() - 1):+5.1f} %  steps "
                f"{measured.min() / 1e6:.0f} to {measured.max() / 1e6:.0f} ms"
            )
    print(f"two queues: {means['as it comes'] / means['two queues']:.3f} times as fast a step")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        process(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
