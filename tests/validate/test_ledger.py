"""Kept predictions: settled once, told by kind, and a constant of one's own that follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.estimate import estimate
from foretrace.machine import load_machine
from foretrace.software import kernel_factors, load_software
from foretrace.validate import KeptPrediction, Ledger, kept, read_ledger, write_ledger
from foretrace.workload import Plan, load_model


def _one(name: str, **more: object) -> KeptPrediction:
    made = KeptPrediction(
        name=name,
        added="2026-11-22",
        version="0",
        model="m",
        machine="dgx-h100",
        chip="h100-sxm",
        architecture="Hopper",
        software="nemo-25.11",
        software_class="megatron",
        has_experts=False,
        num_ranks=8,
        predicted_ns=1000,
        low_ns=900,
        high_ns=1100,
        products_ns=500,
        products=1.1,
        plan={"parallelism": {"tp": 2}},
    )
    return replace(made, **more)  # type: ignore[arg-type]


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger((_one("a"), _one("b", has_experts=True)))

    write_ledger(path, ledger.with_settled("a", 1050, date="2026-12-01"))

    found = read_ledger(path)
    assert found.rows[0] == replace(ledger.rows[0], settled_ns=1050, settled="2026-12-01")
    assert found.rows[1] == ledger.rows[1]
    assert read_ledger(tmp_path / "none.jsonl").rows == ()


def test_an_estimate_is_kept_with_what_it_was_made_from() -> None:
    software = load_software("nemo-25.11")
    plan = Plan(tensor=2, data=4, global_batch=8, sequence=512)
    found = estimate(load_model("llama3.2-1b"), plan, load_machine("dgx-h100"), software=software)

    one = kept(found, "run", date="2026-11-22", version="0")

    assert (one.predicted_ns, one.software, one.kind) == (
        found.step_ns,
        "nemo-25.11",
        "megatron on Hopper",
    )
    assert 0 < one.products_ns < one.predicted_ns
    assert one.plan["parallelism"]["tp"] == 2
    assert found.mfu is not None
    assert one.least_ns == pytest.approx(found.mfu * found.step_ns, rel=1e-3)


def test_errors_and_coverage_are_told_by_kind() -> None:
    ledger = Ledger((_one("a"), _one("b"), _one("c", has_experts=True), _one("d")))
    for name, measured in (("a", 1050), ("b", 1250), ("c", 500)):
        ledger = ledger.with_settled(name, measured, date="today")

    dense, experts = ledger.kinds

    assert (dense.name, dense.num_kept, dense.num_settled) == ("megatron on Hopper", 3, 2)
    assert dense.inside == pytest.approx(0.5)
    assert dense.mean_error == pytest.approx((1000 / 1050 + 1000 / 1250) / 2 - 1)
    assert experts.mean_error == pytest.approx(1.0)
    assert "4 predictions, 3 settled" in ledger.headline
    assert ledger.to_polars().height == 4


def test_settled_predictions_give_a_constant_of_one_s_own(tmp_path: Path) -> None:
    ledger = Ledger(tuple(_one(name) for name in "abc"))
    for name, measured in zip("abc", (1000, 1100, 1200), strict=True):
        ledger = ledger.with_settled(name, measured, date="today")
    path = tmp_path / "own.toml"

    path.write_text(ledger.software_toml(), encoding="utf-8")

    # The median run took 100 of 1,000 longer, which 500 of products explain if they are x 1.2.
    assert ledger.kinds[0].products == pytest.approx(1.1 * 1.2)
    own = load_software(path)
    assert kernel_factors(own, "Hopper")["gemm library bf16"] == pytest.approx(1.32)
    assert own.family == "megatron"


def test_too_few_settled_predictions_give_none() -> None:
    ledger = Ledger((_one("a"), _one("b"))).with_settled("a", 1000, date="today")

    assert ledger.kinds[0].products is None
    with pytest.raises(WorkloadError, match="no kind of dense runs has 3 settled"):
        ledger.software_toml()


def test_what_settles_nothing_is_refused(tmp_path: Path) -> None:
    ledger = Ledger((_one("a"), _one("b"))).with_settled("a", 1000, date="today")

    with pytest.raises(WorkloadError, match="no prediction called 'c': open are b"):
        ledger.with_settled("c", 1, date="")
    with pytest.raises(WorkloadError, match="'a' was settled at 1,000 ns"):
        ledger.with_settled("a", 1, date="")
    with pytest.raises(WorkloadError, match="give a time above 0"):
        ledger.with_settled("b", 0, date="")
    fast = Ledger((_one("d", least_ns=400),))
    with pytest.raises(WorkloadError, match=r"a step of 399 ns cannot be: the FLOPs of 'd' alone"):
        fast.with_settled("d", 399, date="")
    assert fast.with_settled("d", 400, date="").rows[0].settled_ns == 400
    with pytest.raises(WorkloadError, match="called 'a': give it another name"):
        ledger.with_prediction(_one("a"))
    (tmp_path / "bad.jsonl").write_text('{"name": 3}\n', encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"line 1 of .* is no kept prediction"):
        read_ledger(tmp_path / "bad.jsonl")
