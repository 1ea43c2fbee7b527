from __future__ import annotations

import pytest

from foretrace.base import MachineError, WorkloadError
from foretrace.estimate import Estimate, estimate, estimate_draft
from foretrace.machine import load_machine
from foretrace.workload import PlanDraft, load_model

MODEL, MACHINE = load_model("llama3.2-1b"), load_machine("dgx-h100")
KEYS = {"tp": 2, "global_batch": 8, "micro_batch": 1, "batch.sequence": 256}


def draft(**more: object) -> PlanDraft:
    return PlanDraft().with_keys(KEYS | more)


@pytest.fixture(scope="module")
def found() -> Estimate:
    return estimate_draft(MODEL, draft(), MACHINE, num_ranks=8)


def test_a_complete_plan_assumes_nothing() -> None:
    keys = {"sharding.level": "zero1", "recompute": "none", "sequence_parallel": True}

    found = estimate_draft(MODEL, draft(**keys), MACHINE, num_ranks=8)

    assert found.assumed is None
    assert found.plan.data == 4
    assert found.step_ns == estimate(MODEL, found.plan, MACHINE).step_ns


@pytest.mark.parametrize(("division", "is_told"), [({}, True), ({"ep": 8, "pp": 4}, False)])
def test_a_division_nobody_stated_that_waits_for_its_transfers_is_told(
    division: dict[str, object], *, is_told: bool
) -> None:
    batch = {"global_batch": 128, "batch.sequence": 1024, "recompute": "full"}
    machine = load_machine("dgx-h100")

    found = estimate_draft(
        load_model("qwen3-30b-a3b"), PlanDraft().with_keys(batch | division), machine, num_ranks=32
    )

    notes = [note for note in found.notes if "nothing says how the model is divided" in note]
    assert len(notes) == is_told


def test_open_keys_are_tried_and_the_first_values_are_the_answer(found: Estimate) -> None:
    assumed = found.assumed
    assert assumed is not None

    assert [one.key for one in assumed.assumptions] == [
        "sharding.level",
        "memory.recompute",
        "parallelism.sequence_parallel",
    ]
    assert len(assumed.alternatives) == 2 * 3 * 2
    first = assumed.alternatives[0]
    assert first.step_ns == found.step_ns
    assert first.values == {
        "sharding.level": "zero1",
        "memory.recompute": "none",
        "parallelism.sequence_parallel": True,
    }
    steps = [one.step_ns for one in assumed.alternatives]
    assert (assumed.low_ns, assumed.high_ns) == (min(steps), max(steps))
    assert found.as_json()["status"] == "assumed"


def test_each_alternative_is_the_estimate_of_its_plan(found: Estimate) -> None:
    assumed = found.assumed
    assert assumed is not None
    last = assumed.alternatives[-1]

    own = estimate_draft(MODEL, draft(**last.values), MACHINE, num_ranks=8)

    assert own.assumed is None
    assert own.step_ns == last.step_ns
    assert own.footprint is not None
    assert own.footprint.peak.total == last.peak_bytes


def test_progress_counts_the_plans() -> None:
    seen: list[tuple[int, int]] = []

    estimate_draft(
        MODEL,
        draft(recompute="none", **{"sharding.level": "none"}),
        MACHINE,
        num_ranks=8,
        progress=lambda done, total: seen.append((done, total)),
    )

    assert seen == [(1, 2), (2, 2)]


def test_plans_that_do_not_fit_are_left_out() -> None:
    keys = {"batch.sequence": 65536, "sharding.level": "zero1", "sequence_parallel": True}

    found = estimate_draft(MODEL, draft(**keys), MACHINE, num_ranks=8)

    assert found.assumed is not None
    assert all(one.fits for one in found.assumed.alternatives)
    values = {str(one.values["memory.recompute"]) for one in found.assumed.alternatives}
    assert values == {"full"}


def test_an_unstated_number_of_copies_is_one_and_said() -> None:
    found = estimate_draft(MODEL, draft(recompute="none"), load_machine("superpod-h100"))

    assert found.plan.num_ranks == 2
    assert any("2 of 1,024 chips are used" in note for note in found.notes)


def test_of_a_lone_host_all_chips_are_meant() -> None:
    found = estimate_draft(MODEL, draft(recompute="none"), MACHINE)

    assert found.plan.num_ranks == 8
    assert not any("chips are used" in note for note in found.notes)


def test_the_batch_has_to_be_stated() -> None:
    with pytest.raises(WorkloadError, match="global_batch"):
        estimate_draft(MODEL, PlanDraft(), MACHINE)


def test_more_chips_than_there_are_is_refused() -> None:
    with pytest.raises(MachineError, match=r"needs 2,048 chips.*has 1,024"):
        estimate_draft(MODEL, draft(), load_machine("superpod-h100"), num_ranks=2048)


def test_the_tables_of_what_was_assumed(found: Estimate) -> None:
    assert found.assumed is not None

    frame = found.to_polars("alternatives")

    assert frame.height == 12
    assert frame["step_ns"][0] == found.step_ns
    assert set(frame.columns) >= {"peak_bytes", "fits"}
