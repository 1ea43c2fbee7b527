"""What `numerics` says beside what a GPU does: casts, products, attention, checks, a monitor.

    python bench/numerics_device.py                       all, to the terminal
    python bench/numerics_device.py casts products        these
    python bench/numerics_device.py --out results.json    with every figure

Without a GPU each part runs small on the processor, to show that it runs; its figures then say
nothing. All together take about two minutes of an H200. docs/numerics.md has what was found.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from foretrace.numerics import (
    FLOAT_FORMATS,
    OPERATOR_PAIRS,
    TENSOR_CORES,
    Accumulator,
    FloatFormat,
    OptimizerMonitor,
    Rounding,
    checked_int8_weight,
    deviate,
    emulated_product,
    float_format,
    format_agreement,
    pair_of,
    protect,
    rounded,
)
from foretrace.numerics.biased_rounding import repeated_maxima
from foretrace.numerics.checks import CheckedTable, int8_sums, wrong_bags, wrong_int8_rows
from foretrace.numerics.pairs import Case, taken

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
LATEST_S = 75.0  # after which nothing more is compiled
BEGUN = time.monotonic()
Rows = list[dict[str, Any]]


def sized(on_gpu: int, here: int) -> int:
    """A size that fits the device."""
    return on_gpu if HAS_GPU else here


# ---- casts ------------------------------------------------------------------------------------


def casts() -> Rows:
    """Formats on the device, bit by bit: patterns, ties, random fp32 numbers."""
    found = format_agreement(num_values=sized(2_000_000, 10_000), device=DEVICE)
    return [
        {"format": one.format, "sides": one.sides, "what": one.what, "tried": one.num_tried,
         "different": one.num_different, "kind": one.kind, "example": one.example}
        for one in found.rows
        if "ml_dtypes" not in one.sides or one.num_different
    ]  # fmt: skip


# ---- products ---------------------------------------------------------------------------------

LENGTHS = (32, 64, 128, 512, 2048, 4096)
SHOWN = 64  # rows and columns of a product that are emulated
PROMOTED = 128  # products after which slow accumulation adds to fp32


def products() -> Rows:
    """Which accumulator gives the bits that tensor cores give, and how far all are from fp64."""
    rows: Rows = []
    for name in ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2"):
        for is_fast in (False, True) if name.startswith("fp8") else (True,):
            for length in LENGTHS if HAS_GPU else LENGTHS[:3]:
                some = products_of(float_format(name), length, is_fast=is_fast)
                rows += kept(f"{name}, {length}", some)
    return rows


def products_of(of: FloatFormat, length: int, *, is_fast: bool) -> Iterator[dict[str, Any]]:
    """Of one format and inner size: each accumulator beside the device."""
    size = sized(4096, SHOWN)
    generator = torch.Generator(DEVICE).manual_seed(length)
    shapes = (size, length), (length, size)
    other = float_format("fp8_e4m3") if of.name == "fp8_e5m2" else of  # two e5m2 are not offered
    left, right = (
        rounded(torch.randn(shape, generator=generator, device=DEVICE), kind)
        for shape, kind in zip(shapes, (of, other), strict=True)
    )
    said = device_product(left, right, (of, other), is_fast=is_fast)[:SHOWN, :SHOWN]
    left, right = left[:SHOWN], right[:, :SHOWN]
    exact = left.double() @ right.double()
    error = said.double() - exact
    scale = exact.abs().mean()
    told = f"{of.name}{'' if of.num_bits > 8 else ', fast' if is_fast else ', promoted'}"  # noqa: PLR2004  8-bit formats have two ways
    yield {"of": told, "inner": length, "accumulator": "the device", "equal": 1.0,
           "mean_error": float(error.abs().mean() / scale), "bias": float(error.mean() / scale),
           "towards_zero": float((error.sign() == -exact.sign()).double().mean())}  # fmt: skip
    for name, accumulator in accumulators(of).items():
        every = PROMOTED if of.num_bits <= 8 and not is_fast else length  # noqa: PLR2004
        own = promoted(left, right, accumulator, (of, every))
        off = own.double() - exact
        yield {
            "of": told, "inner": length, "accumulator": name,
            "equal": float((own == said).double().mean()),
            "mean_error": float(off.abs().mean() / scale), "bias": float(off.mean() / scale),
            "error_ratio": float(error.abs().mean() / off.abs().mean().clamp(min=1e-30)),
        }  # fmt: skip


def accumulators(of: FloatFormat) -> dict[str, Accumulator]:
    """What the device may be."""
    cut = Rounding.TOWARD_ZERO
    kind = "hopper-16bit" if of.num_bits > 8 else "hopper-fp8"  # noqa: PLR2004
    known = TENSOR_CORES[kind]
    bits = known.aligned_bits or 0
    return {
        "fp32, one by one": Accumulator(),
        "fp32, blocks of 16": Accumulator(block=16),
        "fp32 cut off, blocks of 16": Accumulator(block=16, rounding=cut),
        "e8m13 cut off, blocks of 32": Accumulator(
            keeps=float_format("e8m13"), block=32, rounding=cut
        ),
        f"{kind}, {bits} bits": known,
        f"{kind}, {bits - 1} bits": replace(known, aligned_bits=bits - 1),
        f"{kind}, {bits + 1} bits": replace(known, aligned_bits=bits + 1),
        f"{kind}, half blocks": replace(known, block=known.block // 2),
        f"{kind}, double blocks": replace(known, block=known.block * 2),
        f"{kind}, sums to fp32": replace(known, keeps=float_format("fp32")),
        f"{kind}, sums to the nearest": replace(known, rounding=Rounding.NEAREST),
    }


def promoted(
    left: torch.Tensor, right: torch.Tensor, by: Accumulator, of: tuple[FloatFormat, int]
) -> torch.Tensor:
    """Sums of so many products, added up in fp32."""
    takes, every = of
    total = torch.zeros((), dtype=torch.float32, device=left.device)
    for begin in range(0, left.shape[1], every):
        here = slice(begin, begin + every)
        total = total + emulated_product(left[:, here], right[here], by, takes=takes)
    return total


def device_product(
    left: torch.Tensor,
    right: torch.Tensor,
    formats: tuple[FloatFormat, FloatFormat],
    *,
    is_fast: bool,
) -> torch.Tensor:
    """The device's own, kept in fp32."""
    kinds = [getattr(torch, one.torch) for one in formats]
    if not HAS_GPU:
        return (left.double() @ right.double()).float()
    if formats[0].num_bits > 8:  # noqa: PLR2004
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        return torch.mm(left.to(kinds[0]), right.to(kinds[1]), out_dtype=torch.float32)
    one = torch.ones((), device=left.device)
    found: torch.Tensor = torch._scaled_mm(  # noqa: SLF001  there is no other 8-bit product
        left.to(kinds[0]), right.mT.contiguous().to(kinds[1]).mT,
        scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=is_fast,
    )  # fmt: skip
    return found


# ---- attention --------------------------------------------------------------------------------

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


def attention() -> Rows:
    """Kernels of attention and emulated tiles, each from fp64 on the same inputs."""
    lengths = [512, 1024, 2048, 4096, 8192, 16384][: sized(6, 2)]
    rows: Rows = []
    for name, backend in BACKENDS.items():
        pair = pair_of(plain_attention, kernel(backend), heads)
        for kind in ("bf16", "fp16"):
            try:
                found = deviate(pair, formats=(kind,), statistics=("fp32",), lengths=lengths,
                                tiles=(1 << 20,), num_seeds=3)  # fmt: skip
            except RuntimeError as error:
                rows.append({"form": name, "format": kind, "error": str(error).splitlines()[0]})
                continue
            rows += [deviation_row(name, one) for one in found.rows]
            rows += [
                deviation_row("plain operators", one, own=one.baseline)
                for one in found.rows
                if name == "math"
            ]
    for statistics in ("fp32", "same"):
        found = deviate("attention", formats=("bf16", "fp16"), statistics=(statistics,),
                        lengths=lengths, tiles=(64, 128), num_seeds=3)  # fmt: skip
        for one in found.rows:
            rows.append(deviation_row(f"emulated, tiles of {one.tile}", one))
            if one.tile == 128:  # noqa: PLR2004
                rows.append(deviation_row("emulated, whole", one, own=one.baseline))
    return rows + list(biases())


def deviation_row(form: str, one: Any, own: Any = None) -> dict[str, Any]:
    """Largest and mean deviation of one length."""
    own = own or one.other
    return {"form": form, "format": one.format, "statistics": one.statistics,
            "length": one.length, "largest": own.largest, "mean": own.mean, "bias": own.bias,
            "wasserstein": own.wasserstein}  # fmt: skip


def plain_attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """Operator by operator, each rounded to the format."""
    q, k, v = (one.to(DEVICE) for one in (queries, keys, values))
    return (torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v).cpu()


def kernel(backend: SDPBackend) -> Callable[..., torch.Tensor]:
    """One of PyTorch's kernels, of one head."""

    def run(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        given = [one.to(DEVICE)[None, None] for one in (queries, keys, values)]
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(*given)[0, 0].cpu()

    return run


def heads(length: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """What the pair `attention` is run on."""
    case = Case(format=float_format("fp32"), statistics=float_format("fp32"), length=length,
                tile=length, seed=generator.initial_seed())  # fmt: skip
    return OPERATOR_PAIRS["attention"].inputs(case)


def biases() -> Iterator[dict[str, Any]]:
    """Whether kernels round one way where a row's largest score is repeated."""
    bf16 = float_format("bf16")
    case = Case(format=bf16, statistics=bf16, length=64, tile=64)
    given = [one.to(DEVICE) for one in taken(repeated_maxima(case, 512, 8), case)]
    exact = plain(*(one.double() for one in given))
    unit = bf16.unit_roundoff * exact.abs()
    forms: dict[str, Callable[[], torch.Tensor]] = {
        name: lambda backend=backend: kernel_of_many(backend, given)  # type: ignore[misc]
        for name, backend in BACKENDS.items()
    }
    forms["plain operators"] = lambda: plain(*(one.bfloat16() for one in given))
    for name, run in forms.items():
        try:
            relative = ((run().double() - exact) / unit).mean(1)
        except RuntimeError as error:
            yield {"form": f"{name}, repeated maxima", "error": str(error).splitlines()[0]}
            continue
        yield {"form": f"{name}, repeated maxima", "format": "bf16",
               "mean_units": float(relative.mean()),
               "standard_error": float(relative.std() / relative.numel() ** 0.5)}  # fmt: skip


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of many samples."""
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v


def kernel_of_many(backend: SDPBackend, given: list[torch.Tensor]) -> torch.Tensor:
    """The same by one of PyTorch's kernels."""
    narrow = [one.bfloat16()[:, None] for one in given]
    with sdpa_kernel(backend):
        return functional.scaled_dot_product_attention(*narrow)[:, 0]


# ---- checks -----------------------------------------------------------------------------------

WIDTH, INNER, HEADS, GROUPS = 4096, 14336, 32, 8  # of a layer of Llama 3 8B
TOKENS = 4096


class Layer(torch.nn.Module):
    """One layer of Llama 3, without its rotation."""

    def __init__(self, width: int, inner: int, num_heads: int, groups: int) -> None:
        super().__init__()
        self.sizes = num_heads, groups, width // num_heads
        narrow = groups * self.sizes[2]
        self.q, self.k, self.v, self.o, self.gate, self.up = (
            torch.nn.Linear(width, columns, bias=False)
            for columns in (width, narrow, narrow, width, inner, inner)
        )
        self.down = torch.nn.Linear(inner, width, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(2))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Of [batch, places, width]."""
        num_heads, groups, each = self.sizes
        normed = self.norms[0](given)
        shaped = [
            one(normed).unflatten(-1, (many, each)).transpose(1, 2)
            for one, many in ((self.q, num_heads), (self.k, groups), (self.v, groups))
        ]
        seen = functional.scaled_dot_product_attention(*shaped, is_causal=True, enable_gqa=True)
        given = given + self.o(seen.transpose(1, 2).flatten(-2))
        normed = self.norms[1](given)
        return given + self.down(functional.silu(self.gate(normed)) * self.up(normed))


@torch.no_grad()
def checks() -> Rows:
    """What a check adds to a layer of Llama 3 8B, to its operators, and to bags."""
    width, inner, tokens = sized(WIDTH, 64), sized(INNER, 128), sized(TOKENS, 64)
    heads_, kind = sized(HEADS, 2), torch.bfloat16
    layer = Layer(width, inner, heads_, sized(GROUPS, 1)).to(DEVICE, kind)
    bag = torch.nn.EmbeddingBag(sized(1_000_000, 1000), 128, mode="sum", device=DEVICE)
    random = {size: torch.randn(1, tokens, size, device=DEVICE, dtype=kind)
              for size in (width, inner)}  # fmt: skip
    looked_up = torch.randint(len(bag.weight), (sized(4096, 16), 100), device=DEVICE)
    tried: dict[str, tuple[torch.nn.Module, torch.Tensor]] = {
        f"the layer, {tokens} tokens": (layer, random[width]),
        "bags of 100 rows, 128 wide, fp32": (bag, looked_up),
    }
    for name, one in (("q", layer.q), ("k", layer.k), ("up", layer.up), ("down", layer.down)):
        columns, size = one.weight.shape
        tried[f"linear {name}, {tokens} x {size} x {columns}"] = one, random[size]
    rows: Rows = []
    for is_compiled in (False, True):
        for told, (module, given) in tried.items():
            rows += kept(told, beside(told, module, given, is_compiled=is_compiled))
        rows += kept("int8", int8_rows(tokens, width, inner, is_compiled=is_compiled))
        rows += kept("int8 bags", int8_bags(is_compiled=is_compiled))
        if is_compiled:
            continue
        for places in (1024, sized(4096, 64)):
            shaped = torch.randn(3, 1, heads_, places, 128, device=DEVICE, dtype=kind)
            told = f"attention, {heads_} heads of 128, {places} places, causal"
            rows += kept(told, beside(told, Attending(), shaped, is_compiled=False))
    return rows


class Attending(torch.nn.Module):
    """Attention alone, as a module that can be checked."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = torch.nn.Linear(1, 1, device=DEVICE)  # a model without any is refused

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Of [3, batch, heads, places, width]."""
        queries, keys, values = given
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)


def beside(
    told: str, module: torch.nn.Module, given: torch.Tensor, *, is_compiled: bool
) -> Iterator[dict[str, Any]]:
    """A module with and without checks."""
    if is_compiled and too_late(told):
        return
    plain_us = event_us(lambda: module(given))
    begin = time.monotonic()
    with protect(module, is_compiled=is_compiled) as guard:
        module(given)
        settle()
        first_s = time.monotonic() - begin
        checked_us = event_us(lambda: module(given))
        false = len(guard.found)
    yield {"operator": told, "check": "compiled" if is_compiled else "operators",
           "plain_us": plain_us, "checked_us": checked_us,
           "overhead": checked_us / plain_us - 1, "found": false, "first_s": first_s}  # fmt: skip


def int8_rows(
    tokens: int, width: int, inner: int, *, is_compiled: bool
) -> Iterator[dict[str, Any]]:
    """int8 products with their column."""
    for size, columns in ((width, width), (width, inner), (inner, width)):
        told = f"int8 product, {tokens} x {size} x {columns}"
        if is_compiled and too_late(told):
            continue
        given = torch.randint(0, 128, (tokens, size), device=DEVICE, dtype=torch.int8)
        weight = torch.randint(-127, 128, (columns, size), device=DEVICE, dtype=torch.int8).mT
        held = checked_int8_weight(weight)
        look = torch.compile(wrong_int8_rows) if is_compiled else wrong_int8_rows
        sums = int8_sums(given, held)
        false = int(look(sums).sum())
        struck = sums.clone()
        struck[: min(31, tokens), 3] ^= 1 << torch.arange(min(31, tokens), device=DEVICE).int()
        missed = min(31, tokens) - int(look(struck).sum())
        plain_us = event_us(lambda given=given, weight=weight: torch._int_mm(given, weight))  # noqa: SLF001
        column_us = event_us(lambda given=given, held=held: int8_sums(given, held))
        look_us = event_us(lambda look=look, sums=sums: look(sums))
        yield {"operator": told, "check": "compiled" if is_compiled else "operators",
               "plain_us": plain_us, "checked_us": column_us + look_us,
               "column": column_us / plain_us - 1,
               "overhead": (column_us + look_us) / plain_us - 1, "found": false,
               "missed": missed}  # fmt: skip


def int8_bags(*, is_compiled: bool) -> Iterator[dict[str, Any]]:
    """Bags of int8 rows and their check, both as one kernel or both as operators."""
    size = sized(1_000_000, 1000)
    for width in (64, 128, 256):
        told = f"int8 bags of 100 rows, {width} wide"
        if is_compiled and too_late(told):
            continue
        rows = torch.randint(-127, 128, (size, width), device=DEVICE, dtype=torch.int8)
        scales, biases_ = torch.rand(2, size, device=DEVICE)
        table = CheckedTable.of(rows, 0.01 + 0.02 * scales, 0.5 + biases_)
        bags = torch.randint(size, (sized(4096, 16), 100), device=DEVICE)
        pool, look = pooled, wrong_bags
        if is_compiled:
            pool, look = torch.compile(pooled), torch.compile(wrong_bags)
        found = pool(table, bags)
        false = int(look(table, bags, found).sum())
        plain_us = event_us(lambda pool=pool, table=table, bags=bags: pool(table, bags))
        look_us = event_us(
            lambda look=look, table=table, bags=bags, found=found: look(table, bags, found)
        )
        yield {"operator": told, "check": "compiled" if is_compiled else "operators",
               "plain_us": plain_us, "checked_us": plain_us + look_us,
               "overhead": look_us / plain_us, "found": false}  # fmt: skip


def pooled(table: CheckedTable, bags: torch.Tensor) -> torch.Tensor:
    """Sums of every bag's rows."""
    return table.pooled(bags)


# ---- monitor ----------------------------------------------------------------------------------


def monitor() -> Rows:
    """What watching an optimizer adds to a step: eager, foreach and fused AdamW."""
    rows: Rows = []
    for width, layers, tokens in ((1024, 8, 4096), (2048, 16, 4096)):
        if not HAS_GPU:
            width, layers, tokens = width // 32, 2, 8  # noqa: PLW2901  small
        for name in ("foreach", "fused", "loop"):
            if name != "loop" or layers < 16:  # noqa: PLR2004  once is enough
                rows.append(watched(name, width, layers, tokens))
    return rows


WAYS: dict[str, dict[str, bool]] = {
    "foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False},
}  # fmt: skip
EVERY = 20  # the monitor's own default


def watched(name: str, width: int, layers: int, tokens: int) -> dict[str, Any]:
    """Steps with and without a monitor, in turn; waiting for each, and not."""
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(
        width, max(width // 128, 1), 4 * width, 0.0, batch_first=True, norm_first=True
    )
    model = torch.nn.TransformerEncoder(block, layers, enable_nested_tensor=False).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **WAYS[name])  # type: ignore[arg-type]
    places = min(tokens, 1024)
    given = torch.randn(tokens // places, places, width, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(given).square().mean()
        loss.backward()
        optimizer.step()

    for _ in range(5):
        step()
    found: dict[str, Any] = {"optimizer": name, "width": width, "layers": layers,
                             "tensors": sum(1 for _ in model.parameters())}  # fmt: skip
    for told, waits in (("in turn", True), ("free", False)):
        spent: dict[bool, list[float]] = {False: [], True: []}
        more: list[float] = []
        for turn in range(4):
            is_watched = turn % 2 == 1
            times = timed(step, optimizer, model if is_watched else None, waits=waits)
            spent[is_watched].append(sum(times) / len(times))
            if is_watched and waits:
                more.append(sum(times) / median(times) / len(times) - 1)
        found |= {f"step_ms, {told}": 1e3 * median(spent[False]),
                  f"overhead, {told}": median(spent[True]) / median(spent[False]) - 1,
                  f"spread, {told}": max(spent[False]) / min(spent[False]) - 1}  # fmt: skip
        if waits:
            found["overhead of observed steps"] = median(more)
    return found


def timed(
    step: Callable[[], None],
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module | None,
    *,
    waits: bool,
) -> list[float]:
    """Seconds of steps, with a monitor if a model is given; their mean, if none is waited for."""
    steps = sized(2 * EVERY, EVERY)
    with tempfile.TemporaryDirectory() as folder:
        seen = None
        if model is not None:
            names = model.named_parameters()
            seen = OptimizerMonitor(optimizer, Path(folder) / "log", every=EVERY, names=names)
        settle()
        times, begin = [], time.monotonic()
        for _ in range(steps):
            step()
            if waits:
                settle()
                times.append(time.monotonic() - begin)
                begin = time.monotonic()
        settle()
        if not waits:
            times = [(time.monotonic() - begin) / steps]
        if seen is not None:
            seen.close()
    return times


# ---- running ----------------------------------------------------------------------------------


def kept(told: str, rows: Iterator[dict[str, Any]]) -> Rows:
    """Rows until one fails, and why."""
    found: Rows = []
    try:
        found.extend(rows)
    except Exception as error:  # noqa: BLE001  whatever a device lacks
        found.append({"failed": told, "error": f"{type(error).__name__}: {error}"[:500]})
    return found


def settle() -> None:
    """Wait for the device."""
    if HAS_GPU:
        torch.cuda.synchronize()


def too_late(told: str) -> bool:
    """Whether nothing more is compiled."""
    late = not HAS_GPU or time.monotonic() - BEGUN > LATEST_S
    if late:
        print(f"  not compiled: {told}")
    return late


def event_us(run: Callable[[], object], repeats: int = 15) -> float:
    """Median time of one run, between two events."""
    for _ in range(3):
        run()
    if not HAS_GPU:
        begin = time.perf_counter()
        run()
        return 1e6 * (time.perf_counter() - begin)
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for first, last in pairs:
        first.record()
        run()
        last.record()
    torch.cuda.synchronize()
    return 1e3 * median(first.elapsed_time(last) for first, last in pairs)


@dataclass
class Results:
    """Every part's rows, and what failed."""

    parts: dict[str, Rows] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        versions = {"python": platform.python_version(), "torch": torch.__version__,
                    "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                    "device": torch.cuda.get_device_name() if HAS_GPU else "cpu",
                    "formats": len(FLOAT_FORMATS)}  # fmt: skip
        return {"versions": versions, "seconds": self.seconds, "failures": self.failures,
                **self.parts}  # fmt: skip


PARTS: dict[str, Callable[[], Rows]] = {
    "casts": casts,
    "products": products,
    "attention": attention,
    "checks": checks,  # it compiles for as long as there is time
    "monitor": monitor,
}


def short(row: dict[str, Any]) -> str:
    """A row on a line."""
    return "  ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
        if value not in ("", None)
    )


def main() -> None:
    """Run parts; one that fails does not stop the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all, if none")
    parser.add_argument("--out", type=Path, help="a file of JSON")
    given = parser.parse_args()
    found = Results()
    if not HAS_GPU:
        torch.set_num_threads(1)
    for name in given.parts or PARTS:
        begin = time.monotonic()
        try:
            found.parts[name] = PARTS[name]()
        except Exception as error:  # noqa: BLE001  whatever a device lacks
            found.failures[name] = traceback.format_exc()
            print(f"{name} failed: {error}")
        found.seconds[name] = time.monotonic() - begin
        print(f"{name}: {found.seconds[name]:.0f} s")
        for row in found.parts.get(name, []):
            print("  " + short(row))
        if given.out is not None:
            given.out.write_text(json.dumps(found.told(), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
