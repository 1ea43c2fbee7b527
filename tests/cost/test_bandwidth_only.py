"""MAD-Max's published rows from its equations: the cost model is a plug-in.

Two streams, each in order; a block starts when its stream is free and the blocks it names on the
other stream are done. Durations come from `BandwidthOnly`, through the interface that every cost
model has. The rows are what the released code gives (shapes: its configuration files).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from foretrace.base import MachineError
from foretrace.cost import (
    NO_TEXT,
    BandwidthOnly,
    CollectiveRequests,
    CostModel,
    KernelRequests,
    Source,
)
from tests.estimate.madmax import zionex

TF32_KERNEL = "cutlass_tensorop_s1688gemm"
FLOAT, BFLOAT = "float", "c10::BFloat16"


@dataclass
class Streams:
    """Two streams of blocks and the totals of each kind, in ms."""

    model: CostModel
    num_ranks: int
    ends: dict[str, float] = field(default_factory=lambda: {"compute": 0.0, "network": 0.0})
    totals: dict[str, float] = field(default_factory=dict)

    def add(self, kind: str, stream: str, takes: float, after: float = 0.0) -> float:
        self.ends[stream] = max(self.ends[stream], after) + takes
        self.totals[kind] = self.totals.get(kind, 0.0) + takes
        return self.ends[stream]

    def product(self, m: int, k: int, n: int, dtype: str, after: float = 0.0) -> float:
        kernel = TF32_KERNEL if dtype == FLOAT else "gemm"
        signature = json.dumps({"dims": [[m, k], [k, n]], "types": [dtype, dtype]})
        return self.add("GEMM", "compute", self._kernel("aten::mm", signature, kernel), after)

    def lookup(self, num_bytes: int, after: float = 0.0) -> float:
        takes = self._bytes_moved(num_bytes)
        return self.add("EMB", "compute", takes, after)

    def collective(self, kind: str, num_bytes: float, after: float = 0.0) -> float:
        names = {"A2A": "alltoall", "AR": "all_reduce", "AG": "all_gather", "RS": "reduce_scatter"}
        costs = self.model.collective_costs(
            CollectiveRequests(
                collective=np.zeros(1, np.int32),
                num_bytes=np.array([num_bytes], np.int64),
                dtype=np.zeros(1, np.int32),
                group=np.zeros(1, np.int32),
                collectives=(names[kind],),
                dtypes=("bf16",),
                groups=(tuple(range(self.num_ranks)),),
            )
        )
        return self.add(kind, "network", costs.duration_ns[0] / 1e6, after)

    def barrier(self) -> None:
        self.ends = dict.fromkeys(self.ends, max(self.ends.values()))

    @property
    def step(self) -> float:
        return max(self.ends.values())

    @property
    def exposed_share(self) -> float:
        compute = self.totals["GEMM"] + self.totals["EMB"]
        network = sum(self.totals.values()) - compute
        return (self.step - compute) / network

    def _bytes_moved(self, num_bytes: int) -> float:
        signature = json.dumps({"dims": [[num_bytes // 4]], "types": [FLOAT]})
        return self._kernel("aten::zero_", signature, "vectorized_elementwise_kernel")

    def _kernel(self, operator: str, signature: str, kernel: str) -> float:
        costs = self.model.kernel_costs(
            KernelRequests(
                operator=np.zeros(1, np.int32),
                signature=np.zeros(1, np.int32),
                kernel=np.zeros(1, np.int32),
                operators=(operator,),
                signatures=(signature,),
                kernels=(kernel,),
            )
        )
        return float(costs.duration_ns[0]) / 1e6


def dlrm(num_ranks: int, share_inside: float) -> Streams:
    """10 bottom and 10 top layers of width 3994, replicated; 4,096 tables dealt to all ranks."""
    run = Streams(BandwidthOnly(zionex(num_ranks), share_inside=share_inside), num_ranks)
    layer = (512, 3994, 3994, FLOAT)
    lookup_bytes = 512 * 4096 * 15 * 94 * 2
    exchange_bytes = 2 * lookup_bytes / num_ranks
    gradient_bytes = 3994 * 3994 * 4

    exchanged = run.collective("A2A", exchange_bytes, after=run.lookup(lookup_bytes))
    for _ in range(10):
        run.product(*layer)
    for _ in range(10):
        run.product(*layer, after=exchanged)
    run.barrier()
    for _ in range(10):  # the top, each layer twice the forward work
        run.product(*layer)
        run.collective("AR", gradient_bytes, after=run.product(*layer))
    exchanged = run.collective("A2A", exchange_bytes, after=run.ends["compute"])
    for _ in range(10):
        run.product(*layer)
        run.collective("AR", gradient_bytes, after=run.product(*layer))
    run.lookup(lookup_bytes, after=exchanged)
    return run


@dataclass(frozen=True)
class Unit:
    """What FSDP gathers at once: attention or the feed-forward half of a layer."""

    num_parameters: int
    width: int


def language_model(
    layers: int, width: int, inner: int, *, length: int, is_prefetched: bool
) -> Streams:
    """A transformer sharded over 2,048 ranks, one sequence each."""
    run = Streams(BandwidthOnly(zionex(2048)), 2048)
    pair = (Unit(4 * width * width, width), Unit(2 * width * inner, width))
    units = pair * layers
    token_bytes = length * width * 2

    def compute(unit: Unit, after: float) -> float:
        rows, columns = unit.width, unit.num_parameters // unit.width
        return run.product(length, rows, columns, BFLOAT, after)

    def gather(unit: Unit, after: float) -> float:
        return run.collective("AG", unit.num_parameters * 2, after)

    def scatter(unit: Unit, after: float) -> float:
        return run.collective("RS", unit.num_parameters * 2, after)

    start = run.lookup(token_bytes)
    before, ends = 0.0, [start]
    for unit in units:
        gathered = gather(unit, before if is_prefetched else ends[-1])
        before = ends[-1]
        ends.append(compute(unit, gathered))
    run.lookup(token_bytes)
    run.barrier()

    done = run.lookup(token_bytes)
    run.collective("AR", token_bytes, after=done)
    waiting: Unit | None = None
    backwards = units[::-1]
    gathered = gather(backwards[0], done)
    for number, unit in enumerate(backwards):
        compute(unit, gathered)
        scattered = scatter(waiting, done) if waiting is not None else 0.0
        following = backwards[number + 1] if number + 1 < len(backwards) else None
        if is_prefetched and following is not None:
            gathered = gather(following, done)
        done = compute(unit, scattered)
        if not is_prefetched and following is not None:
            gathered = gather(following, done)
        waiting = unit
    assert waiting is not None
    scatter(waiting, done)
    run.collective("AR", token_bytes, after=run.lookup(token_bytes))
    return run


ROWS: dict[str, tuple[Callable[[], Streams], float, tuple[float, ...], float]] = {
    "DLRM-A": (lambda: dlrm(128, 0.2746), 54.00, (8.91, 9.10, 26.40, 21.27, 0, 0), 0.7550),
    "DLRM-A-small": (lambda: dlrm(8, 1.0), 28.86, (8.91, 9.10, 14.78, 6.38, 0, 0), 0.5124),
    "LLaMA-65B": (
        lambda: language_model(80, 8192, 21846, length=2048, is_prefetched=False),
        4552.57,
        (2799.31, 0.10, 0, 1.12, 1670.28, 835.14),
        0.6994,
    ),
    "LLaMA-65B prefetched": (
        lambda: language_model(80, 8192, 21846, length=2048, is_prefetched=True),
        3045.47,
        (2799.31, 0.10, 0, 1.12, 1670.28, 835.14),
        0.0982,
    ),
    "LLaMA2-70B": (
        lambda: language_model(80, 8192, 21846, length=4096, is_prefetched=False),
        7275.72,
        (5598.63, 0.21, 0, 2.24, 1670.28, 835.14),
        0.6687,
    ),
    "GPT-3": (
        lambda: language_model(96, 12288, 49152, length=2048, is_prefetched=False),
        16380.43,
        (9717.45, 0.15, 0, 1.68, 5798.15, 2899.08),
        0.7659,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_published_row_follows_from_the_equations(name: str) -> None:
    make, step_ms, totals_ms, exposed_share = ROWS[name]

    run = make()

    assert run.step == pytest.approx(step_ms, rel=1e-3)
    found = [run.totals.get(kind, 0.0) for kind in ("GEMM", "EMB", "A2A", "AR", "AG", "RS")]
    assert found == pytest.approx(totals_ms, rel=1e-3, abs=0.006)  # printed to 0.01 ms
    assert run.exposed_share == pytest.approx(exposed_share, abs=5e-4)


def test_prefetching_hides_most_of_the_gathers() -> None:
    plain = language_model(4, 8192, 21846, length=2048, is_prefetched=False)

    prefetched = language_model(4, 8192, 21846, length=2048, is_prefetched=True)

    assert prefetched.exposed_share < plain.exposed_share / 2


def test_what_the_shapes_do_not_tell_stays_unknown() -> None:
    model = BandwidthOnly(zionex(128))
    none = np.full(1, NO_TEXT, np.int32)

    costs = model.kernel_costs(
        KernelRequests(
            operator=none, signature=none, kernel=none, operators=(), signatures=(), kernels=()
        )
    )

    assert costs.source.tolist() == [Source.UNKNOWN]
    assert costs.duration_ns.tolist() == [0]


def test_an_unknown_collective_is_named() -> None:
    model = BandwidthOnly(zionex(8))
    zero = np.zeros(1, np.int32)

    with pytest.raises(MachineError, match="'gossip'"):
        model.collective_costs(
            CollectiveRequests(
                collective=zero,
                num_bytes=np.array([8], np.int64),
                dtype=zero,
                group=zero,
                collectives=("gossip",),
                dtypes=("bf16",),
                groups=((0, 1),),
            )
        )
