"""Long checks of `numerics`, each with its figures on a line.

    python bench/numerics.py                       all of them
    python bench/numerics.py formats monitor       these

Their figures stand in docs/numerics.md. All together take about twenty minutes of one core.
"""

from __future__ import annotations

import argparse
import copy
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from foretrace.numerics import (
    Alarm,
    FaultSettings,
    OptimizerMonitor,
    checked_int8_product,
    checked_int8_weight,
    float_format,
    format_agreement,
    probe,
    small_campaign,
)
from foretrace.numerics.checks import (
    CheckedInt8Weight,
    CheckedWeight,
    int8_sums,
    rounding_threshold,
    wrong_int8_rows,
)
from foretrace.numerics.small_models import SMALL_TASKS

VALUES = 10_000_000
ROWS = 1 << 20  # that checks look at
ZEROS = 0.5  # of inputs of int8 products, as after a ReLU
SEEDS = range(10)
HEALTHY_STEPS = 1_000  # of each seed, every one looked at
PLANTED_AT = 300
WIDTHS = (288, 544, 896)  # of layers: steps of about 12, 50 and 200 ms


def formats() -> None:
    """Every format on ten million random fp32 numbers."""
    for one in format_agreement(num_values=VALUES).rows:
        if one.what == "fp32":
            told = f"{one.num_different:>9,} of {one.num_tried:,} differ {one.kind}"
            print(f"{one.format:14}{one.sides:24}{told}")


@dataclass
class Watched:
    """A small training with a monitor."""

    alarms: list[Alarm]
    losses: list[float]


def watched(seed: int, steps: int, *, planted_at: int | None = None) -> Watched:
    """From `planted_at` on, gradients of the first block have a direction that they keep."""
    task = SMALL_TASKS["transformer"]
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    names = list(model.named_parameters())
    monitor = OptimizerMonitor(optimizer, names=names, every=1)
    block = [one for name, one in names if name.startswith("blocks.0.")]
    directions = [torch.randn(one.shape, generator=generator).sign() for one in block]
    losses = []
    for step in range(steps):
        inputs, right = task.batch(64, generator)
        loss = task.loss(model(*inputs), right)
        optimizer.zero_grad()
        loss.backward()
        if planted_at is not None and step >= planted_at:
            for one, direction in zip(block, directions, strict=True):
                one.grad += 3 * one.grad.std() * direction
        optimizer.step()
        losses.append(loss.item())
    return Watched(monitor.alarms, losses)


def monitor() -> None:
    """False alarms of healthy runs, a planted event, and what watching costs."""
    total = 0
    for seed in SEEDS:
        seen = watched(seed, HEALTHY_STEPS)
        total += len(seen.alarms)
        for one in seen.alarms:
            print(f"  seed {seed}, step {one.step}: {one.layer} {one.statistic} {one.value:.3g}")
    print(f"false alarms: {total} in {len(SEEDS) * HEALTHY_STEPS:,} steps")
    for seed in SEEDS:
        seen = watched(seed, PLANTED_AT + 150, planted_at=PLANTED_AT)
        first = min((one.step for one in seen.alarms), default=None)
        past = sorted(seen.losses[PLANTED_AT - 100 : PLANTED_AT])
        limit = past[50] + 6 * 1.4826 * (past[75] - past[25]) / 2
        late = (at for at in range(PLANTED_AT, len(seen.losses)) if seen.losses[at] > limit)
        print(f"planted at {PLANTED_AT}, seed {seed}: alarm at {first}, loss at {next(late, None)}")
    for width in WIDTHS:
        step_s, share = cost_of_watching(width)
        print(f"width {width}: {step_s * 1e3:.1f} ms a step, {share:+.2%} with a monitor")


def cost_of_watching(width: int, steps: int = 100) -> tuple[float, float]:
    """CPU time of a step on one thread, and the hooks' share of it, in one run."""
    torch.set_num_threads(1)
    layer = (torch.nn.LayerNorm(width), torch.nn.Linear(width, width), torch.nn.GELU())
    model = torch.nn.Sequential(*(copy.deepcopy(one) for _ in range(8) for one in layer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    spent_s = 0.0

    def timed(hook: Callable[..., None]) -> Callable[..., None]:
        def run(*given: object) -> None:
            nonlocal spent_s
            begin = time.thread_time()
            hook(*given)
            spent_s += time.thread_time() - begin

        return run

    with tempfile.TemporaryDirectory() as folder:
        OptimizerMonitor(optimizer, Path(folder) / "log", names=model.named_parameters())
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            hooks = getattr(optimizer, name)
            for key, hook in list(hooks.items()):
                hooks[key] = timed(hook)
        given, begin = torch.randn(width // 2, width), time.thread_time()
        for _ in range(steps):
            optimizer.zero_grad()
            model(given).square().mean().backward()
            optimizer.step()
    step_s = (time.thread_time() - begin - spent_s) / steps
    return step_s, spent_s / steps / step_s


def checks() -> None:
    """False alarms of a million rows, and of flips how many are found."""
    generator = torch.Generator().manual_seed(0)
    false, found, flips = 0, 0, 0
    for _ in range(ROWS // 4096):
        given = torch.randint(0, 128, (4096, 128), generator=generator, dtype=torch.int8)
        given[torch.rand(given.shape, generator=generator) < ZEROS] = 0
        weight = torch.randint(-127, 128, (128, 64), generator=generator, dtype=torch.int8)
        held = checked_int8_weight(weight)
        false += int(checked_int8_product(given, held)[1].sum())
        for _ in range(4):
            struck = held.values.clone()
            place = int(torch.randint(128 * 64, (), generator=generator))
            bit = int(torch.randint(8, (), generator=generator))
            struck.view(torch.uint8)[place // 64, place % 64] ^= 1 << bit
            sums = int8_sums(given[:16], CheckedInt8Weight(struck, held.modulus))
            found += bool(wrong_int8_rows(sums).any())
            flips += 1
    print(f"int8: {false} false alarms in {ROWS:,} rows, {found} of {flips} weight flips found")
    for name, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        false, nearest = 0, math.inf
        for _ in range(ROWS // 4096):
            left = torch.randn(4096, 256, generator=generator).to(kind)
            right = torch.randn(256, 64, generator=generator).to(kind)
            weights, product = CheckedWeight.of(right), left @ right
            limit = rounding_threshold(left, weights, product, output=float_format(name))
            error = (product.double().sum(-1) - left.double() @ weights.sums).abs()
            false += int((error > limit).sum())
            nearest = min(nearest, float((limit / error).min()))
        print(
            f"{name}: {false} false alarms in {ROWS:,} rows, thresholds {nearest:.1f} x the error"
        )


def campaign() -> None:
    """Injections a second, the order of parts, and how often intervals hold."""
    for name, steps in (("dlrm", 600), ("lenet", 150), ("transformer", 300)):
        begin = time.process_time()
        settings = FaultSettings(half_width=1e-9, max_injections=20_000)
        found = small_campaign(name, settings, steps=steps)
        spent = time.process_time() - begin
        print(f"{name}, with its training: {spent:.0f} s")
        for one in sorted(found.rows, key=lambda one: -one.share):
            half = 50 * (one.high_share - one.low_share)
            print(f"  {one.part:14}{100 * one.share:.2f} +- {half:.2f} %  bits {one.worst_bits}")


def training() -> None:
    """Formats that train as fp32 does."""
    for one in probe("lenet", formats=("bf16", "bf16:bf16:toward-zero")).rows:
        print(f"{one.format:24}{one.parity:.2f} of fp32's loss, {one.distance:+.2f} spreads")


CHECKS: dict[str, Callable[[], None]] = {
    "formats": formats,
    "monitor": monitor,
    "checks": checks,
    "campaign": campaign,
    "training": training,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checks", nargs="*", help=f"of {', '.join(CHECKS)}; all, if none")
    torch.set_num_threads(1)
    for name in parser.parse_args().checks or CHECKS:
        begin = time.process_time()
        CHECKS[name]()
        print(f"{name}: {time.process_time() - begin:.0f} s of CPU")
