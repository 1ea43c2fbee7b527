"""Dumps of PyTorch's flight recorder, as version 2.10 writes them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import foretrace as ft
from foretrace.base import TraceError
from foretrace.trace.others import read_flights

MEMBERS = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


def entry(number: int, name: str, *, is_done: bool, line: int) -> dict[str, Any]:
    return {
        "frames": [
            {"name": name, "filename": "/x/torch/distributed/c10d.py", "line": 3245},
            {"name": "train", "filename": "/home/me/train.py", "line": line},
        ],
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_795_394_894_000_000_000 + number * 1_000_000,
        "input_sizes": [[8, 4]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[8, 4]],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if is_done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": is_done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def dump(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"version": "2.10", "pg_config": MEMBERS, "entries": list(entries)}


def write_both(folder: Path) -> list[Path]:
    """Rank 0 waits in its third call, which rank 1 never made."""
    both = entry(1, "all_reduce", is_done=True, line=7), entry(2, "broadcast", is_done=True, line=9)
    waits = entry(3, "all_reduce", is_done=False, line=12)
    paths = [folder / f"nccl_trace_rank_{rank}" for rank in range(2)]
    paths[0].write_bytes(pickle.dumps(dump(*both, waits), protocol=2))
    paths[1].write_bytes(pickle.dumps(dump(*both), protocol=2))
    return paths


@pytest.mark.parametrize("is_folder", [False, True])
def test_who_waits_for_whom_and_where(tmp_path: Path, is_folder: bool) -> None:
    paths = write_both(tmp_path)

    found = ft.hang(ft.load(tmp_path if is_folder else paths, cache=False))

    assert found.is_hung
    assert found.stuck[0].waiting_ranks == (0,)
    assert found.stuck[0].missing_ranks == (1,)
    assert found.stuck[0].num_bytes == 8 * 4 * 2
    assert found.sentence.endswith(
        "rank 1 was last at train.py:9 train; its last there was broadcast number 1"
    )


def test_all_done_is_no_hang(tmp_path: Path) -> None:
    done = dump(entry(1, "all_reduce", is_done=True, line=7))
    for rank in range(2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(done, protocol=2))

    assert not ft.hang(ft.load(tmp_path, cache=False)).is_hung


def test_json_says_the_same(tmp_path: Path) -> None:
    pickled = write_both(tmp_path)[0]
    written = tmp_path / "rank_0.json"
    done = [
        entry(number, name, is_done=number < 3, line=line)
        for number, name, line in ((1, "all_reduce", 7), (2, "broadcast", 9), (3, "all_reduce", 12))
    ]
    written.write_text(json.dumps(dump(*done)))

    one, other = read_flights(pickled), read_flights(written)

    assert one.start_ns.tolist() == other.start_ns.tolist()
    assert one.strings == other.strings


class Harmful:
    """What runs a command when a careless reader loads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"pg_config": MEMBERS, "entries": Harmful(mark)}, protocol=2))

    with pytest.raises(TraceError, match="nothing of it was run"):
        read_flights(path)
    assert not mark.exists()


@pytest.mark.parametrize("part", [0.3, 0.7, 0.99])
def test_a_dump_that_was_cut_is_refused(tmp_path: Path, part: float) -> None:
    path = write_both(tmp_path)[0]
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])

    with pytest.raises(TraceError, match="begins as a flight recorder's dump and is none"):
        read_flights(path)
