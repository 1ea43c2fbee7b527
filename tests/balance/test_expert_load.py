"""Loads of experts: even ones change nothing, shares add up, and balancing never does worse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.balance import ExpertLoad, ExpertPlacement, Routing, expert_load_named
from foretrace.base import WorkloadError

ROUTING = Routing(tokens=4096, chosen=2, experts=16, ranks=4, layers=3)
ORDER, BALANCED = ExpertPlacement(), ExpertPlacement(0)


def fullest(load: ExpertLoad, placement: ExpertPlacement = ORDER, seed: int = 0) -> np.ndarray:
    return load.drawn(ROUTING, placement, num_steps=20, num_microbatches=2, seed=seed).fullest


def test_an_even_load_is_even_however_experts_are_placed() -> None:
    for replicas in (None, 0, 4, 8):
        found = fullest(expert_load_named("even"), ExpertPlacement(replicas))

        assert found.shape == (20, 2, 3)
        if replicas is None or replicas == 0:
            assert found == pytest.approx(1.0)


@settings(max_examples=30, deadline=None)
@given(exponent=st.floats(-5, 3), seed=st.integers(0, 50))
def test_a_law_has_a_fullest_rank_that_balancing_eases(exponent: float, seed: int) -> None:
    load = ExpertLoad("law", exponent=exponent)

    order, balanced = fullest(load, seed=seed), fullest(load, BALANCED, seed)

    assert (order >= 1 - 1e-9).all()
    assert (order <= ROUTING.ranks + 1e-9).all()
    assert balanced.mean() <= order.mean() + 1e-9
    assert (order[:, 0] == order[:, 1]).all()  # hot experts stay hot in a step


def test_no_expert_gets_a_token_twice() -> None:
    one_expert_each = Routing(tokens=4096, chosen=2, experts=4, ranks=4, layers=1)

    found = ExpertLoad("law", exponent=2.0).drawn(
        one_expert_each, ORDER, num_steps=50, num_microbatches=1
    )

    assert found.fullest.max() <= 2.0 + 1e-9  # half of all, of four ranks


def test_measured_counts_are_taken_layer_by_layer() -> None:
    counts = np.ones((1, 3, 16))
    counts[0, 1, 0] = 17  # the first of four ranks has 20 of 32

    found = fullest(ExpertLoad("counts", counts=counts))

    assert found[0, 0] == pytest.approx([1.0, 20 / 8, 1.0])


def test_replicas_of_a_hot_expert_share_its_tokens() -> None:
    counts = np.ones((1, 1, 16))
    counts[0, 0, 0] = 17
    load = ExpertLoad("counts", counts=counts)

    best = [fullest(load, ExpertPlacement(replicas)).mean() for replicas in (None, 0, 4)]

    assert best[0] == pytest.approx(20 / 8)
    assert best[1] == pytest.approx(20 / 8)  # slots are as many on each rank
    assert best[2] < 1.3


def test_batches_are_drawn_and_experts_placed_by_their_mean() -> None:
    counts = np.ones((2, 1, 16))
    counts[0, 0, :4], counts[1, 0, 4:8] = 3, 3
    load = ExpertLoad("counts", counts=counts)

    found, balanced = fullest(load), fullest(load, BALANCED)

    assert found == pytest.approx(2.0)
    assert balanced == pytest.approx(1.0)


def test_what_is_above_capacity_is_dropped() -> None:
    counts = np.ones((1, 1, 16))
    counts[0, 0, 0] = 17
    load = ExpertLoad("counts", counts=counts, capacity=1.0)

    found = load.drawn(ROUTING, ORDER, num_steps=1, num_microbatches=1)

    assert found.dropped == pytest.approx(15 / 32)  # the mean is 2 tokens
    assert found.fullest[0, 0, 0] == pytest.approx(5 / 8)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".npy", ".txt"])
def test_counts_are_read_from_files(tmp_path: Path, suffix: str) -> None:
    counts = np.arange(1, 49).reshape(3, 16)
    path = tmp_path / f"counts{suffix}"
    if suffix == ".npy":
        np.save(path, counts)
    elif suffix == ".json":
        path.write_text(json.dumps(counts.tolist()))
    else:
        head = ",".join(f"expert {at}" for at in range(16)) if suffix == ".csv" else ""
        rows = "\n".join(",".join(map(str, row)) for row in counts.tolist())
        path.write_text(f"{head}\n{rows}\n")

    found = expert_load_named(str(path))

    assert found.counts is not None
    assert found.counts.tolist() == [counts.tolist()]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("power:steep", "expected power:EXPONENT"),
        ("power:inf", "no loads follow a power law"),
        ("nowhere.csv", "cannot read nowhere.csv: No such file"),
        ("counts.xlsx", "expected even, power:EXPONENT, or counts"),
    ],
)
def test_what_is_no_load_is_refused(text: str, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        expert_load_named(text)


def test_counts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="counts 2 layers of 16 experts, where the model has 3"):
        fullest(ExpertLoad("counts", counts=np.ones((1, 2, 16))))
    with pytest.raises(WorkloadError, match="a layer without tokens"):
        ExpertLoad("counts", counts=np.zeros((1, 1, 16)))
    with pytest.raises(WorkloadError, match="take 0 replicas, or 4 more"):
        fullest(expert_load_named("even"), ExpertPlacement(3))
    with pytest.raises(WorkloadError, match="take no token"):
        expert_load_named("even", capacity=0.0)
    path = tmp_path / "counts.csv"
    path.write_text("1,2\n3\n")
    with pytest.raises(WorkloadError, match="a row for each layer"):
        expert_load_named(str(path))
