from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from foretrace.base import ModelError
from foretrace.capture import FAMILIES, Device, device_of, measured_collectives, measured_rows
from foretrace.capture.measure import median, times_ns
from foretrace.cli.app import app

pytest.importorskip("torch")

CPU = Device("cpu", "CPU of a test", ("fp32",))


def test_the_median_of_an_even_number_is_one_that_was_measured() -> None:
    assert median([4.0, 1.0, 3.0]) == 3.0
    assert median([4.0, 1.0, 3.0, 2.0]) == 3.0


def test_warm_up_runs_are_not_counted() -> None:
    calls: list[int] = []

    taken_ns = times_ns(lambda: calls.append(1), CPU, num_runs=5)

    assert len(taken_ns) == 5
    assert len(calls) > 5
    assert all(time_ns >= 0 for time_ns in taken_ns)


def test_every_family_gives_rows_with_spread_and_shape() -> None:
    found = measured_rows(device_of("cpu"), seconds=0.5)

    assert set(found) == set(FAMILIES)
    assert {family for family, rows in found.items() if not rows} == {"scaled-gemm", "moe"}
    for rows in found.values():
        for row in rows:
            assert 0 < row["time_ns_min"] <= row["time_ns"] <= row["time_ns_max"]  # type: ignore[operator]
            assert row["n_meas"] >= 3  # type: ignore[operator]
    assert {"batch", "m", "n", "k", "dtype"} <= set(found["gemm"][0])
    assert {"heads", "kv_heads", "head_dim", "seq", "causal"} <= set(found["attention"][0])
    assert found["attention"][0]["bwd_time_ns"] > 0  # type: ignore[operator]
    assert {"kv_len", "kv_dtype", "window"} <= set(found["attention-decode"][0])


def test_shapes_come_in_the_same_order_each_time() -> None:
    first, second = (measured_rows(CPU, families=["gemm"], seconds=0.05)["gemm"] for _ in range(2))

    shared = min(len(first), len(second))
    shapes = [[(row["m"], row["n"], row["k"]) for row in rows[:shared]] for rows in (first, second)]
    assert shapes[0] == shapes[1]


def test_an_unknown_family_or_device_is_named() -> None:
    with pytest.raises(ModelError, match="fusion"):
        measured_rows(CPU, families=["fusion"], seconds=1)
    with pytest.raises(ModelError, match="tpu"):
        device_of("tpu")


def test_a_collective_takes_two_ranks() -> None:
    with pytest.raises(ModelError, match="2 or more"):
        measured_collectives(CPU, 1)


@pytest.mark.slow
def test_collectives_between_two_processes_have_nccl_tests_columns() -> None:
    rows = measured_collectives(CPU, 2, seconds=0.5)

    assert {row["collective"] for row in rows} == {
        "all_reduce",
        "all_gather",
        "broadcast",
        "send_recv",
    }
    for row in rows:
        size, time_ns = float(str(row["message_bytes"])), float(str(row["time_ns"]))
        assert row["num_gpus"] == 2
        assert row["algbw_gbs"] == pytest.approx(size / time_ns)
        spread = [row[f"time_ns{end}"] for end in ("_min", "_p10", "", "_p90", "_max")]
        assert spread == sorted(spread)  # type: ignore[type-var]
        assert float(str(row["cores"])) > 0
    all_reduce = next(row for row in rows if row["collective"] == "all_reduce")
    assert all_reduce["busbw_gbs"] == pytest.approx(all_reduce["algbw_gbs"])


def test_the_command_writes_a_table_of_each_family(tmp_path: Path) -> None:
    arguments = ["measure", "--device", "cpu", "--seconds", "0.2", "--only", "gemm"]

    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path), "--json"])

    assert result.exit_code == 0
    (table,) = json.loads(result.stdout)["tables"]
    frame = pl.read_parquet(table["file"])
    assert len(frame) == table["rows"]
    assert {"gpu", "m", "n", "k", "dtype", "time_ns"} <= set(frame.columns)
