"""Plans near one that does not fit, and that do; chips that are meant where nobody says."""

from __future__ import annotations

from itertools import product

import pytest

from foretrace import estimate
from foretrace.base import MachineError, WorkloadError
from foretrace.estimate import nearest_plans, ranks_meant
from foretrace.machine import load_machine, with_hosts
from foretrace.workload import (
    Plan,
    PlanDraft,
    Recompute,
    Sharding,
    Transformer,
    check_plan,
    footprint,
    schedule_of,
    with_fields,
)
from tests.models import transformer

HOST = load_machine("dgx-h100")


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("llama3-70b", Plan(tensor=8, global_batch=16, sequence=8192)),
        ("llama3-8b", Plan(data=8, global_batch=64, micro_batch=8, sequence=8192)),
        ("mixtral-8x7b", Plan(data=8, expert=8, global_batch=64, sequence=4096)),
    ],
)
def test_nearest_plans_fit_and_are_the_fewest_changes(name: str, plan: Plan) -> None:
    model, chip = transformer(name), HOST.chip
    capacity = footprint(model, plan, schedule_of(plan), chip=chip).capacity
    assert capacity is not None
    found = nearest_plans(model, plan, chip=chip, most_ranks=64, capacity=capacity)

    assert found
    assert all(one.peak_bytes <= capacity for one in found)
    first = found[0]
    counted = [one for one in first.changes if one.key != "parallelism.dp"]
    fewest = len(counted) or 1
    if fewest == 1:
        return
    # With one change fewer nothing fits: tried one by one, by the memory of each plan alone.
    for axis, factor in product(("tensor", "pipeline", "context", "data"), (2, 4, 8)):
        near = with_fields(plan, {axis: getattr(plan, axis) * factor})
        assert near.num_ranks > 64 or not fits(model, near, capacity)
    for field, value in _kinds():
        assert not fits(model, with_fields(plan, {field: value}), capacity)


def _kinds() -> list[tuple[str, str | int]]:
    return [
        *(("sharding", one) for one in Sharding),
        *(("recompute", one) for one in Recompute),
        ("micro_batch", 1),
    ]


def fits(model: Transformer, plan: Plan, capacity: int) -> bool:
    try:
        check_plan(plan, model)
    except WorkloadError:
        return False
    return footprint(model, plan, schedule_of(plan), chip=HOST.chip).peak.total <= capacity


def test_an_estimate_that_does_not_fit_names_them() -> None:
    keys = {"global_batch": 16, "tp": 8, "dp": 1, "sharding.level": "none", "recompute": "none"}
    found = estimate("llama3-70b", {**keys, "micro_batch": 1, "sequence": 4096}, "superpod-h100")

    assert found.nearest
    assert "nearest plans that fit" in str(found)
    told = found.as_json()["nearest"]
    assert isinstance(told, list)
    assert {"changes", "num_ranks", "peak_bytes"} <= set(told[0])


def test_one_that_fits_says_nothing_of_others() -> None:
    found = estimate("llama3.2-1b", {"global_batch": 8, "sequence": 512}, "dgx-h100")

    assert found.nearest is None
    assert "nearest" not in found.as_json()


def test_where_nothing_near_fits_that_is_said() -> None:
    model = transformer("llama3-405b")
    plan = Plan(global_batch=8, sequence=8192)

    found = nearest_plans(model, plan, chip=HOST.chip, most_ranks=1, capacity=80 * 2**30)

    assert found == ()


def test_chips_of_a_lone_host_are_all_meant() -> None:
    assert ranks_meant(PlanDraft(), HOST) == 8
    assert ranks_meant(PlanDraft({"tensor": 4}), HOST) == 8
    assert ranks_meant(PlanDraft({"pipeline": 3}), HOST) == 6
    assert ranks_meant(PlanDraft({"tensor": 8, "pipeline": 4}), HOST) == 32
    assert ranks_meant(PlanDraft({"data": 2}), HOST) is None
    assert ranks_meant(PlanDraft(), HOST, 2) == 2
    assert ranks_meant(PlanDraft(), load_machine("superpod-h100")) is None


def test_a_host_grows_to_hosts_that_its_cards_join() -> None:
    grown = with_hosts(HOST, 60)

    assert grown.num_ranks == 64
    assert grown.name == "8 x dgx-h100"
    assert grown.tiers[0] == HOST.tiers[0]
    assert grown.tiers[1].bytes_per_ns == HOST.host.network_bytes_per_ns
    assert with_hosts(HOST, 8) is HOST
    for name, ranks in (("superpod-h100", 2048), ("l40s-server", 16)):
        with pytest.raises(MachineError, match="take a larger machine or fewer ranks"):
            with_hosts(load_machine(name), ranks)


def test_an_estimate_on_more_chips_than_a_host_has_says_how_hosts_are_joined() -> None:
    keys = {"global_batch": 16, "sequence": 512, "micro_batch": 1, "recompute": "none"}
    found = estimate("llama3.2-1b", keys, "dgx-h100", num_ranks=16)

    assert found.plan.num_ranks == 16
    assert any("joined by their own cards" in note for note in found.notes)
