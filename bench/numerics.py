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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from foretrace.numerics import (
    Alarm,
    FaultSampling,
    FaultSettings,
    OptimizerMonitor,
    checked_int8_product,
    checked_int8_weight,
    fault_campaign,
    float_format,
    format_agreement,
    probe,
    small_campaign,
)
from foretrace.numerics.checks import (
    DEVIATIONS,
    CheckedTable,
    CheckedWeight,
    int8_sums,
    rounding_threshold,
    wrong_bags,
    wrong_int8_rows,
)
from foretrace.numerics.small_models import SMALL_TASKS

VALUES = 10_000_000
ROWS = 1 << 20  # that checks look at
REPEATS = 200  # of campaigns
BAGS = 4_000
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


class Lion(torch.optim.Optimizer):
    """Signs of an interpolated gradient, as published."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Of every parameter."""
        for group in self.param_groups:
            for one in group["params"]:
                mean = self.state[one].setdefault("exp_avg", torch.zeros_like(one))
                one.sub_(group["lr"] * mean.lerp(one.grad, 0.1).sign())
                mean.lerp_(one.grad, 0.01)


def muon(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Of matrices alone, as it is meant."""
    return torch.optim.Muon([one for one in model.parameters() if one.dim() == 2], lr=2e-3)  # noqa: PLR2004


OPTIMIZERS: dict[str, Callable[[torch.nn.Module], torch.optim.Optimizer]] = {
    "Adam": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95)),
    "Lion": lambda model: Lion(model.parameters(), lr=1e-4),
    "Adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=1e-2),
    "Muon": muon,
}


def watched(
    seed: int, steps: int, *, planted_at: int | None = None, optimizer: str = "Adam"
) -> Watched:
    """From `planted_at` on, gradients of the first block have a direction that they keep."""
    task = SMALL_TASKS["transformer"]
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = task.model()
    stepping = OPTIMIZERS[optimizer](model)
    names = list(model.named_parameters())
    monitor = OptimizerMonitor(stepping, names=names, every=1)
    block = [one for name, one in names if name.startswith("blocks.0.")]
    directions = [torch.randn(one.shape, generator=generator).sign() for one in block]
    losses = []
    for step in range(steps):
        inputs, right = task.batch(64, generator)
        loss = task.loss(model(*inputs), right)
        stepping.zero_grad()
        loss.backward()
        if planted_at is not None and step >= planted_at:
            for one, direction in zip(block, directions, strict=True):
                one.grad += 3 * one.grad.std() * direction
        stepping.step()
        losses.append(loss.item())
    return Watched(monitor.alarms, losses)


def monitor() -> None:
    """False alarms of healthy runs, a planted event, and what watching costs."""
    for optimizer in OPTIMIZERS:
        seeds = SEEDS if optimizer == "Adam" else SEEDS[:5]
        total = 0
        for seed in seeds:
            seen = watched(seed, HEALTHY_STEPS, optimizer=optimizer)
            total += len(seen.alarms)
            for one in seen.alarms:
                print(
                    f"  seed {seed}, step {one.step}: {one.layer} {one.statistic} {one.value:.3g}"
                )
        print(f"{optimizer}, false alarms: {total} in {len(seeds) * HEALTHY_STEPS:,} steps")
        for seed in seeds:
            planted(seed, optimizer)
    for width in WIDTHS:
        step_s, share = cost_of_watching(width)
        print(f"width {width}: {step_s * 1e3:.1f} ms a step, {share:+.2%} with a monitor")


def planted(seed: int, optimizer: str) -> None:
    """When a planted event is alarmed, and when the loss shows it."""
    seen = watched(seed, PLANTED_AT + 150, planted_at=PLANTED_AT, optimizer=optimizer)
    first = min(seen.alarms, key=lambda one: one.step, default=None)
    past = sorted(seen.losses[PLANTED_AT - 100 : PLANTED_AT])
    limit = past[50] + 6 * 1.4826 * (past[75] - past[25]) / 2
    late = (at for at in range(PLANTED_AT, len(seen.losses)) if seen.losses[at] > limit)
    told = "none" if first is None else f"{first.step} ({first.statistic} of {first.layer})"
    print(
        f"{optimizer}, planted at {PLANTED_AT}, seed {seed}: alarm {told}, loss {next(late, None)}"
    )


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
    false = 0
    for _ in range(ROWS // 4096):
        given, weight = int8_operands((4096, 128, 64), generator)
        false += int(checked_int8_product(given, checked_int8_weight(weight))[1].sum())
    print(f"int8: {false} false alarms in {ROWS:,} rows")
    for modulus in (127, 101, 128):
        for rows in (16, 1):
            told = ", ".join(
                f"{kind} {100 * share:.2f} %"
                for kind, share in int8_found(modulus, rows, generator)
            )
            print(f"int8, modulus {modulus}, {rows} rows: of flips found: {told}")
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


def int8_operands(
    sizes: tuple[int, int, int], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, as many of them 0 as after a ReLU, and weights."""
    rows, inner, columns = sizes
    given = torch.randint(0, 128, (rows, inner), generator=generator, dtype=torch.int8)
    given[torch.rand(given.shape, generator=generator) < ZEROS] = 0
    shape = inner, columns
    return given, torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)


def int8_found(
    modulus: int, rows: int, generator: torch.Generator, flips: int = 1024
) -> Iterator[tuple[str, float]]:
    """Of flipped weights, accumulator bits and sums that are any other number, those found.

    A weight whose inputs are all 0 changes nothing, and is another one's turn.
    """
    found = {"weights": 0, "accumulators": 0, "any sums": 0}
    tried = 0
    while tried < flips:
        given, weight = int8_operands((rows, 128, 64), generator)
        held = checked_int8_weight(weight, modulus)
        row, column, bit, other = (
            int(torch.randint(most, (), generator=generator)) for most in (128, 64, 31, 1 << 24)
        )
        if not given[:, row].any():
            continue
        tried += 1
        struck = held.values.clone()
        struck.view(torch.uint8)[row, column] ^= 1 << (bit % 8)
        right = int8_sums(given, held)
        flipped, replaced = right.clone(), right.clone()
        flipped[0, column] ^= 1 << bit
        replaced[0, column] += other + 1
        with_struck = int8_sums(given, replace(held, values=struck))
        for kind, sums in zip(found, (with_struck, flipped, replaced), strict=True):
            found[kind] += bool(wrong_int8_rows(sums, modulus).any())
    return ((kind, number / flips) for kind, number in found.items())


def roc() -> None:
    """Of each tolerance, false alarms and flips that are found: embedding bags, float products."""
    generator = torch.Generator().manual_seed(0)
    bags_roc("sums near 0", -0.5, generator)
    bags_roc("sums far from 0", 0.5, generator)
    for name, kind, whole in (
        ("fp32", torch.float32, torch.int32),
        ("bf16", torch.bfloat16, torch.int16),
    ):
        left = torch.randn(2048, 256, generator=generator).to(kind)
        right = torch.randn(256, 64, generator=generator).to(kind)
        held, product = CheckedWeight.of(right), left @ right
        limit = rounding_threshold(left, held, product, output=float_format(name))
        expected = left.double() @ held.sums
        at = torch.arange(2048), torch.randint(64, (2048,), generator=generator)
        for deviations in (3.0, 5.0, DEVIATIONS, 20.0, 100.0):
            own = limit * deviations / DEVIATIONS
            false_share = float(((product.double().sum(-1) - expected).abs() > own).float().mean())
            found = []
            for bit in range(15 if name == "bf16" else 31):
                struck = product.clone()
                struck.view(whole)[at] ^= 1 << bit
                error = (struck.double().sum(-1) - expected).abs()
                found.append(100 * float((~(error <= own)).float().mean()))
            told = f"exponent {sum(found[-8:]) / 8:.1f} %, " + ", ".join(
                f"bit {bit} {found[bit]:.0f} %" for bit in range(len(found) - 9, -1, -3)
            )
            print(f"{name}, {deviations:g} deviations: false {100 * false_share:.3f} %, {told}")


def bags_roc(told: str, least: float, generator: torch.Generator) -> None:
    """Of tables whose biases are up to 1 above the least; a flip changes one row in one bag."""
    rows = torch.randint(-127, 128, (4000, 64), generator=generator, dtype=torch.int8)
    scales = 0.01 + 0.02 * torch.rand(4000, generator=generator)
    table = CheckedTable.of(rows, scales, least + torch.rand(4000, generator=generator))
    bags = torch.randint(4000, (BAGS, 100), generator=generator)
    clean = table.pooled(bags)
    for tolerance in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3):
        shares = [float(wrong_bags(table, bags, clean, tolerance=tolerance).float().mean())]
        for lowest in (4, 0):
            bits = lowest + torch.randint(4, (BAGS,), generator=generator)
            column = torch.randint(64, (BAGS,), generator=generator)
            kept = rows[bags[:, 0], column]
            struck = (kept.view(torch.uint8) ^ (1 << bits).to(torch.uint8)).view(torch.int8)
            pooled = clean.clone()
            change = (struck.float() - kept.float()) * scales[bags[:, 0]]
            pooled[torch.arange(BAGS), column] += change
            wrong = wrong_bags(table, bags, pooled, tolerance=tolerance)
            shares.append(float(wrong.float().mean()))
        false, high, low = (100 * share for share in shares)
        print(
            f"bags, {told}, within {tolerance:g}: false {false:.2f} %, high {high:.1f} %, "
            f"low {low:.1f} %"
        )


def overhead() -> None:
    """What checks of int8 products and embedding bags cost here, and what a model says."""
    generator = torch.Generator().manual_seed(0)
    near = torch.zeros(1 << 18)  # a result that was just written is in a cache
    rate = near.numel() * 4 / median_s(near.sum)
    print(f"one core reads {rate / 1e9:.1f} GB/s of what it wrote")
    for sizes in ((1, 512, 512), (16, 512, 512), (64, 800, 3200), (256, 1024, 1024)):
        given, weight = int8_operands(sizes, generator)
        held = checked_int8_weight(weight)
        sums = int8_sums(given, held)
        plain = median_s(lambda given=given, weight=weight: torch._int_mm(given, weight))  # noqa: SLF001  the product alone
        wider = median_s(lambda given=given, held=held: int8_sums(given, held))
        look = median_s(lambda sums=sums: wrong_int8_rows(sums))
        modelled = 1 / sizes[2] + sums.numel() * 4 / rate / plain
        print(
            f"int8 {sizes}: {plain * 1e6:.0f} us, {100 * ((wider + look) / plain - 1):+.0f} % with "
            f"checks (column {100 * (wider / plain - 1):+.0f} %), {100 * modelled:+.1f} % modelled"
        )
    for width in (32, 64, 128, 256):
        rows = torch.randint(-127, 128, (200_000, width), generator=generator, dtype=torch.int8)
        scales = torch.rand(200_000, generator=generator)
        table = CheckedTable.of(rows, scales, torch.rand(200_000, generator=generator))
        bags = torch.randint(200_000, (64, 100), generator=generator)
        pooled = table.pooled(bags)
        plain = median_s(lambda table=table, bags=bags: table.pooled(bags))
        look = median_s(
            lambda table=table, bags=bags, pooled=pooled: wrong_bags(table, bags, pooled)
        )
        modelled = (12 + width * 4 / 100) / (width + 8)  # bytes of the check over those of a row
        print(
            f"bags of 100, width {width}: {plain * 1e6:.0f} us, {100 * look / plain:+.0f} % "
            f"measured, {100 * modelled:+.1f} % modelled by bytes"
        )


def median_s(run: Callable[[], object], repeats: int = 30) -> float:
    """CPU time of one run."""
    found = []
    for _ in range(repeats):
        begin = time.thread_time()
        run()
        found.append(time.thread_time() - begin)
    return sorted(found)[repeats // 2]


def coverage() -> None:
    """How often intervals of whole campaigns hold what every flip says."""
    torch.manual_seed(3)
    model = torch.nn.Linear(3, 1, bias=False)
    given = torch.randn(64, 3)
    weight, wrong = model.weight.detach()[0], 0
    for at in range(3):
        for bit in range(32):
            struck = weight.clone()
            struck.view(torch.int32)[at] ^= (1 << bit) - (1 << 32 if bit == 31 else 0)  # noqa: PLR2004
            after = given @ struck
            wrong += int(
                (((given @ weight) > 0) != (after > 0)).logical_or(~after.isfinite()).sum()
            )
    exact = wrong / (3 * 32 * len(given))
    for sampling in FaultSampling:
        held = 0
        for seed in range(REPEATS):
            settings = FaultSettings(
                half_width=1e-9, max_injections=8192, sampling=sampling, seed=seed
            )
            [row] = fault_campaign(model, given, settings).rows
            held += row.low_share <= exact <= row.high_share
        print(f"{sampling}: {100 * held / REPEATS:.1f} % of {REPEATS} intervals hold {exact:.4f}")


def campaign() -> None:
    """Injections a second, the order of parts, and how often intervals hold."""
    for name, steps in (("dlrm", 600), ("lenet", 150), ("bert", 400), ("transformer", 300)):
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
    "roc": roc,
    "overhead": overhead,
    "coverage": coverage,
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
