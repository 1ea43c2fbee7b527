from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from foretrace.base import TraceError
from foretrace.trace import UNKNOWN_NS, AllocatorAction, load_snapshot
from tests.trace.snapshots import entry, frames, segment, written


class _Evil:
    """Would make a file when an ordinary reader loads it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return open, (str(self._path), "w")


def test_history_and_blocks_become_columns(tmp_path: Path) -> None:
    blocks: list[object] = [
        {"address": 0, "size": 512, "state": "active_allocated", "frames": frames("model")},
        {"address": 512, "size": 512, "state": "inactive", "frames": []},
        {"address": 1024, "size": 256, "state": "active_awaiting_free", "frames": frames("loss")},
    ]
    history = [
        entry("alloc", 0, 512, "model", at_us=5),
        entry("free_requested", 0, 512, "model", at_us=6),
        entry("snapshot", 0, 0, "model", at_us=7),
        entry("free_completed", 0, 512, "loss", at_us=8),
    ]
    content = {"segments": [segment(blocks=blocks)], "device_traces": [history, []]}

    snapshot = load_snapshot(written(tmp_path, content))

    (device,) = snapshot.devices
    assert device.action.tolist() == [AllocatorAction.ALLOC, AllocatorAction.FREE]
    assert device.at_ns.tolist() == [5_000, 8_000]
    assert device.num_bytes.tolist() == [512, 512]
    assert (device.reserved_bytes, device.active_bytes) == (2048, 768)
    assert device.block_address.tolist() == [0, 1024]
    assert snapshot.places[device.place[0]] == "model at train.py:12 < main at train.py:99"


def test_files_of_old_versions_have_no_times_and_no_addresses(tmp_path: Path) -> None:
    blocks: list[object] = [
        {"size": 64, "state": "inactive"},
        {"size": 32, "state": "active_allocated", "history": [{"frames": frames("model")}]},
    ]
    content = {
        "segments": [segment(blocks=blocks, device=1)],
        "device_traces": [[], [entry("alloc", 64, 32, "model")]],
    }

    (device,) = load_snapshot(written(tmp_path, content)).devices

    assert device.device == 1
    assert device.at_ns.tolist() == [UNKNOWN_NS]
    assert device.block_address.tolist() == [64]


def test_file_that_names_a_function_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = written(tmp_path, {"segments": [], "device_traces": [_Evil(made)]})

    with pytest.raises(TraceError, match=r"it names io\.open") as raised:
        load_snapshot(path)

    assert str(path) in str(raised.value)
    assert not made.exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "Ran out of input"),
        (b"{not a pickle", "as an allocator snapshot"),
        (pickle.dumps([1, 2]), "it holds a list"),
        (pickle.dumps({"a": 1}), "no 'segments' and 'device_traces' lists but \\['a'\\]"),
        (pickle.dumps({"segments": [], "device_traces": []})[:-4], "as an allocator snapshot"),
    ],
)
def test_other_files_are_refused_with_a_sentence(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "other.pickle"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=sentence):
        load_snapshot(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read .*gone\.pickle: No such file"):
        load_snapshot(tmp_path / "gone.pickle")


def test_odd_members_are_read_as_nothing(tmp_path: Path) -> None:
    content = {"segments": [{"blocks": 3}, 7], "device_traces": [[{"action": "alloc"}, None]]}

    (device,) = load_snapshot(written(tmp_path, content)).devices

    assert device.num_bytes.tolist() == [0]
