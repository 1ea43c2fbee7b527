"""The runs of `foretrace validate live`: one that is recorded, and those predicted from it.

This list was fixed before any of them was measured: the base alone had been timed, in one process,
to choose its sizes. Nothing is dropped from it, and nothing in it is changed afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.analyze import Selection
from foretrace.capture import TrainingSettings
from foretrace.graph import Part, Phase
from foretrace.whatif import (
    Batch,
    Delay,
    Edit,
    Layers,
    Network,
    Parallelism,
    PlanKeys,
    Widths,
)

# Two data-parallel processes of one thread each, with two microbatches.
BASE = TrainingSettings()

_SLOW_RANK = 1
_SLOW_NS = 10_000_000
_NETWORK_DELAY_NS = 20_000_000


@dataclass(frozen=True)
class Configuration:
    """One changed run: what is said to the what-if, and what the program is started with."""

    name: str
    edits: tuple[Edit, ...]
    settings: TrainingSettings


CONFIGURATIONS = (
    # World size.
    Configuration("data-1", (Parallelism(dp=1),), replace(BASE, data=1)),
    Configuration("data-4", (Parallelism(dp=4),), replace(BASE, data=4)),
    # The model.
    Configuration("layers-8", (Layers(8),), replace(BASE, layers=8)),
    Configuration("layers-2", (Layers(2),), replace(BASE, layers=2)),
    Configuration(
        "hidden-384",
        (Widths(hidden=384, feed_forward=1536, heads=12),),
        replace(BASE, hidden=384, feed_forward=1536, heads=12),
    ),
    # The batch.
    Configuration("microbatch-2", (Batch(micro_batch=2),), replace(BASE, micro_batch=2)),
    Configuration("microbatch-8", (Batch(micro_batch=8),), replace(BASE, micro_batch=8)),
    Configuration(
        "microbatches-1", (Batch(num_microbatches=1),), replace(BASE, num_microbatches=1)
    ),
    Configuration(
        "microbatches-4", (Batch(num_microbatches=4),), replace(BASE, num_microbatches=4)
    ),
    Configuration("sequence-256", (Batch(sequence=256),), replace(BASE, sequence=256)),
    # How the model is divided.
    Configuration("pipeline-2", (Parallelism(dp=1, pp=2),), replace(BASE, data=1, pipeline=2)),
    Configuration(
        "pipeline-4",
        (Parallelism(dp=1, pp=4), Batch(num_microbatches=4)),
        replace(BASE, data=1, pipeline=4, num_microbatches=4),
    ),
    Configuration("tensor-2", (Parallelism(dp=1, tp=2),), replace(BASE, data=1, tensor=2)),
    # How gradients are reduced.
    Configuration(
        "buckets-1MiB",
        (PlanKeys({"sharding.bucket_bytes": 1 << 20}),),
        replace(BASE, bucket_bytes=1 << 20),
    ),
    Configuration(
        "one-bucket",
        (PlanKeys({"sharding.bucket_bytes": 64 << 20}),),
        replace(BASE, bucket_bytes=64 << 20),
    ),
    Configuration(
        "no-overlap",
        (PlanKeys({"overlap.gradients": False}),),
        replace(BASE, overlaps_gradients=False),
    ),
    # What goes wrong.
    Configuration(
        "slow-rank",
        (
            Delay(
                _SLOW_NS,
                Selection(parts=(Part.LAYER,), phases=(Phase.FORWARD,), ranks=(_SLOW_RANK,)),
                once_per_block=True,
            ),
        ),
        replace(BASE, slow_rank=_SLOW_RANK, slow_ns=_SLOW_NS),
    ),
    Configuration(
        "slow-network",
        (Network(extra_ns=_NETWORK_DELAY_NS),),
        replace(BASE, network_delay_ns=_NETWORK_DELAY_NS),
    ),
    # Several at once.
    Configuration(
        "layers-8-pipeline-2",
        (Layers(8), Parallelism(dp=1, pp=2)),
        replace(BASE, layers=8, data=1, pipeline=2),
    ),
    Configuration("pipeline-2-data-2", (Parallelism(pp=2),), replace(BASE, pipeline=2)),
    Configuration("tensor-2-data-2", (Parallelism(tp=2),), replace(BASE, tensor=2)),
)
