"""Products of bytes on this processor's core, through PyTorch's kernels, and a line through them.

    python bench/int8.py [seconds of CPU for each shape]        about 10 s

Two of every three shapes are fitted (a start, FLOPs, bytes), the rest is predicted. Times are of
the thread, the least of several, so that what else runs on the machine counts little. `quantised`
has packed weights and makes its results narrow as it stores them (FBGEMM or oneDNN); `integer` is
`torch._int_mm`, whose results stay wide. Beside them fp32, for what a user would gain.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import torch

from foretrace.base import Float64s
from foretrace.cost.baselines import LINEAR_CONSTANTS, RowWork, linear_ns
from foretrace.cost.fitting import MeasuredRows, fitted

SHAPES = tuple(product((16, 64, 256, 768), (256, 768, 1_536), (256, 768, 2_048)))
FEWEST_RUNS = 5
RESULT_BYTES = {"quantised": 1, "integer": 4, "fp32": 4}


def calls(m: int, n: int, k: int) -> Mapping[str, Callable[[], object]]:
    """The same product three ways."""
    first, weight = torch.randn(m, k), torch.randn(n, k)
    quantised = torch.quantize_per_tensor(first, 0.05, 64, torch.quint8)
    packed = torch.ops.quantized.linear_prepack(
        torch.quantize_per_tensor(weight, 0.03, 0, torch.qint8), None
    )
    left, right = (torch.randint(-128, 128, sides, dtype=torch.int8) for sides in ((m, k), (k, n)))
    return {
        "quantised": lambda: torch.ops.quantized.linear(quantised, packed, 0.1, 0),
        "integer": lambda: torch._int_mm(left, right),  # noqa: SLF001  the only one there is
        "fp32": lambda: torch.nn.functional.linear(first, weight),
    }


def least_ns(call: Callable[[], object], seconds: float) -> float:
    """The least time of a thread."""
    call()
    found: list[int] = []
    while len(found) < FEWEST_RUNS or sum(found) < seconds * 1e9:
        begin = time.thread_time_ns()
        call()
        found.append(time.thread_time_ns() - begin)
    return float(min(found))


def work_of(kind: str) -> tuple[Float64s, Float64s]:
    """FLOPs and bytes of every shape."""
    m, n, k = np.array(SHAPES, np.float64).T
    item = 4 if kind == "fp32" else 1
    return 2 * m * n * k, item * (m * k + n * k) + RESULT_BYTES[kind] * m * n


def main(seconds: float) -> None:
    """Print the error on what was left out, and how much faster each is than fp32."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.manual_seed(0)
    measured: dict[str, list[float]] = {kind: [] for kind in RESULT_BYTES}
    for shape in SHAPES:
        for kind, call in calls(*shape).items():
            measured[kind].append(least_ns(call, seconds))
    fold = np.random.default_rng(0).permutation(len(SHAPES)) % 3
    for kind, times in measured.items():
        taken = np.array(times)
        flops, num_bytes = work_of(kind)
        errors = np.zeros(len(SHAPES))
        for left_out in range(3):
            errors[fold == left_out] = errors_of(
                (flops, num_bytes, taken), fold == left_out, kind=kind
            )
        gain = np.median(np.array(measured["fp32"]) / taken)
        print(
            f"{kind:10} {np.median(flops / taken):6.0f} GFLOP/s  x {gain:.2f} of fp32; left out: "
            f"median error {np.median(errors):.1%}, of 9 in 10 below {np.quantile(errors, 0.9):.1%}"
        )


def errors_of(
    columns: tuple[Float64s, Float64s, Float64s], held: np.ndarray, *, kind: str
) -> Float64s:
    """Relative errors on rows held out of the fit."""

    def predicted(rows: np.ndarray, values: Mapping[str, float]) -> Float64s:
        return linear_ns(RowWork(columns[0][rows], columns[1][rows], kind), values)

    rows = ~held
    weight = np.ones(int(rows.sum()))
    one = MeasuredRows(lambda values: predicted(rows, values), columns[2][rows], weight)
    values = fitted(LINEAR_CONSTANTS, [one], pull=1e-3)
    found: Float64s = np.abs(predicted(held, values) / columns[2][held] - 1)
    return found


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.05)
