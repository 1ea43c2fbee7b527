"""The shipped constants of collectives, and factors of inflation, on public measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretrace.api import load
from foretrace.base import Float64s
from foretrace.cost import (
    LeftOut,
    calibrated_collectives,
    collective_errors,
    measured_inflation,
    shipped_collectives,
)
from foretrace.cost.network.costs import chosen_inside
from foretrace.cost.network.domain import domain_ns
from foretrace.cost.network.tables import read_collectives


@pytest.fixture(scope="module")
def measured(data_dir: Path) -> Path:
    return data_dir / "measured"


def test_a_fit_of_the_public_table_is_what_is_shipped(measured: Path, tmp_path: Path) -> None:
    import polars as pl  # as elsewhere: only where it is needed

    table = pl.read_parquet(measured / "collectives.parquet")
    table.filter(pl.col("system") == "b200_sxm-nvswitch").write_parquet(
        tmp_path / "collectives.parquet"
    )

    (found,) = calibrated_collectives(tmp_path, "2026-11-21")

    (shipped,) = (one for one in shipped_collectives() if one.chip == found.chip)
    for one, other in zip(found.fits, shipped.fits, strict=True):
        assert one.values == pytest.approx(other.values, rel=1e-2)  # written with four digits


def test_shipped_constants_explain_hosts_with_switches(measured: Path) -> None:
    rows = [
        row
        for row in collective_errors(measured)
        if row.gpu.endswith("nvswitch") and row.errors.region == "from_64KiB"
    ]

    assert len(rows) > 20
    assert max(row.errors.mean_abs_error for row in rows) < 0.1


def test_another_system_with_the_same_chip_is_predicted(measured: Path) -> None:
    (row,) = (
        row
        for row in collective_errors(measured)
        if (row.gpu, row.errors.region) == ("vtrain-a100-node", "from_64KiB")
    )

    # vTrain's host, of which no row was fitted, with 3 and 5 to 7 GPUs among the groups.
    assert row.errors.mean_abs_error < 0.1


@pytest.mark.parametrize(("collective", "most"), [("all_reduce", 0.15), ("send_recv", 0.12)])
def test_a_host_without_a_switch_is_predicted_by_its_links(
    measured: Path, collective: str, most: float
) -> None:
    (row,) = (
        row
        for row in collective_errors(measured)
        if (row.family, row.gpu, row.errors.region) == (collective, "perlmutter-node", "from_64KiB")
    )

    assert row.errors.mean_abs_error < most


@pytest.mark.parametrize("transport", ["1.9.2", "1.13.0"])
def test_settings_that_were_not_fitted_follow_at_scale(measured: Path, transport: str) -> None:
    def mean_of(rows: list[LeftOut]) -> float:
        return sum(row.errors.n * row.errors.mean_abs_error for row in rows) / sum(
            row.errors.n for row in rows
        )

    long = [
        row
        for row in collective_errors(measured)
        if f"aws-ofi {transport} " in row.family
        and row.errors.region == "from_16MiB"
        and row.errors.n > 50  # between hosts
    ]

    assert len(long) == 5
    assert mean_of(long) < 0.6  # at 64 hosts, which count here, others' traffic slowed three


def ratios(measured: Path) -> Iterator[tuple[bool, Float64s]]:
    """Measured over predicted of each collective without its own chip's constants for it."""
    for one in read_collectives(measured):
        if not one.system.endswith("nvswitch"):
            continue
        others = [
            replace(
                chip,
                fits=tuple(
                    fit
                    for fit in chip.fits
                    if (chip.chip, fit.model) != (one.chip.name, one.collective.in_tables)
                ),
            )
            for chip in shipped_collectives()
        ]
        chosen = chosen_inside(one.collective, one.kind, one.chip, constants=others)
        predicted_ns = domain_ns(
            one.collective,
            one.num_bytes.astype(np.float64),
            one.num_ranks.astype(np.float64),
            chip=one.chip,
            values=chosen.fit.values,
        )
        is_long = one.num_bytes >= 1 << 16
        yield True, (one.measured_ns / predicted_ns)[is_long]
        yield False, (one.measured_ns / predicted_ns)[~is_long]


def test_the_interval_of_transferred_answers_is_the_measured_one(measured: Path) -> None:
    found = list(ratios(measured))
    long = np.concatenate([each for is_long, each in found if is_long])
    short = np.concatenate([each for is_long, each in found if not is_long])

    assert np.quantile(long, [0.1, 0.9]) == pytest.approx([0.76, 1.25], abs=0.02)
    assert np.quantile(short, [0.1, 0.9]) == pytest.approx([0.63, 1.48], abs=0.02)
    assert np.abs(1 / long - 1).mean() < 0.2


@pytest.mark.parametrize(
    ("trace", "kind", "factor"),
    [
        ("a100-dlrm-rank3-of-8", "gemm", 1.39),
        ("a100-dlrm-rank3-of-8", "elementwise", 2.08),
        ("a100-resnet-ddp2-rank0", "convolution", 1.28),
    ],
)
def test_kernels_of_public_traces_are_slower_beside_communication(
    data_dir: Path, trace: str, kind: str, factor: float
) -> None:
    job = load([data_dir / "traces" / trace])

    found = measured_inflation(job.measured)

    assert found.factor(kind) == pytest.approx(factor, abs=0.05)
    assert found.num_kernels_by_class[kind] >= 10
