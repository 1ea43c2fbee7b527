"""Which groups cross buildings is searched: alone, and with schedule and exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from foretrace.base import NetworkUse
from foretrace.machine import Machine, load_machine
from foretrace.search import Limits, PlanSearch, SearchOptions, searched
from foretrace.search.alone import freed_in_turn
from foretrace.workload import PlanDraft
from tests.models import transformer

RANKS = 64


def buildings(folder: Path, oversubscription: float) -> Machine:
    """Two of 32."""
    path = folder / "two.toml"
    path.write_text(
        'kind = "machine"\nhost = "dgx-h100"\n'
        '[[tiers]]\nname = "host"\nkind = "scale-up"\nranks = 8\n'
        '[[tiers]]\nname = "building"\nkind = "building"\nranks = 32\nlatency = "2 us"\n'
        '[[tiers]]\nname = "region"\nkind = "region"\nranks = 64\nlatency = "2 us"\n'
        f'oversubscription = "{oversubscription}:1"\n',
        encoding="utf-8",
    )
    return load_machine(path)


def placed(machine: Machine, *vary: str, **keys: object) -> PlanSearch:
    stated = {
        "global_batch": 64, "sequence": 4096, "tp": 8, "cp": 1, "pp": 2, "micro_batch": 1,
        "schedule": "1f1b", "recompute": "full", "sharding.level": "zero1",
    }  # fmt: skip
    draft = PlanDraft().with_keys({**stated, **keys})
    return searched(
        transformer("llama3-8b"),
        draft,
        machine,
        num_ranks=RANKS,
        vary=vary,
        beside=draft.with_keys({"parallelism.order": ["tp", "cp", "pp", "dp"]}),
        network=NetworkUse.SHARED,
        options=SearchOptions(alone=True, limits=Limits(time_s=None, gap=0.0)),
    )


def test_all_at_once_is_no_worse_than_any_alone_and_each_no_worse_than_the_default(
    tmp_path: Path,
) -> None:
    found = placed(buildings(tmp_path, 40), "placement", "shard_ranks")

    steps = {one.dimension: one.best.step_ns for one in found.alone}
    assert list(steps) == ["none", "placement", "network", "all"]
    assert steps["all"] <= min(steps["placement"], steps["network"])
    assert max(steps["placement"], steps["network"]) <= steps["none"]
    assert steps["all"] < steps["none"]  # over so narrow a link
    assert found.best.step_ns == steps["all"]
    assert found.alone[0].gain_share == 0


def test_where_buildings_are_joined_as_well_as_hosts_every_placement_is_as_fast(
    tmp_path: Path,
) -> None:
    # Sends between stages come in another order of hosts, whose latencies are alike.
    found = placed(buildings(tmp_path, 1), "placement")

    assert found.alone[-1].best.step_ns == pytest.approx(found.alone[0].best.step_ns, rel=2e-3)


def test_experts_that_stand_apart_are_searched_where_a_model_has_some() -> None:
    draft = PlanDraft().with_keys(
        {"global_batch": 64, "sequence": 2048, "tp": 1, "cp": 1, "pp": 1, "ep": 4, "micro_batch": 1,
         "recompute": "full", "sharding.level": "zero3"}
    )  # fmt: skip
    found = searched(
        transformer("mixtral-8x7b"),
        draft,
        load_machine("h100-24k"),
        num_ranks=32,
        vary=("experts",),
        options=SearchOptions(alone=True, limits=Limits(time_s=None, gap=0.0)),
    )

    # Neighbours are the ranks that exchange tokens, or those that gather the same parameters.
    steps = {one.plan.expert_stride: one.step_ns for one in found.leaders}
    assert steps.keys() == {None, 8}
    assert steps[None] != steps[8]


def test_a_dimension_that_there_was_no_time_for_is_left_out_and_one_cut_short_says_so() -> None:
    default: dict[str, object] = {"tp": 1, "schedule": "1f1b", "chunks": 1, "order": "tp-dp"}
    columns = {
        0: default,
        1: {**default, "order": "dp-tp"},
        2: {**default, "schedule": "gpipe"},
        3: {**default, "tp": 2},
    }
    looked: list[list[int]] = []

    def look(plans: Sequence[int]) -> tuple[int, bool]:
        looked.append(list(plans))
        return 0, len(looked) > 1

    found = freed_in_turn(default, columns, look, is_over=lambda: len(looked) > 1)

    names = list(found)
    assert (names[0], names[-1]) == ("none", "all")
    assert len(names) == 3  # one dimension of three
    assert [one.is_cut for one in found.values()] == [False, True, True]
    assert looked == [list(one.plans) for one in found.values()]
