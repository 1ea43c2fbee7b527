"""How often rows are looked up: shares sum to one, caches and parts follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import AccessLaw, access_laws
from foretrace.workload.sharding.access import measured_law, zipf_law


def zipf_shares(num_rows: int, exponent: float) -> np.ndarray:
    weight = np.arange(1, num_rows + 1) ** -exponent
    shares: np.ndarray = weight / weight.sum()
    return shares


@given(num_rows=st.integers(1, 30_000), exponent=st.floats(0, 3))
def test_bands_are_the_law_row_by_row(num_rows: int, exponent: float) -> None:
    law = zipf_law(num_rows, exponent)
    shares = zipf_shares(num_rows, exponent)

    assert law.rows.sum() == num_rows
    for kept in {0, 1, num_rows // 10, num_rows // 2, num_rows}:
        assert law.top_share(kept) == pytest.approx(shares[:kept].sum(), abs=2e-3)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0, 1.4])
def test_distinct_rows_are_those_that_draws_touch(exponent: float) -> None:
    rng = np.random.default_rng(0)
    law = zipf_law(20_000, exponent)
    drawn = [
        np.unique(rng.choice(20_000, 5_000, p=zipf_shares(20_000, exponent))) for _ in range(20)
    ]

    assert law.distinct(5_000) == pytest.approx(np.mean([len(one) for one in drawn]), rel=0.02)
    beyond = np.mean([(one >= 500).sum() for one in drawn])
    assert law.distinct(5_000, beyond=500) == pytest.approx(beyond, rel=0.03)


@given(num_rows=st.integers(1, 5_000), exponent=st.floats(0, 2), num_parts=st.integers(1, 16))
def test_parts_have_all_lookups_together(num_rows: int, exponent: float, num_parts: int) -> None:
    assert zipf_law(num_rows, exponent).part_shares(num_parts).sum() == pytest.approx(1)


def test_measured_rows_stand_where_they_are() -> None:
    law = measured_law(np.array([1.0, 0, 0, 5, 2, 2]))

    assert law.part_shares(3).tolist() == pytest.approx([0.1, 0.5, 0.4])
    assert law.top_share(1) == pytest.approx(0.5)
    assert law.top_share(3) == pytest.approx(0.9)


def test_a_steeper_law_needs_less_cache() -> None:
    shares = [zipf_law(1_000_000, each).top_share(10_000) for each in (0.0, 0.6, 1.0, 1.4)]

    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.01, rel=0.01)
    assert shares[-1] > 0.95


def laws_of(text: str) -> tuple[AccessLaw, ...]:
    return access_laws(text, (4, 6))


def test_counts_are_read_from_both_kinds_of_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "counts.npz", np.array([3, 1, 0, 0]), np.array([0, 0, 0, 0, 0, 9]))
    lines = ["table,row,count", "0,0,3", "0,1,1", "1,5,9"]
    (tmp_path / "counts.csv").write_text("\n".join(lines))

    for name in ("counts.npz", "counts.csv"):
        first, second = laws_of(str(tmp_path / name))
        assert first.part_shares(2).tolist() == [1, 0]
        assert second.part_shares(3).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zipf:x", "expected zipf:EXPONENT"),
        ("zipf:9", "no Zipf law with exponent 9"),
        ("zipf:1,1,1", "3 exponents, and the model 2 tables"),
        ("often", "expected even, zipf:EXPONENT"),
        ("{}/none.csv", "cannot read"),
        ("{}/wrong.csv", "expected table, row and count"),
        ("{}/far.csv", "counts row 4 of table 0"),
        ("{}/short.npz", "holds counts of 1 tables"),
        ("{}/shape.npz", "of shape \\(3,\\)"),
    ],
)
def test_what_is_no_law_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "wrong.csv").write_text("0,1\n2\n")
    (tmp_path / "far.csv").write_text("0,4,1\n")
    np.savez(tmp_path / "short.npz", np.ones(4))
    np.savez(tmp_path / "shape.npz", np.ones(3), np.ones(6))

    with pytest.raises(WorkloadError, match=words):
        laws_of(text.format(tmp_path))
