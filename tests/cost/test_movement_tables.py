"""Tables of what memory bounds become bytes and ways through memory."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from foretrace.base import ModelError
from foretrace.cost import calibrated, fitted_model, read_tables
from foretrace.cost.memory_bound import CONSTANTS, Access, Movements

ROWS, WIDTH = 1024, 4096
ONE = 2 * ROWS * WIDTH  # bytes of a matrix


def write(folder: Path, *rows: dict[str, object]) -> None:
    least = {"gpu": "NVIDIA H200", "rows": ROWS, "width": WIDTH, "dtype": "bf16", "time_ns": 9e3}
    made = [{**least, **row} for row in rows]
    pl.DataFrame(made).write_parquet(folder / "movement-mine.parquet")


@pytest.mark.parametrize(
    ("op", "num_bytes", "access"),
    [
        ("aten::copy_", 2 * ONE, Access.STREAM),
        ("aten::add", 3 * ONE, Access.STREAM),
        ("aten::gelu", 2 * ONE, Access.STREAM),
        ("aten::softmax", 2 * ONE, Access.ROWS),
        ("aten::layer_norm", 2 * ONE + 4 * WIDTH, Access.ROWS),
        ("aten::rms_norm", 2 * ONE + 2 * WIDTH, Access.ROWS),
        ("aten::index_select", 2 * ONE + 8 * ROWS, Access.PERMUTE),
        ("aten::index_add_", 3 * ONE + 8 * ROWS, Access.GATHER),
        ("aten::t", 2 * ONE, Access.UNEVEN),
    ],
)
def test_an_operator_moves_what_a_trace_of_it_would_tell(
    tmp_path: Path, op: str, num_bytes: int, access: Access
) -> None:
    write(tmp_path, {"op": op})

    (found,) = read_tables(tmp_path)

    assert (fitted_model(found.model), found.chip.name) == ("movement", "h200-sxm")
    assert found.dtype == "any"
    assert isinstance(found.shapes, Movements)
    assert found.shapes.num_bytes.tolist() == [num_bytes]
    assert found.shapes.access.tolist() == [access]


def test_operators_that_no_cost_model_knows_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"op": "aten::made_up"}, {"op": "aten::add"})

    (found,) = read_tables(tmp_path)

    assert found.measured_ns.tolist() == [9e3]


def test_a_format_that_nobody_knows_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"op": "aten::add", "dtype": "bf17"})

    with pytest.raises(ModelError, match="bf17"):
        read_tables(tmp_path)


def test_a_table_of_movements_makes_constants(tmp_path: Path) -> None:
    names = "aten::add", "aten::gelu", "aten::softmax", "aten::t"  # which teaches nothing
    rows: list[dict[str, object]] = [
        {"op": op, "rows": count, "time_ns": 2e3 + count * WIDTH * 4 / 2000}
        for op in names
        for count in (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
    ]
    write(tmp_path, *rows)

    found = calibrated(read_tables(tmp_path), "2026-01-31")

    (fit,) = next(one for one in found if one.chip == "h200-sxm").fits
    assert (fit.model, fit.num_rows) == ("movement", 24)
    usual = {one.name: one.start for one in CONSTANTS}
    assert fit.values["rows_rate"] == pytest.approx(2 / 4.8, rel=0.1)
    assert fit.values["uneven_rate"] == pytest.approx(usual["uneven_rate"], rel=0.2)
