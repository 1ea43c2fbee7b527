"""Logs of nccl-tests in the layouts of two releases, with made-up figures."""

# ruff: noqa: E501 - the tool prints lines this long

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from foretrace.base import ModelError
from foretrace.cli.app import app
from foretrace.cost import calibrated_collectives, read_constants
from foretrace.cost.network import read_collectives, read_log

RANKS = "\n".join(
    f"#  Rank {rank:2d} Group  0 Pid  1{rank:03d} on   worker-{rank // 8} device  {rank % 8} "
    "[0x8d] NVIDIA H100 80GB HBM3"
    for rank in range(16)
)
NEWER = f"""\
# Collective test starting: reduce_scatter_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
{RANKS}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024            16  bfloat16     sum      -1    31.25    0.03    0.03      0    30.11    0.03    0.03      0
        2048            32  bfloat16     sum      -1    32.50    0.06    0.06    N/A    30.91    0.07    0.06    N/A
worker-1: NCCL WARN something else
        4096            64  bfloat16     sum      -1   1234.5    0.13    0.12      0    30.91    0.13    0.12      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.0712
# Collective test concluded: reduce_scatter_perf
"""
OLDER = """\
# nThread 1 nGpus 2 minBytes 65536 maxBytes 131072 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#   Rank  0 Pid   1320 on host-a device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  1 Pid   1320 on host-a device  1 [0x00] Tesla V100-SXM2-16GB
#
#                                             out-of-place                    in-place
#       size         count    type    time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)            (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
       65536          8192   float    16.57    3.96    3.96  0e+00    13.83    4.74    4.74  0e+00
      131072         16384   float    23.07    5.68    5.68  0e+00    18.39    7.13    7.13  0e+00
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_log_gives_ranks_hosts_formats_and_out_of_place_times(tmp_path: Path) -> None:
    rows = read_log(written(tmp_path, "job-17.log", NEWER))

    assert [row["time_ns"] for row in rows] == [31_250, 32_500, 1_234_500]
    assert [row["message_bytes"] for row in rows] == [1024, 2048, 4096]
    wanted = {"num_gpus": 16, "num_nodes": 2, "collective": "reduce_scatter", "dtype": "bf16"}
    assert rows[0] | wanted == rows[0]


def test_an_older_log_has_no_root_and_its_file_names_the_test(tmp_path: Path) -> None:
    rows = read_log(written(tmp_path, "broadcast_perf.txt", OLDER))

    assert [row["time_ns"] for row in rows] == [16_570, 23_070]
    assert rows[0]["collective"] == "broadcast"
    assert rows[0]["dtype"] == "fp32"
    assert rows[0]["num_gpus"] == 2


def test_a_log_of_no_known_test_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"all_reduce_perf\.log"):
        read_log(written(tmp_path, "monday.txt", OLDER))


def test_a_log_without_its_devices_is_refused(tmp_path: Path) -> None:
    text = "\n".join(line for line in OLDER.splitlines() if "Rank  1" not in line)

    with pytest.raises(ModelError, match="names 1 ranks"):
        read_log(written(tmp_path, "broadcast_perf.txt", text))


def test_a_log_without_results_is_refused(tmp_path: Path) -> None:
    text = "\n".join(line for line in OLDER.splitlines() if line.startswith("#"))

    with pytest.raises(ModelError, match="no row"):
        read_log(written(tmp_path, "broadcast_perf.txt", text))


def test_logs_of_a_folder_are_measurements_and_other_files_are_not(tmp_path: Path) -> None:
    written(tmp_path, "job-17.log", NEWER)
    written(tmp_path, "notes.txt", "nothing of the kind")

    (found,) = read_collectives(tmp_path)

    assert found.chip.name == "h100-sxm"
    assert found.num_hosts.tolist() == [2, 2, 2]


def log_of(num_ranks: int) -> str:
    """All-reduces of a start of 10 us, 1 us per hop and 300 GB/s of bus traffic."""
    sizes = 2 ** np.arange(10, 30)
    share = 2 * (num_ranks - 1) / num_ranks
    times_us = 10 + 2 * (num_ranks - 1) + sizes * share / 300_000
    ranks = "\n".join(RANKS.splitlines()[:num_ranks])
    header = "\n".join(NEWER.splitlines()[21:24])
    rows = "\n".join(
        f"{size:12d} {size // 4:12d}     float     sum      -1  {time:9.2f}    1.00    1.00      0"
        for size, time in zip(sizes.tolist(), times_us.tolist(), strict=True)
    )
    return f"# all_reduce_perf\n{ranks}\n{header}\n{rows}\n"


def test_logs_become_constants_with_the_error_on_groups_left_out(tmp_path: Path) -> None:
    for num_ranks in (2, 4, 8):
        written(tmp_path, f"all_reduce-{num_ranks}.log", log_of(num_ranks))

    (found,) = calibrated_collectives(tmp_path, "2026-11-21")

    assert found.chip == "h100-sxm"
    (fit,) = found.fits
    assert (fit.model, fit.num_rows) == ("all_reduce", 60)
    errors = {one.errors.region: one.errors for one in found.left_out}
    assert errors["from_64KiB"].mean_abs_error < 0.1
    assert errors["from_64KiB"].mean_abs_error < errors["from_64KiB"].roofline_mean_abs_error


def test_calibrate_takes_a_folder_of_logs(tmp_path: Path) -> None:
    for num_ranks in (2, 4):
        written(tmp_path, f"all_reduce-{num_ranks}.log", log_of(num_ranks))
    out = tmp_path / "constants"

    result = CliRunner().invoke(app, ["calibrate", "--table", str(tmp_path), "--out", str(out)])

    assert result.exit_code == 0
    assert read_constants(out / "collectives-h100-sxm.toml").fits
