"""The pieces of new jobs, in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from foretrace.base import CollectiveKind, ScenarioError
from foretrace.whatif import Batch, Edit, Layers, Parallelism, PlanKeys, Widths
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.rearrange.new_exchanges import Maker
from foretrace.whatif.rearrange.new_units import Composer
from foretrace.whatif.rearrange.recorded_parameters import weights_of
from foretrace.whatif.rearrange.structure import seats, structure_of
from foretrace.whatif.rearrange.tensor import TensorExchanges
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import MadeExchange, MadeWait, NewJob, Placed, RecordedPiece
from foretrace.workload import Group, Pass
from tests.acceptance.edited_jobs import job
from tests.truth import JobConfig
from tests.whatif.rearrange.jobs import edited, new_job, program_under, read_job, shown

ONE = JobConfig(num_layers=2, num_microbatches=2)
STAGES = JobConfig(dp=2, pp=2, num_layers=2, num_microbatches=3)
SHAPES = job(tp=1, dp=1, pp=1, layers=2, microbatches=1)  # with shapes that say which is which


def made(new: NewJob, rank: int = 0, step: int = 1) -> list[Placed]:
    """What no recording has, in a step."""
    return [
        each
        for each in new.ranks[rank].placed
        if each.step == step and not isinstance(each.piece, RecordedPiece)
    ]


def exchanges(new: NewJob, rank: int = 0) -> list[MadeExchange]:
    """Exchanges among them."""
    return [each.piece for each in made(new, rank) if isinstance(each.piece, MadeExchange)]


def flat(new: NewJob) -> list[tuple[object, ...]]:
    """All that a new job is, as values that compare."""
    return [
        (
            rank.rank,
            rank.source_rank,
            each.step,
            each.layer,
            each.microbatch,
            each.scale,
            each.scale_bytes,
            each.piece.nodes.tobytes() if isinstance(each.piece, RecordedPiece) else each.piece,
        )
        for rank in new.ranks
        for each in rank.placed
    ]


def test_more_layers_stand_in_both_passes() -> None:
    rank = new_job(ONE, Layers(3)).ranks[0]

    assert shown(rank)[3:] == [
        "F0 embedding", "F0 layer 0", "F0 layer 1", "F0 layer 2", "F0 loss",
        "B0 layer", "B0 layer 2", "B0 layer 1", "B0 layer 0", "B0 embedding", "F0 embedding",
        "F1 embedding", "F1 layer 0", "F1 layer 1", "F1 layer 2", "F1 loss",
        "B1 layer", "B1 layer 2", "B1 layer 1", "B1 layer 0", "B1 embedding", "O optimizer",
        "O optimizer",
        "unknown",
    ]  # fmt: skip


def test_the_optimizer_grows_with_the_layers() -> None:
    rank = new_job(ONE, Layers(6)).ranks[0]

    scales = {each.scale for each in rank.placed if each.part.name == "OPTIMIZER"}
    assert 3.0 in scales


def test_more_microbatches_reduce_gradients_once() -> None:
    rank = new_job(STAGES, Batch(num_microbatches=5)).ranks[0]

    words = [each for each in shown(rank) if "bucket" in each or "transfer" in each]
    assert [each for each in words if each.startswith("F")] == [
        f"F{index} transfer" for index in range(5)
    ]
    assert [each for each in words if "bucket" in each] == [
        "B4 bucket 1",
        "B4 bucket 0",
        "B bucket",
    ]


def test_from_one_microbatch_only_the_last_reduces() -> None:
    config = JobConfig(dp=2, num_layers=2, num_microbatches=1)

    rank = new_job(config, Batch(num_microbatches=3)).ranks[0]

    assert [each for each in shown(rank) if "bucket" in each] == [
        "B2 bucket 1",
        "B2 bucket 0",
        "B bucket",
    ]


def test_new_stages_receive_and_send_as_recorded_ones_do() -> None:
    new = new_job(STAGES, Parallelism(pp=4))

    assert [rank.coordinates.pipeline for rank in new.ranks] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert new.layers_of_stage == ((0,), (1,), (2,), (3,))
    middle = [each for each in shown(new.ranks[2]) if each[0] in "FB"]
    assert middle[:3] == ["F0 transfer", "F0 layer 1", "F0 transfer"]
    assert "embedding" not in " ".join(middle[:6])
    assert not made(new, 2)


def test_one_stage_neither_receives_nor_sends() -> None:
    new = new_job(STAGES, Parallelism(pp=1))

    words = shown(new.ranks[0])
    assert words[3:10] == [
        *("F0 embedding", "F0 layer 0", "F0 layer 1", "F0 layer 2", "F0 layer 3", "F0 loss"),
        "B0 layer",
    ]
    assert not [each for each in words if each.endswith("transfer") and each.startswith("F")]


def test_stages_of_a_job_that_had_one_exchange_activations() -> None:
    new = read_job(SHAPES, Parallelism(pp=2))

    first, last = exchanges(new, 0), exchanges(new, 1)
    assert [each.collective for each in first] == ["send", "recv"]
    assert [each.collective for each in last] == ["recv", "send"]
    assert {each.num_bytes for each in (*first, *last)} == {1024 * 4096 * 2}
    assert [each.is_awaited for each in first] == [False, True]


def test_an_unknown_hidden_size_is_asked_for() -> None:
    with pytest.raises(ScenarioError, match="no hidden size: state it"):
        new_job(ONE, Parallelism(pp=2))


def test_ranks_that_had_no_copies_reduce_what_their_products_hold() -> None:
    new = read_job(SHAPES, Parallelism(dp=2), PlanKeys({"bucket_bytes": 400_000_000}))

    found = exchanges(new)
    layer_numbers = 12 * 4096 * 4096  # qkv, output, up, down
    assert {each.collective for each in found} == {CollectiveKind.ALL_REDUCE}
    assert sum(each.num_bytes for each in found) == 2 * layer_numbers * 4
    assert max(each.num_bytes for each in found) <= 400_000_000
    assert isinstance(made(new)[-1].piece, MadeWait)


def test_one_copy_reduces_nothing() -> None:
    new = new_job(STAGES, Parallelism(dp=1))

    assert len(new.ranks) == 2
    assert "bucket" not in " ".join(shown(new.ranks[0]))


def test_copies_beyond_the_recorded_ones_are_named_not_simulated() -> None:
    new = new_job(STAGES, Parallelism(dp=16))

    assert len(new.ranks) == 4
    assert [rank.rank for rank in new.ranks] == [0, 1, 16, 17]
    assert "2 of dp 16 copies simulated: the others do the same at the same time" in new.notes


def test_tensor_ranks_sum_behind_row_products_and_before_column_gradients() -> None:
    new = read_job(SHAPES, Parallelism(tp=2))

    found = [each for each in made(new) if each.layer == 0]
    assert [(each.phase.name, type(each.piece).__name__) for each in found] == [
        ("FORWARD", "MadeExchange"),
        ("FORWARD", "MadeExchange"),
        ("BACKWARD", "MadeExchange"),
        ("BACKWARD", "MadeWait"),
        ("BACKWARD", "MadeExchange"),
        ("BACKWARD", "MadeWait"),
    ]
    assert {each.group for each in exchanges(new)} == {Group.TENSOR}


def test_sequence_parallel_ranks_gather_and_scatter() -> None:
    new = read_job(SHAPES, Parallelism(tp=2, sequence_parallel=True))

    forward = [
        each.piece.collective
        for each in made(new)
        if each.layer == 0 and each.phase.name == "FORWARD" and isinstance(each.piece, MadeExchange)
    ]
    assert forward == [
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
    ]


def test_no_node_is_lost_where_exchanges_are_put_between() -> None:
    plain = read_job(SHAPES, Parallelism(dp=2)).ranks[0]
    new = read_job(SHAPES, Parallelism(tp=2, sequence_parallel=True)).ranks[0]

    def nodes(placed: tuple[Placed, ...]) -> list[int]:
        pieces = [each.piece for each in placed]
        return [
            node
            for piece in pieces
            if isinstance(piece, RecordedPiece)
            for node in piece.nodes.tolist()
        ]

    assert nodes(new.placed) == nodes(plain.placed)


def test_divided_states_are_scattered_and_gathered() -> None:
    config = JobConfig(dp=4, num_layers=2, num_microbatches=1)

    new = new_job(config, PlanKeys({"sharding.level": "zero1"}))

    names = [each.collective for each in exchanges(new)]
    assert names == [
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.ALL_GATHER,
    ]
    scattered, gathered = exchanges(new)[:2], exchanges(new)[2:]
    # Gradients in 32 bits, parameters in 16; gathered in the order of the next forward pass.
    assert [each.num_bytes for each in gathered] == [
        each.num_bytes // 2 for each in reversed(scattered)
    ]
    update = [
        each for each in new.ranks[0].placed if each.part.name == "OPTIMIZER" and each.step == 1
    ]
    assert update[-1].scale == 0.25


def test_gradients_without_overlap_are_reduced_behind_all_layers() -> None:
    config = JobConfig(dp=2, num_layers=3, num_microbatches=1)

    rank = new_job(config, PlanKeys({"overlap.gradients": False})).ranks[0]

    words = [each for each in shown(rank) if each.startswith("B")]
    assert words.index("B0 bucket 2") > words.index("B0 layer 0")


def test_layers_are_computed_again_by_the_thread_that_goes_back() -> None:
    new = new_job(ONE, PlanKeys({"recompute": "full"}))

    words = shown(new.ranks[0])
    assert words[words.index("B0 layer 1") - 1] == "R0 layer 1"
    again = [each for each in new.ranks[0].placed if each.phase.name == "RECOMPUTE"]
    assert {each.thread for each in again} != {-1}


@pytest.mark.parametrize(
    "edits",
    [
        (Layers(8), Parallelism(dp=4)),
        (Parallelism(pp=4), Batch(num_microbatches=6)),
        (Layers(8), PlanKeys({"recompute": "full"})),
    ],
    ids=str,
)
def test_edits_of_different_things_commute(edits: tuple[Edit, Edit]) -> None:
    there, back = new_job(STAGES, *edits), new_job(STAGES, *reversed(edits))

    assert flat(there) == flat(back)


@pytest.mark.parametrize(
    "edits",
    [
        (Layers(8), Layers(4)),
        (Parallelism(dp=8, pp=4), Parallelism(dp=2, pp=2)),
        (Batch(num_microbatches=6), Batch(num_microbatches=3)),
        (Widths(hidden=8192),),
        (Batch(micro_batch=2),),
    ],
    ids=str,
)
def test_what_changes_no_structure_rearranges_nothing(edits: tuple[Edit, ...]) -> None:
    assert edited(STAGES, *edits) is None


def test_sums_become_gathers_and_scatters_where_tokens_are_divided() -> None:
    config = job(tp=2, dp=1, pp=1, layers=2, microbatches=1)

    new = read_job(config, Parallelism(sequence_parallel=True))

    graph = program_under(config).graph
    gone = [graph.collectives[index] for index in sorted(new.gone)]
    assert {each.name for each in gone} == {"allreduce"}
    assert len(gone) == 2 * 4 * len(graph.step_names)  # layers, exchanges of each, by step
    names = [each.collective for each in exchanges(new)]
    # Forward two of each a layer; backward inputs are gathered once more for the weights.
    assert names.count(CollectiveKind.REDUCE_SCATTER) == 2 * 4
    assert names.count(CollectiveKind.ALL_GATHER) == 2 * 6


def test_a_divided_vocabulary_is_summed_behind_embedding_and_loss() -> None:
    program = program_under(SHAPES)
    before = base_scenario(program)
    after = Parallelism(tp=2).applied(before)
    unit_index = UnitIndex(program)
    maker = Maker.of(unit_index, after, weights_of(unit_index, before))
    composer = Composer(unit_index, structure_of(unit_index, before, after), num_recorded=1)
    (seat,) = seats(unit_index, after.plan)
    unit = composer.unit(seat, 0, (Pass.FORWARD, 0, 0))

    exchanging = TensorExchanges(unit_index, before, after, maker, divides_vocabulary=True)
    found = [each.placed for each in exchanging.through(unit).work]

    words = [f"{each.part.name} {type(each.piece).__name__}" for each in found if each.layer < 0]
    assert words == [
        "EMBEDDING RecordedPiece",
        "EMBEDDING MadeExchange",
        *["LOSS MadeExchange"] * 3,
        "LOSS RecordedPiece",
    ]


def test_buckets_that_are_put_off_stay_as_large_as_they_were() -> None:
    config = JobConfig(dp=2, num_layers=4, num_microbatches=1, layers_per_bucket=3)

    placed = new_job(config, PlanKeys({"overlap.gradients": False})).ranks[0].placed

    buckets = [each for each in placed if each.step == 1 and each.part.name == "BUCKET"]
    assert {each.scale_bytes for each in buckets} == {1.0}


def test_half_buckets_are_twice_as_many() -> None:
    config = JobConfig(dp=2, num_layers=4, num_microbatches=1, layers_per_bucket=2)

    placed = new_job(config, PlanKeys({"bucket_bytes": 50_000_000})).ranks[0].placed

    words = [
        (each.layer, each.scale_bytes)
        for each in placed
        if each.step == 1 and each.part.name == "BUCKET" and each.layer >= 0
    ]
    assert words == [(3, 0.5), (2, 0.5), (1, 0.5), (0, 0.5)]


def test_what_is_left_for_the_last_bucket_is_no_scrap() -> None:
    config = JobConfig(dp=2, num_layers=4, num_microbatches=1, layers_per_bucket=2)

    # 1.97 layers fill one: two of them are almost all there is.
    placed = new_job(config, PlanKeys({"bucket_bytes": 98_500_000})).ranks[0].placed

    sizes = [
        each.scale_bytes
        for each in placed
        if each.step == 1 and each.part.name == "BUCKET" and each.scale_bytes != 1
    ]
    assert len([each for each in sizes if each < 0.2]) == 0


def test_larger_buckets_are_as_large_as_is_stated_and_issued_as_those_that_were_there() -> None:
    config = JobConfig(dp=2, num_layers=6, num_microbatches=1, merged_buckets=(0, 1))

    new = new_job(config, PlanKeys({"bucket_bytes": 150_000_000}))

    def buckets(placed: Sequence[Placed]) -> list[Placed]:
        return [each for each in placed if each.step == 1 and each.part.name == "BUCKET"]

    issued = buckets(new.ranks[0].placed)[:2]
    assert [each.layer for each in issued] == [3, 0]
    # Of 100 and four of 50 MB, the second and the last were issued where these are.
    assert [each.scale_bytes for each in issued] == [3, 3]
