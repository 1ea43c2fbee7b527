"""What cannot run, or cannot be shown by a recording, is refused with what would do."""

from __future__ import annotations

import pytest

from foretrace.base import ScenarioError
from foretrace.whatif import Edit, Layers, Parallelism, PlanKeys
from tests.truth import JobConfig
from tests.whatif.rearrange.jobs import edited

CONFIG = JobConfig(tp=2, pp=2, num_layers=4, num_microbatches=4)


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ((Layers(9),), "9 layers are not whole on pp 2: 8 or 10 layers would be"),
        ((Parallelism(pp=3),), "8 layers are not whole on pp 3: 6 or 9 layers would be, or pp 2"),
        (
            (Parallelism(schedule="interleaved", chunks=3),),
            "8 layers are not whole on pp 2 x 3 chunks = 6 chunks: 6 or 12 layers would be",
        ),
        ((Parallelism(tp=3),), "tp 3 does not divide 32 heads: tp 2 would"),
        ((Parallelism(tp=32),), "tp 32 does not divide the width 5008 of the feed-forward part"),
        (
            (PlanKeys({"micro_batch": 3, "global_batch": 4}),),
            "micro_batch 3 x dp 1 = 3 sequences at once do not divide a global batch of 4: 3 or 6",
        ),
        ((Parallelism(schedule="zb-h1"),), "takes backward passes apart"),
        ((Parallelism(schedule="round"),), "no schedule is called 'round'"),
        ((Parallelism(chunks=2),), "several need the schedule 'interleaved'"),
        ((Parallelism(cp=2),), "cp 1 -> 2: the recording has no exchange of keys and values"),
        ((Parallelism(ep=2),), "ep 1 -> 2: the recording has no exchange of tokens"),
        (
            (Parallelism(schedule="interleaved", chunks=2), PlanKeys({"sharding.level": "zero2"})),
            "after which of them gradients are scattered",
        ),
        ((PlanKeys({"recompute": "selective"}),), "recompute none -> selective"),
        (
            (Parallelism(sequence_parallel=False, tp=2), PlanKeys({"contiguous": 2})),
            "contiguous is 2 with the schedule '1f1b'",
        ),
        ((PlanKeys({"sharding.ranks": 2}),), "the level 'none', which divides nothing"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(edits: tuple[Edit, ...], words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        edited(CONFIG, *edits, heads=32, feed_forward=5008)

    assert words in str(refused.value)


def test_layers_that_are_not_those_recorded_are_refused() -> None:
    with pytest.raises(ScenarioError, match="the recording shows 8 layers, and the sizes state 12"):
        edited(CONFIG, Parallelism(pp=4), layers=12)


def test_more_layers_need_layers() -> None:
    config = JobConfig(num_layers=1, num_microbatches=1)

    with pytest.raises(ScenarioError, match="no layers were found in the recording"):
        edited(config, Layers(4))


def test_gradients_are_counted_in_layers_that_were_found() -> None:
    config = JobConfig(num_layers=1, num_microbatches=1)
    with pytest.raises(ScenarioError, match="no layers were found in it that show how many"):
        edited(config, Parallelism(dp=2))
