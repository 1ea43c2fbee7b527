from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.machine import Tier, TierKind, load_machine
from foretrace.machine.tiers import tiers_spanned


def tier(name: str, num_ranks: int, *, oversubscription: float = 1.0) -> Tier:
    return Tier(
        name=name,
        kind=TierKind.POD,
        technology="",
        num_ranks=num_ranks,
        bytes_per_ns=50.0,
        oversubscription=oversubscription,
        latency_ns=None,
        num_rails=None,
    )


TIERS = (tier("host", 4), tier("rack", 8), tier("pod", 24, oversubscription=3.0))


def names(ranks: list[int], placement: list[int] | None = None) -> list[str]:
    return [each.name for each in tiers_spanned(TIERS, ranks, placement)]


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([5], []),
        ([0, 1], ["host"]),
        ([3, 4], ["rack"]),
        ([0, 4], ["rack"]),
        ([0, 1, 4, 5], ["host", "rack"]),
        ([0, 8], ["pod"]),
        ([0, 1, 8], ["host", "pod"]),
        (list(range(24)), ["host", "rack", "pod"]),
    ],
)
def test_a_group_uses_the_tiers_between_its_members(ranks: list[int], expected: list[str]) -> None:
    assert names(ranks) == expected


@given(
    ranks=st.lists(st.integers(0, 47), min_size=1, max_size=12, unique=True),
    factors=st.lists(st.integers(2, 4), min_size=1, max_size=4),
)
def test_a_tier_is_spanned_if_it_is_the_innermost_that_some_pair_shares(
    ranks: list[int], factors: list[int]
) -> None:
    size, tiers = 1, []
    for index, factor in enumerate(factors):
        size *= factor
        tiers.append(tier(str(index), size))
    tiers.append(tier("all", size * 48))
    innermost = {
        next(each.name for each in tiers if one // each.num_ranks == two // each.num_ranks)
        for one, two in combinations(ranks, 2)
    }

    found = tiers_spanned(tiers, ranks)

    assert [each.name for each in found] == [e.name for e in tiers if e.name in innermost]


def test_a_placement_moves_ranks() -> None:
    assert names([0, 1], [0, 8]) == ["pod"]
    assert names([0, 1], [8, 9]) == ["host"]


@pytest.mark.parametrize(
    ("ranks", "placement", "said"),
    [
        ([0, 24], None, "outside the machine"),
        ([-1, 0], None, "outside the machine"),
        ([0, 2], [0, 1], "rank 2 has no place"),
        ([0, 1], [3, 3], "same place"),
    ],
)
def test_a_rank_without_a_place_is_a_wrong_argument(
    ranks: list[int], placement: list[int] | None, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        tiers_spanned(TIERS, ranks, placement)


def test_oversubscription_leaves_each_rank_its_share() -> None:
    assert TIERS[2].shared_bytes_per_ns == pytest.approx(50.0 / 3)


def test_a_group_of_one_spans_nothing_and_sends_nothing() -> None:
    machine = load_machine("dgx-h100")

    assert machine.tier_of_group([3]) is None
    with pytest.raises(ValueError, match="sends nothing"):
        machine.group_bytes_per_ns([3])


def test_a_group_is_as_fast_as_the_narrowest_tier_it_spans() -> None:
    machine = load_machine("llama3-24k")

    outermost = machine.tier_of_group([0, 1, 8])

    assert outermost is not None
    assert outermost.name == "rack"
    assert machine.group_bytes_per_ns([0, 1, 8]) == pytest.approx(50.0)
