from __future__ import annotations

from dataclasses import replace

from foretrace.analyze import Cause, diagnosis, hang
from foretrace.graph import Begun, Ending, NodeKind, Recording, Unmatched
from foretrace.simulate import simulate
from tests.graphs import GraphBuilder, recording_of


def ending(rank: int, *, is_cut_off: bool = False, at_ns: int = 1_000) -> Ending:
    return Ending(rank, at_ns, "aten::topk", ("forward", "sample"), is_cut_off=is_cut_off)


def unmatched(
    group: str,
    position: int,
    begun: dict[int, str],
    missing: tuple[int, ...],
    *,
    ended: tuple[int, ...] | None = None,
    called_ns: int = 100,
) -> Unmatched:
    """A place at which some ranks wait, their operations open."""
    return Unmatched(
        name=next(iter(begun.values())),
        group=group,
        position=position,
        num_bytes=8,
        ranks=tuple(begun),
        missing_ranks=missing,
        begun=tuple(
            Begun(rank, name, 8, is_open=True, called_ns=called_ns) for rank, name in begun.items()
        ),
        ended_ranks=missing if ended is None else ended,
    )


def recording(*places: Unmatched, ranks: int = 3, cut_off: tuple[int, ...] = ()) -> Recording:
    """Ranks that met once in each of two groups, and then stopped."""
    build = GraphBuilder()
    kernel = {
        rank: build.add(NodeKind.KERNEL, rank=rank, lane="stream 7", takes_ns=5)
        for rank in range(ranks)
    }
    build.collective({rank: [node] for rank, node in kernel.items()}, transfer_ns=5, group="a")
    graph = build.graph()
    return replace(
        recording_of(graph, simulate(graph)),
        unmatched=places,
        endings=tuple(ending(rank, is_cut_off=rank in cut_off) for rank in range(ranks)),
    )


def test_the_missing_rank_is_named_with_where_it_was_last() -> None:
    found = hang(recording(unmatched("a", 1, {0: "allreduce", 1: "allreduce"}, (2,))))

    assert found.is_hung
    assert found.sentence == (
        "ranks 0 and 1 wait in allreduce number 1 of group 'a', which rank 2 never began. "
        "rank 2 was last at aten::topk inside sample; its last there was allreduce number 0"
    )
    assert [each.rank for each in found.culprits] == [2]
    assert found.to_polars().height == 1
    assert found.as_json()["sentence"] == found.sentence


def test_who_waits_for_a_waiting_rank_is_not_sent_after_it() -> None:
    # rank 0 waits for rank 1, which waits for rank 2, which waits for nobody
    found = hang(
        recording(
            unmatched("b", 4, {0: "allgather"}, (1,), called_ns=50),
            unmatched("a", 1, {1: "allreduce"}, (2,), called_ns=90),
        )
    )

    assert found.is_hung
    assert [each.rank for each in found.culprits] == [2]
    assert found.stuck[0].group == "a"
    assert found.deadlock == ()


def test_ranks_that_wait_for_each_other_in_two_groups_are_a_deadlock() -> None:
    found = hang(
        recording(
            unmatched("a", 1, {0: "allreduce"}, (1,)),
            unmatched("b", 2, {1: "broadcast"}, (0,)),
        )
    )

    assert found.is_hung
    assert found.deadlock == (0, 1)
    assert found.culprits == ()
    assert found.sentence.startswith(
        "deadlock across groups: rank 0 waits for rank 1, which waits for rank 0: "
    )
    assert "rank 1 waits in broadcast number 2 of group 'b'" in found.sentence


def test_ranks_that_begin_different_things_at_one_place_are_named_with_both() -> None:
    found = hang(recording(unmatched("a", 1, {0: "allreduce", 1: "broadcast"}, ())))

    assert found.is_hung
    assert found.sentence == (
        "the members of group 'a' differ at number 1: rank 0 began allreduce of 8 bytes; "
        "rank 1 began broadcast of 8 bytes"
    )


def test_of_several_places_the_first_in_the_program_is_the_root() -> None:
    early = unmatched("z", 7, {0: "allreduce"}, (2,), called_ns=40)
    late = unmatched("a", 1, {0: "allreduce", 1: "allreduce"}, (2,), called_ns=60)

    found = hang(recording(late, early))

    assert found.is_hung
    assert found.stuck[0].group == "z"


def test_a_receive_posted_early_is_not_taken_for_the_root() -> None:
    posted = unmatched("pair", 3, {1: "recv"}, (2,), called_ns=10)
    reduction = unmatched("a", 1, {0: "allreduce"}, (2,), called_ns=60)

    found = hang(recording(posted, reduction))

    assert found.is_hung
    assert found.stuck[0].group == "a"


def test_an_operation_lost_in_the_middle_is_no_hang() -> None:
    lost = unmatched("a", 1, {0: "allreduce"}, (1,), ended=())

    assert not hang(recording(lost)).is_hung


def test_a_file_that_was_cut_off_is_no_hang() -> None:
    place = unmatched("a", 1, {0: "allreduce"}, (1,))

    assert not hang(recording(place, cut_off=(1,))).is_hung


def test_a_hang_comes_first_in_a_diagnosis_of_a_recording() -> None:
    place = unmatched("a", 1, {0: "allreduce", 1: "allreduce"}, (2,))

    first = diagnosis(recording(place)).causes[0]

    assert isinstance(first, Cause)
    assert (first.topic, first.rank, first.cause, first.subject) == ("hang", 2, None, "allreduce")
