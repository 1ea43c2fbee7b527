"""Times of cuDNN's attention that NVIDIA published, as a table to calibrate with.

`python experiments/cudnn_attention.py CLONE FOLDER` reads a clone of
https://github.com/NVIDIA/cudnn-frontend, at the releases that hold results, and writes
`attention-cudnn.parquet` of GB200 and GB300: kernels alone, forward and backward, without a
window. `foretrace calibrate --table FOLDER` fits them; with the attention of
`examples/h200/measured` in the folder it says how far they carry between Hopper and Blackwell.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl

_BENCHMARK = "benchmark/sdpa_benchmark_training"
# Releases 1.17.0, 1.18.0, 1.19.0 and 1.23.0; each replaced results of the one before.
_COMMITS = ("b372d39", "b8c0656", "df73764", "fb682ce")
_FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "cudnn_fe": "bf16", "cudnn_fe_fp8": "fp8"}
_TIMES = (("forward_time", "backward_time"), ("fwd_time_ms", "bwd_time_ms"))
_COLUMNS = ("time_ns", "bwd_time_ns")
_NS_IN_MS = 1e6

_Row = dict[str, object]


def measured(clone: Path) -> pl.DataFrame:
    """A row for each file, shape, format and mask."""
    found: dict[tuple[object, ...], _Row] = {}
    for commit in _COMMITS:
        for path in _git(clone, "ls-tree", "-r", "--name-only", commit, _BENCHMARK).split():
            name = Path(path).stem
            # An H200 stands in no row with backward times of all formats.
            if path.endswith(".csv") and "h200" not in path and "sdpa_fp8" not in name:
                for row in csv.DictReader(io.StringIO(_git(clone, "show", f"{commit}:{path}"))):
                    _add(row, name, found)
    return pl.DataFrame(list(found.values()))


def _add(row: dict[str, str], name: str, found: dict[tuple[object, ...], _Row]) -> None:
    is_old = "data_type" not in row
    dtype = _FORMATS.get(row["backend" if is_old else "data_type"])
    is_usual = row.get("success", "True") == "True" and row.get("deterministic_bwd") != "True"
    if dtype is None or not is_usual or row.get("sliding_window_size"):
        return
    if not row["backend"].startswith("cudnn"):
        return
    gpu = name.rpartition("_")[2] if is_old else row["gpu_name"].rpartition(" ")[2]
    causal = row["is_causal"] == "True" if is_old else row["attn_mask"] == "top_left"
    names = ("head_dim", "head_dim") if is_old else ("head_dim_qk", "head_dim_vo")
    sizes: _Row = {
        "gpu": f"NVIDIA {gpu}",
        "batch": int(row["batch_size"]),
        "heads": int(row["num_q_heads"]),
        "kv_heads": int(row["num_kv_heads"]),
        "head_dim": sum(int(row[each]) for each in names) // 2,
        "seq": int(row["q_seqlen"]),
        "dtype": dtype,
        "causal": causal,
    }
    blank: _Row = dict.fromkeys(_COLUMNS)
    said = {"framework": "torch, cuDNN's frontend", "source": "NVIDIA/cudnn-frontend"}
    one = found.setdefault((name, *sizes.values()), {**sizes, **blank, **said, "kernel": "cudnn"})
    one |= {column: float(text) * _NS_IN_MS for column, text in _times(row) if float(text) > 0}


def _times(row: dict[str, str]) -> Iterator[tuple[str, str]]:
    if "time_ms" in row:
        is_backward = row["profile_pass"].startswith("b")
        yield _COLUMNS[is_backward], row["time_ms"]
        return
    names = next(pair for pair in _TIMES if pair[0] in row)
    yield from zip(_COLUMNS, (row[one] for one in names), strict=True)


def _git(clone: Path, *words: str) -> str:
    call = ("git", "--git-dir", str(clone), *words)
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout  # noqa: S603


if __name__ == "__main__":
    frame = measured(Path(sys.argv[1]))
    frame.write_parquet(Path(sys.argv[2]) / "attention-cudnn.parquet")
