"""What advice is worth: changes predicted from a recording, then really made and recorded.

    python bench/advice.py                 every change; a few minutes
    python bench/advice.py --only NAME     one of them, may be given again
    python bench/advice.py --rounds 5      recordings of each side

A small GPT is trained on the CPU by real PyTorch, as it is and with one thing about it changed, in
turns, so that a machine that grows slower does so for both. Of each turn the recording of the first
predicts the step of the second, by the edits that `foretrace analyze` tries; nothing of the second
is known to it. `predicted` and `measured` are of the profiled step, medians over turns; `error` is
the median of predicted over measured, `+-` its standard error by how far turns differ; `noise` is
how far steps of one and the same program differ from turn to turn. `inside` counts turns whose
measured step lies in the predicted interval, which is meant for 80 % of them.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import foretrace as ft
from foretrace.analyze import step_time_ns
from foretrace.base import ScenarioError
from foretrace.capture import TrainingSettings, trained
from foretrace.whatif import Batch, Edit, PlanKeys, baseline_of, proposals

STEPS, WARMUP, UNPROFILED = 6, 2, 3
_MS = 1e6
_OF_MEDIANS = math.sqrt(math.pi / 2)  # their standard error over that of means, of normal samples


@dataclass(frozen=True)
class Program:
    """A training in one process: what can be different about it."""

    attention: str = "fused"  # or "plain"
    activation: str = "fused"  # or "plain": of many small operators
    optimizer: str = "fused"  # or "single"
    collects: bool = False  # Python's garbage, in each step
    workers: int | None = None  # that load data; `None`: there is none to load
    microbatches: int = 1
    micro_batch: int = 8
    sequence: int = 64
    width: int = 128


@dataclass(frozen=True)
class Made:
    """A change: the program before and after, and what is said to the what-if."""

    name: str
    before: Program | TrainingSettings
    after: Program | TrainingSettings
    advice: str  # how the catalogue's change begins; "": these edits
    edits: tuple[Edit, ...] = ()


SPREAD = TrainingSettings(num_microbatches=1)
SHORT = Program(micro_batch=1, sequence=16, width=256)
LONG = Program(micro_batch=2, sequence=512, width=64)
WIDE = Program(micro_batch=16, sequence=128, width=64)
SMALL = Program(microbatches=2, micro_batch=4, sequence=16, width=64)
CHANGES = (
    Made("optimizer fused", replace(SHORT, optimizer="single"), SHORT, "fused optimizer"),
    Made("attention fused", replace(LONG, attention="plain"), LONG, "attention in one kernel"),
    Made("activation fused", replace(WIDE, activation="plain"), WIDE, "fused elementwise"),
    Made("no collections", Program(collects=True), Program(), "garbage collected"),
    Made("loaded ahead", Program(workers=0), Program(workers=1), "data loaded ahead"),
    Made(
        "larger microbatch",
        replace(SMALL, microbatches=8, micro_batch=1),
        SMALL,
        "",
        (Batch(micro_batch=4, num_microbatches=2),),
    ),
    Made(
        "larger buckets",
        replace(SPREAD, bucket_bytes=1 << 18),
        replace(SPREAD, bucket_bytes=8 << 20),
        "",
        (PlanKeys({"sharding.bucket_bytes": 8 << 20}),),
    ),
    Made(
        "gradients overlapped",
        replace(SPREAD, overlaps_gradients=False),
        SPREAD,
        "gradients reduced beside",
    ),
)


def main() -> None:
    """Make every change, and print what it was worth beside what was predicted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=[one.name for one in CHANGES])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where recordings stay")
    parser.add_argument("--again", action="store_true", help="predict those under --out again")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        in_turns(CHANGES[int(asked.worker[0])], Path(asked.worker[1]), asked.rounds)
        return
    print(
        f"{'change':21} {'before':>8} {'predicted':>9} {'80 % interval':>16} {'measured':>8} ms"
        f" {'error':>7} {'+-':>6} {'noise':>6} {'inside':>8}"
    )
    with tempfile.TemporaryDirectory(prefix="foretrace-advice-") as folder:
        for made in CHANGES:
            if asked.only and made.name not in asked.only:
                continue
            out = (asked.out or Path(folder)) / made.name.replace(" ", "-")
            if not asked.again:
                run(made, out, asked.rounds)
            try:
                print(line(made, out), flush=True)
            except ScenarioError as err:
                print(f"{made.name:21} refused: {err}", flush=True)


def run(made: Made, out: Path, rounds: int) -> None:
    """Record both sides in turns."""
    if isinstance(made.before, Program):
        number = str(CHANGES.index(made))
        command = [sys.executable, __file__, "--worker", number, str(out), "--rounds", str(rounds)]
        subprocess.run(command, check=True)
        return
    for turn in range(rounds):
        for side, settings in (("before", made.before), ("after", made.after)):
            if isinstance(settings, TrainingSettings):
                where = out / f"{turn}-{side}"
                trained(settings, steps=2, recording=where, profiled=STEPS, unprofiled=UNPROFILED)


def line(made: Made, out: Path) -> str:
    """What came of one change."""
    turns = list(predicted(made, out))
    before, steps, low, high, after = (
        statistics.median(column) for column in zip(*(turn for turn in turns), strict=True)
    )
    ratios = [turn[1] / turn[4] for turn in turns]
    error = statistics.median(ratios) - 1
    spread = statistics.stdev(map(math.log, ratios)) if len(ratios) > 1 else math.inf
    unsure = _OF_MEDIANS * spread / math.sqrt(len(ratios))
    inside = sum(turn[2] <= turn[4] <= turn[3] for turn in turns)
    sides = [[turn[0] for turn in turns], [turn[4] for turn in turns]]
    drift = [abs(b / a - 1) for side in sides for a, b in pairwise(side)]
    noise = statistics.median(drift) if drift else 0.0
    return (
        f"{made.name:21} {before:8.1f} {steps:9.1f} {low:7.1f} to {high:6.1f} {after:8.1f}   "
        f" {100 * error:+6.1f}% {100 * unsure:5.1f}% {100 * noise:5.1f}%"
        f" {inside:2} of {len(turns):2}"
    )


def predicted(made: Made, out: Path) -> Iterator[tuple[float, float, float, float, float]]:
    """Of each turn, in ms: the step before, predicted with its interval, measured after."""
    for turn in range(len(list(out.glob("*-before")))):
        job, after = ft.load(out / f"{turn}-before"), ft.load(out / f"{turn}-after")
        found = job.edit(*edits_of(made, job)).prediction
        before, last = step_time_ns(job.measured) / _MS, step_time_ns(after.measured) / _MS
        yield before, found.step_ns / _MS, found.low_ns / _MS, found.high_ns / _MS, last


def edits_of(made: Made, job: ft.Job) -> tuple[Edit, ...]:
    """Those of the advice that a user is given."""
    if not made.advice:
        return made.edits
    baseline = baseline_of(job.recording)
    return next(one.edits for one in proposals(baseline) if one.name.startswith(made.advice))


# -- the program, in a process of its own ---------------------------------------------------------


def in_turns(made: Made, out: Path, rounds: int) -> None:
    """Train both sides in turns in this process, and record each."""
    import torch  # torch is optional

    torch.set_num_threads(1)
    sides = [
        (name, trainer(program))
        for name, program in (("before", made.before), ("after", made.after))
        if isinstance(program, Program)
    ]
    for turn in range(rounds):
        for side, step in sides:
            recording = out / f"{turn}-{side}"
            with ft.record(
                recording, steps=STEPS, warmup=WARMUP, unprofiled=UNPROFILED, execution_trace=None
            ) as recorder:
                while not recorder.is_done:
                    step()
                    recorder.step()


def trainer(program: Program) -> Callable[[], None]:
    """A function that trains one step."""
    import torch  # torch is optional

    torch.manual_seed(0)
    model = gpt(program)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, fused=program.optimizer == "fused", foreach=False
    )
    batches = batches_of(program)

    def step() -> None:
        tokens = next(batches)
        for micro in tokens.chunk(program.microbatches):
            logits = model(micro[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), micro[:, 1:].flatten())
            (loss / program.microbatches).backward()
        optimizer.step()
        optimizer.zero_grad()
        if program.collects:
            gc.collect()

    return step


VOCABULARY, HEADS, LAYERS = 2048, 8, 4


def batches_of(program: Program) -> Iterator[Any]:
    """Batches of tokens without end, loaded where that is asked for."""
    import torch  # torch is optional
    from torch.utils.data import DataLoader, Dataset

    rows = program.microbatches * program.micro_batch
    if program.workers is None:
        ready = list(torch.randint(VOCABULARY, (4, rows, program.sequence + 1)))
        while True:
            yield from ready

    class Texts(Dataset[Any]):
        """Sequences that take work to make."""

        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, at: int) -> Any:
            generator = torch.Generator().manual_seed(at)
            noise = torch.randn(1 << 14, generator=generator)
            order = noise.sort().indices[: program.sequence + 1]
            return order % VOCABULARY

    yield from DataLoader(Texts(), batch_size=rows, num_workers=program.workers)


def gpt(program: Program) -> Any:
    """The model."""
    import torch  # torch is optional
    from torch import Tensor, nn
    from torch.nn import functional

    width = program.width

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if program.attention == "fused":
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        above = torch.ones(program.sequence, program.sequence, dtype=torch.bool).triu(1)
        return scores.masked_fill(above, float("-inf")).softmax(-1) @ value

    def activation(inputs: Tensor) -> Tensor:
        if program.activation == "fused":
            return functional.gelu(inputs, approximate="tanh")
        inner = 0.7978845608 * (inputs + 0.044715 * inputs * inputs * inputs)
        return 0.5 * inputs * (1.0 + torch.tanh(inner))

    class Layer(nn.Module):
        """Attention and feed-forward, each behind a norm and beside a residual."""

        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, hidden: Tensor) -> Tensor:
            """One layer."""
            batch = hidden.shape[0]
            heads = self.project(self.norms[0](hidden))
            heads = heads.view(batch, program.sequence, 3, HEADS, width // HEADS).transpose(1, 3)
            mixed = attention(*heads.unbind(2))
            hidden = hidden + self.out(
                mixed.transpose(1, 2).reshape(batch, program.sequence, width)
            )
            return hidden + self.down(activation(self.up(self.norms[1](hidden))))

    return nn.Sequential(
        nn.Embedding(VOCABULARY, width),
        *(Layer() for _ in range(LAYERS)),
        nn.LayerNorm(width),
        nn.Linear(width, VOCABULARY),
    )


if __name__ == "__main__":
    main()
