from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.analyze import windows
from foretrace.base import MachineError, WorkloadError
from foretrace.estimate import Estimate, estimate, unit_step, unmodelled_of
from foretrace.graph import verify
from foretrace.machine import load_machine
from foretrace.software import software_called
from foretrace.workload import Convention, Implementation, Plan, Recompute, Sharding, load_model

MODEL, MACHINE = load_model("llama3.2-1b"), load_machine("dgx-h100")
SMALL = Plan(tensor=2, pipeline=2, data=2, global_batch=8, sequence=512, sequence_parallel=True)


@pytest.fixture(scope="module")
def found() -> Estimate:
    return estimate(MODEL, SMALL, MACHINE, price_per_hour=2.0)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of at most eight ranks."""
    tensor, pipeline, data = draw(
        st.sampled_from([(1, 1, 1), (2, 1, 4), (1, 2, 4), (2, 2, 2), (1, 4, 2), (4, 2, 1)])
    )
    sharding = draw(st.sampled_from(list(Sharding))) if data > 1 else Sharding.NONE
    return Plan(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        global_batch=data * pipeline * draw(st.integers(1, 2)),
        sequence=256,
        sequence_parallel=tensor > 1 and draw(st.booleans()),
        sharding=sharding,
        recompute=draw(st.sampled_from(list(Recompute))),
        schedule=draw(st.sampled_from(["1f1b", "gpipe"])) if pipeline > 1 else "1f1b",
    )


@settings(max_examples=12)
@given(plans())
def test_parts_of_every_rank_sum_to_the_step(plan: Plan) -> None:
    found = estimate(MODEL, plan, MACHINE)
    verify(found.graph)

    for row in found.where.rows:
        assert row.parts.total_ns == found.step_ns
        assert min(row.parts.by_name().values()) >= 0
    assert found.where.mean.total_ns == found.step_ns
    assert sum(row.num_ranks for row in found.where.rows) == plan.num_ranks


@settings(max_examples=8)
@given(plans())
def test_folded_and_unfolded_agree(plan: Plan) -> None:
    folded = estimate(MODEL, plan, MACHINE)
    unfolded = estimate(MODEL, plan, MACHINE, folded=False)

    assert unfolded.step_ns == folded.step_ns
    assert unfolded.interval == folded.interval
    assert len(unfolded.where.rows) == plan.num_ranks
    by_stage = {row.stage: row.parts for row in folded.where.rows}
    for row in unfolded.where.rows:
        own, same = row.parts, by_stage[row.stage]
        assert own.compute_ns == same.compute_ns
        assert own.overlapped_ns == same.overlapped_ns
        assert own.transfer_ns_by_group == same.transfer_ns_by_group
        # Of causes that are over at the same time either may be named; both are a few hand-overs.
        assert own.idle_ns + own.waiting_ns == same.idle_ns + same.waiting_ns
        assert own.waiting_ns == pytest.approx(same.waiting_ns, abs=folded.step_ns / 1000)


def test_the_step_is_that_of_the_timeline(found: Estimate) -> None:
    assert found.step_ns == int(windows(found.timeline).duration_ns[0])
    assert found.interval.low_ns < found.step_ns < found.interval.high_ns


def test_throughput_is_work_over_time(found: Estimate) -> None:
    seconds = found.step_ns / 1e9

    assert found.units_per_step == 8 * 512
    assert found.units_per_s == pytest.approx(8 * 512 / seconds)
    per_rank = found.flops.training * 8 * 512 / seconds / 8
    assert found.flops_per_ns_per_rank * 1e9 == pytest.approx(per_rank)
    assert found.mfu == pytest.approx(per_rank / 989.4e12)
    assert found.price_per_million == pytest.approx(8 * 2.0 / 3600 * seconds / (8 * 512) * 1e6)


def test_conventions_change_the_count_alone(found: Estimate) -> None:
    full = estimate(MODEL, SMALL, MACHINE, convention=Convention.FULL)

    assert full.step_ns == found.step_ns
    assert full.mfu is not None
    assert found.mfu is not None
    assert full.mfu > found.mfu


def test_the_interval_is_the_families_in_quadrature(found: Estimate) -> None:
    interval = estimate(MODEL, SMALL, MACHINE, unmodelled=0.0).interval
    above_ns = math.hypot(*(one.high_ns for one in interval.families))

    assert interval.high_ns - interval.step_ns == pytest.approx(above_ns, abs=2)
    unmodelled = unmodelled_of(MODEL, None, MACHINE)
    below = math.hypot(math.log(found.step_ns / interval.low_ns), unmodelled)
    assert found.interval.low_ns == pytest.approx(found.step_ns * math.exp(-below), abs=2)
    widths = [one.low_ns + one.high_ns for one in interval.families]
    assert all(first >= second for first, second in pairwise(widths))


def test_what_is_known_of_software_narrows_the_interval() -> None:
    def width(name: str | None) -> float:
        software = None if name is None else software_called(name)
        found = estimate(MODEL, SMALL, MACHINE, software=software)
        assert any("not described" in note for note in found.notes) == (name in {"nemo-31", "hal"})
        assert found.as_json()["software"] == (None if software is None else software.name)
        return math.log(found.interval.high_ns / found.interval.low_ns)

    assert width("nemo-25.11") < width("nemo-31") < width("hal")
    assert width(None) == pytest.approx(width("hal"))


def test_shares_by_source_are_all_device_time(found: Estimate) -> None:
    assert sum(found.share_by_source.values()) == pytest.approx(1.0)


def test_json_has_every_figure(found: Estimate) -> None:
    value = found.as_json()
    parts = value["parts"]

    assert isinstance(parts, dict)
    assert value["step_ns"] == found.step_ns
    transfers = parts.pop("transfers")
    assert sum(parts.values()) + sum(transfers.values()) == found.step_ns
    assert value["mfu"] == found.mfu
    assert value["convention"] == "causal"
    assert value["price_per_million_tokens"] == found.price_per_million
    assert value["tokens_per_s"] == found.units_per_s
    assert value["status"] == "predicted"
    assert value["low_ns"] == found.interval.low_ns
    memory = value["memory"]
    assert isinstance(memory, dict)
    assert memory["fits"] is True


def test_the_frame_has_a_row_for_each_simulated_rank(found: Estimate) -> None:
    frame = found.to_polars()

    assert frame["stage"].to_list() == [0, 1]
    assert frame["num_ranks"].to_list() == [4, 4]
    parts = [name for name in frame.columns if name.endswith("_ns") and name != "step_ns"]
    assert frame.select(parts).sum_horizontal().to_list() == [found.step_ns] * 2


def test_the_pipelines_bubble_is_waiting() -> None:
    at_once = replace(SMALL, sequence=4096, implementation=Implementation(launch="graph"))
    alone = estimate(MODEL, replace(at_once, pipeline=1, data=4), MACHINE)
    few = estimate(MODEL, replace(at_once, global_batch=2), MACHINE)
    many = estimate(MODEL, replace(at_once, global_batch=32), MACHINE)

    assert alone.where.mean.waiting_ns == 0
    # One microbatch in two stages: each waits for the other half of the time, ends aside.
    assert 0.35 < few.where.mean.waiting_ns / few.step_ns < 0.5
    # Many microbatches leave what the stage with the output takes longer.
    assert many.where.mean.waiting_ns / many.step_ns < 0.2


def test_a_machine_that_is_too_small_is_refused() -> None:
    with pytest.raises(MachineError, match=r"needs 16 chips.*has 8"):
        estimate(MODEL, replace(SMALL, data=4), load_machine("l40s-server"))


def test_an_illegal_plan_is_refused() -> None:
    with pytest.raises(WorkloadError, match="does not divide 32 heads"):
        estimate(MODEL, replace(SMALL, tensor=3), MACHINE)


def test_a_negative_price_is_refused() -> None:
    with pytest.raises(ValueError, match="price_per_hour"):
        estimate(MODEL, SMALL, MACHINE, price_per_hour=-1)


def test_launches_on_the_critical_path_are_noted() -> None:
    found = estimate(MODEL, replace(SMALL, sequence=32), MACHINE)

    assert any("launches on the host" in note for note in found.notes)


def test_launches_take_as_long_as_the_host_says_and_the_plan_before_it() -> None:
    short = replace(SMALL, sequence=32)
    slow = replace(MACHINE, host=replace(MACHINE.host, launch_times=2.0))
    stated = replace(short, implementation=replace(short.implementation, launch_times=1.0))

    usual, slower = estimate(MODEL, short, MACHINE), estimate(MODEL, short, slow)

    assert 1.6 < slower.step_ns / usual.step_ns < 2.05
    assert slower.plan.implementation.launch_times == 2.0
    assert estimate(MODEL, stated, slow).step_ns == usual.step_ns
    grown = unit_step(MODEL, short, slow).step_ns / unit_step(MODEL, short, MACHINE).step_ns
    assert grown == pytest.approx(slower.step_ns / usual.step_ns, rel=0.02)


def test_an_unknown_host_widens_what_its_launches_bound_and_nothing_else() -> None:
    def widened(plan: Plan) -> float:
        known = replace(plan, implementation=replace(plan.implementation, launch_times=1.0))
        without, found = (estimate(MODEL, one, MACHINE).interval for one in (plan, known))
        assert without.step_ns == found.step_ns
        return (without.high_ns / without.low_ns) / (found.high_ns / found.low_ns)

    captured = replace(SMALL, sequence=4096, implementation=Implementation(launch="graph"))
    assert widened(replace(SMALL, sequence=32)) > 1.5
    assert widened(captured) == pytest.approx(1, rel=1e-3)


def test_repr_says_what_and_how_long(found: Estimate) -> None:
    assert repr(found).startswith("<Estimate: llama3.2-1b on 8 x h100-sxm of dgx-h100: ")
    assert "\n" not in repr(found)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("dlrm-criteo-kaggle", Plan(data=8, global_batch=1024, micro_batch=128)),
        ("stable-diffusion-1.5", Plan(data=8, global_batch=16, micro_batch=2)),
    ],
)
def test_other_models_are_counted_in_samples(name: str, plan: Plan) -> None:
    found = estimate(load_model(name), plan, MACHINE)

    assert found.unit == "sample"
    assert found.units_per_step == plan.global_batch
    assert found.where.mean.total_ns == found.step_ns
    assert found.as_json()["samples_per_s"] == found.units_per_s
