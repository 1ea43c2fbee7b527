"""`HostCosts`: collectives by the host's own table; of kernels nothing is known beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Float64s, MachineError
from foretrace.capture import Row
from foretrace.cost import (
    CollectiveRequests,
    Costs,
    KernelRequests,
    Source,
    collective_named,
)
from foretrace.simulate import Cores

_FAMILY = "collectives of this host"


@dataclass(frozen=True)
class _Curve:
    """Times of one collective in groups of one size, by bytes."""

    num_bytes: Float64s  # float64[sizes], rising
    time_ns: Float64s  # float64[sizes], mean
    low_ns: Float64s  # float64[sizes], 10th percentile
    high_ns: Float64s  # float64[sizes], 90th

    def at(self, num_bytes: Float64s, column: Float64s) -> Float64s:
        """Between two sizes on the straight line in logarithms, beyond them in proportion."""
        wanted = np.maximum(num_bytes, self.num_bytes[0])
        inside = np.minimum(wanted, self.num_bytes[-1])
        found = np.exp(np.interp(np.log(inside), np.log(self.num_bytes), np.log(column)))
        return np.asarray(found * (wanted / inside))


@dataclass(frozen=True)
class HostCosts:
    """A cost model of one host; see `foretrace.cost.CostModel`."""

    rows: tuple[Row, ...]  # as `foretrace measure` writes them
    # Which the ranks of these rows shared already: what is predicted is a transfer's time alone,
    # that a simulation of shared cores makes longer again.
    cores: Cores | None = None

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """Unknown, all of them: a what-if then asks the recording itself."""
        nothing = np.zeros(len(requests), np.int64)
        return Costs(
            duration_ns=nothing,
            low_ns=nothing,
            high_ns=nothing,
            source=np.full(len(requests), Source.UNKNOWN, np.uint8),
            family=np.zeros(len(requests), np.int32),
            families=("kernels of this host",),
        )

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """By the host's table, at the size of group that was measured.

        Raises:
            MachineError: for a collective or a size of group that was not.
        """
        count = len(requests)
        found = {name: np.zeros(count) for name in ("time_ns", "low_ns", "high_ns")}
        for row in range(count):
            name = requests.collectives[requests.collective[row]]
            num_ranks = len(requests.groups[requests.group[row]])
            if num_ranks == 1:  # nothing is moved
                continue
            curve = self._curve(name, num_ranks)
            wanted = np.array([float(requests.num_bytes[row])])
            alone = self._alone(num_ranks)
            for column, values in found.items():
                values[row] = curve.at(wanted, getattr(curve, column))[0] * alone
        return Costs(
            duration_ns=np.rint(found["time_ns"]).astype(np.int64),
            low_ns=np.rint(found["low_ns"]).astype(np.int64),
            high_ns=np.rint(found["high_ns"]).astype(np.int64),
            source=np.full(count, Source.TABLE, np.uint8),
            family=np.zeros(count, np.int32),
            families=(_FAMILY,),
        )

    def _alone(self, num_ranks: int) -> float:
        """What a transfer takes alone, over what it took with those of the group's other ranks."""
        if self.cores is None:
            return 1.0
        share = self.cores.transfers
        speed = float(self.cores.speeds(np.array([max(1.0, num_ranks * share)]))[0])
        return 1.0 - share * (1.0 - speed)

    def _curve(self, name: str, num_ranks: int) -> _Curve:
        collective = collective_named(name)
        rows = [
            row
            for row in self.rows
            if collective is not None
            and row["collective"] == collective.in_tables
            and row["num_gpus"] == num_ranks
        ]
        if not rows:
            have = sorted({f"{row['collective']} of {row['num_gpus']}" for row in self.rows})
            raise MachineError(
                f"{name} of {num_ranks} ranks was not measured on this host: it has "
                f"{', '.join(have) or 'nothing'}"
            )
        sizes = np.array([float(str(row["message_bytes"])) for row in rows])
        distinct = np.unique(sizes)
        columns = [
            np.array([np.median(_column(rows, name)[sizes == size]) for size in distinct])
            for name in ("time_ns", "time_ns_p10", "time_ns_p90")
        ]
        middle, low, high = columns
        return _Curve(distinct, _mean(low, middle, high), low, high)


def _mean(low: Float64s, middle: Float64s, high: Float64s) -> Float64s:
    """The mean from the 10th, 50th and 90th percentile.

    A step adds up many transfers, so their mean counts. It is not near their median where a waiting
    thread sometimes sleeps until the next tick of the scheduler: gloo's small all-reduces between
    processes that fill all cores take 0.3 or 4 ms, and their median is either.

    Source:
        Hurst, Brown, Swanson, "Swanson's 30-40-30 rule", AAPG Bulletin 84(12), 2000.
    """
    return np.asarray(0.3 * low + 0.4 * middle + 0.3 * high)


def _column(rows: list[Row], name: str) -> Float64s:
    return np.array([float(str(row[name])) for row in rows])
