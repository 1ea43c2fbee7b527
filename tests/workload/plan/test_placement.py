from __future__ import annotations

import pytest
from hypothesis import given

from foretrace.base import WorkloadError
from foretrace.machine import Machine, load_machine
from foretrace.workload import Axis, Group, Plan, describe_placement, groups_of, load_plan
from tests.workload.plan.plans import plans

MACHINE = load_machine("llama3-24k")


def spanned(plan: Plan, machine: Machine, group: Group) -> list[str]:
    """The machine's own answer, group by group."""
    used = {
        tier.name for row in groups_of(plan, group).tolist() for tier in machine.tiers_spanned(row)
    }
    return [tier.name for tier in machine.tiers if tier.name in used]


@given(plans())
def test_groups_use_the_tiers_that_the_machine_says(plan: Plan) -> None:
    placement = describe_placement(plan, MACHINE)

    for span in placement.spans:
        assert list(span.tiers) == spanned(plan, MACHINE, span.group)
        assert sum(span.num_by_outermost.values()) == span.num_groups
        assert span.size > 1


def test_llama_3_keeps_tensor_ranks_in_a_host_and_crosses_pods_with_data_alone() -> None:
    plan = load_plan("llama3-405b-8k-16k-gpus").plan()

    found = {span.group: span for span in describe_placement(plan, MACHINE).spans}

    assert found[Group.TENSOR].num_by_outermost == {"host": 2048}
    # A pipeline's 16 stages are 8 ranks apart: 128 places, within a pod of 3,072.
    assert found[Group.PIPELINE].num_by_outermost == {"pod": 1024}
    assert found[Group.DATA].num_by_outermost == {"cluster": 128}


def test_the_order_of_axes_decides_which_group_crosses_what() -> None:
    inner = Plan(data=8, pipeline=8, order=(Axis.DATA, Axis.PIPELINE, Axis.TENSOR, Axis.CONTEXT))
    outer = Plan(data=8, pipeline=8, order=(Axis.PIPELINE, Axis.DATA, Axis.TENSOR, Axis.CONTEXT))

    tiers = [
        {span.group: span.tiers for span in describe_placement(plan, MACHINE).spans}
        for plan in (inner, outer)
    ]

    assert tiers[0][Group.DATA] == tiers[1][Group.PIPELINE] == ("host",)
    assert tiers[0][Group.PIPELINE] == tiers[1][Group.DATA] == ("rack", "pod")


def test_a_placement_becomes_a_table_and_plain_values() -> None:
    placement = describe_placement(Plan(tensor=8, data=2), MACHINE)

    frame = placement.to_polars()
    tensor = frame.filter(group="tp").row(0, named=True)
    assert tensor == {
        "group": "tp",
        "size": 8,
        "num_groups": 2,
        "tiers": "host",
        "outermost": "2 host",
    }
    plain = placement.as_json()
    assert plain["machine"] == "llama3-24k"
    spans = plain["spans"]
    assert isinstance(spans, list)
    assert [span["group"] for span in spans] == frame["group"].to_list()


def test_a_machine_that_is_too_small_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"32,768 ranks, and machine 'llama3-24k' 24,576"):
        describe_placement(Plan(data=32768), MACHINE)
