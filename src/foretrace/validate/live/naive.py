"""Naive scaling: time proportional to FLOPs over ranks, and to nothing else."""

from __future__ import annotations

from foretrace.capture import TrainingSettings

_PASSES = 3  # forward, and twice as much backward


def step_flops(settings: TrainingSettings) -> float:
    """FLOPs of one step over all ranks: products, and scores below the diagonal.

    Source:
        Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
        arXiv:2104.04473, appendix, with causal attention counted as half of the full one.
    """
    hidden, sequence = settings.hidden, settings.sequence
    weights = 4 * hidden * hidden + 2 * hidden * settings.feed_forward
    scores = sequence * hidden  # queries x keys and scores x values, each half of them
    token = settings.layers * (2 * weights + 2 * scores) + 2 * hidden * settings.vocabulary
    tokens = settings.data * settings.num_microbatches * settings.micro_batch * sequence
    return float(_PASSES * token * tokens)


def naive_step_ns(base_ns: int, base: TrainingSettings, settings: TrainingSettings) -> int:
    """The base's step times the ratio of FLOPs per rank, rounded to whole ns."""
    per_rank = [step_flops(each) / each.num_ranks for each in (base, settings)]
    return round(base_ns * per_rank[1] / per_rank[0])
