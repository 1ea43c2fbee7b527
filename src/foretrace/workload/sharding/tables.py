"""`TableSharding`: how embedding tables are divided among ranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from foretrace.workload.sharding.access import EVEN_IDS


class TableScheme(StrEnum):
    """How one table lies on ranks.

    Source:
        Mudigere et al., "Software-Hardware Co-design for Fast and Scalable Training of Deep
        Learning Recommendation Models", arXiv:2104.05158; names as TorchRec has them.
    """

    TABLE = "table-wise"  # whole, on one rank
    ROW = "row-wise"  # rows divided among all ranks
    COLUMN = "column-wise"  # columns cut into pieces, each on one rank
    TABLE_ROW = "table-row-wise"  # on one host, rows divided among its ranks
    DATA = "data-parallel"  # whole, on every rank; its gradients are all-reduced


class Balance(StrEnum):
    """How pieces are dealt to ranks so that none has much more work than others.

    Source:
        Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17(2), 1969
        (greedy, longest first); Karmarkar and Karp, "The Differencing Method of Set
        Partitioning", UC Berkeley technical report CSD-82-113, 1982.
    """

    GREEDY = "greedy"
    DIFFERENCING = "differencing"


class TableOptimizer(StrEnum):
    """What is kept beside a table to update it; the update is part of the backward pass."""

    SGD = "sgd"  # nothing
    ROW_WISE_ADAGRAD = "row-wise-adagrad"  # one 32-bit number a row
    ADAGRAD = "adagrad"  # one 32-bit number for each of the table's


class MemoryTier(StrEnum):
    """Where the rows of a table are; of those that are not in HBM a part is cached there.

    Source:
        pytorch/torchrec, torchrec/distributed/embedding_types.py, `EmbeddingComputeKernel`.
    """

    HBM = "hbm"  # of the rank's chip
    HOST = "host"  # memory of the host, read over the chip's link to it
    SSD = "ssd"  # disks of the host


class TablePlace(NamedTuple):
    """Where one table stands."""

    table: int  # counted from 0
    scheme: TableScheme
    # Of a table: its rank; of columns: the rank of each piece, all as wide; of rows in a host: the
    # host's first rank; of what every rank has a part of: none.
    ranks: tuple[int, ...] = ()
    tier: MemoryTier = MemoryTier.HBM
    cached: float = 1.0  # share of the rows, the most used, that HBM has


@dataclass(frozen=True, kw_only=True)
class TableSharding:
    """How all tables of a model are divided among the ranks of a job."""

    scheme: TableScheme = TableScheme.TABLE
    exceptions: tuple[tuple[int, TableScheme], ...] = ()  # table, counted from 0, and its scheme
    data_parallel_rows: int = 0  # tables of at most so many rows stand on every rank
    # Columns of one piece of a table cut by columns: TorchRec's least, planner/constants.py.
    column_width: int = 128
    balance: Balance = Balance.GREEDY
    # Lookups of a sample in any one table that placement reckons with, as TorchRec's planner
    # does with 1 where nobody tells it; `None`: those of the model.
    assumed_pooling: float | None = None
    optimizer: TableOptimizer = TableOptimizer.ROW_WISE_ADAGRAD
    number_format: str = "fp32"  # of tables and of what is pooled from them
    id_bytes: int = 8
    # How often rows are looked up: even, zipf:EXPONENT, or a file of counts (`access_laws`).
    ids: str = EVEN_IDS
    # Where every table stands, in order of tables; then schemes and balance above decide nothing.
    places: tuple[TablePlace, ...] = ()
    capacity_bytes: int | None = None  # of one rank, for tables and their optimizer
    # Ids of the next batch are sent beside this one's backward pass, as TorchRec's
    # TrainPipelineSparseDist does; else before the lookup that needs them.
    sends_ids_ahead: bool = True

    @property
    def divides_rows_in_hosts(self) -> bool:
        """Whether ranks of one host divide the rows of some table."""
        schemes = [scheme for _, scheme in self.exceptions] + [one.scheme for one in self.places]
        return TableScheme.TABLE_ROW in {self.scheme, *schemes}
