"""`TrainingSettings`: everything that a run of the training program depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Sizes, degrees and disturbances of one run; ranks count along tp, dp, pp, tp innermost."""

    layers: int = 4  # over all stages
    hidden: int = 256
    heads: int = 8
    feed_forward: int = 1024
    vocabulary: int = 2048
    sequence: int = 128  # tokens
    micro_batch: int = 4  # sequences
    num_microbatches: int = 2  # of one step, on each data-parallel rank
    tensor: int = 1
    data: int = 2
    pipeline: int = 1
    bucket_bytes: int = 4 << 20  # of gradients that are reduced at once
    # Whether buckets are reduced beside the backward pass; else all of them after it.
    overlaps_gradients: bool = True
    slow_rank: int | None = None  # works `slow_ns` more in each layer's forward pass
    slow_ns: int = 0
    network_delay_ns: int = 0  # by which every reduction of gradients ends later
    device: str = "cpu"  # "cpu": gloo, one thread each; "cuda": NCCL, one GPU each

    @property
    def num_ranks(self) -> int:
        """Processes of the job."""
        return self.tensor * self.data * self.pipeline
