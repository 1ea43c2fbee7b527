"""The public traces: read as the oracle reads them, or refused with a clear sentence."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path

import pytest

from foretrace.base import TraceError
from foretrace.trace import Category, contents_of, load_traces
from foretrace.trace.read import read_trace
from tests.oracles import kineto as oracle
from tests.trace.kineto_json import assert_same

pytestmark = pytest.mark.large

# Parametrized here, so that each file is a test of its own; absent data gives no tests.
FOLDER = Path(__file__).parents[2] / os.environ.get("FORETRACE_DATA", "../shared/data")
ALL = sorted(path for path in (FOLDER / "traces").rglob("*.*z") if path.is_file())
REFUSED = ("chakra/", "/et_rank", "_et.", "_et_")
TRACES = [path for path in ALL if not any(mark in str(path) for mark in REFUSED)]
OTHERS = [path for path in ALL if path not in TRACES]
SMALL = [path for path in TRACES if path.stat().st_size < 260_000]
# MTIA device records are told apart by name, which the oracle leaves out.
COMPARED = [path for path in SMALL if "mtia" not in path.name]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name[:32]}"


@pytest.mark.parametrize("path", COMPARED, ids=name_of)
def test_public_traces_are_read_as_the_oracle_reads_them(path: Path) -> None:
    trace = read_trace(path)

    assert oracle.flat(trace) == oracle.read(gzip.decompress(path.read_bytes()))


@pytest.mark.slow
@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_every_record_of_a_public_trace_is_accounted_for(path: Path) -> None:
    trace = read_trace(path)

    assert trace.num_accounted == trace.meta.num_events > 0
    assert trace.num_events > 0
    assert not trace.meta.is_truncated
    assert contents_of(trace).num_kept == trace.meta.num_events - sum(trace.meta.dropped.values())


@pytest.mark.parametrize("path", OTHERS, ids=name_of)
def test_files_of_another_kind_are_refused_with_their_name(path: Path) -> None:
    words = r"execution trace|Chakra f|the archive holds 2 files"
    with pytest.raises(TraceError, match=words) as caught:
        load_traces(path)

    assert str(path) in str(caught.value)


def test_the_folder_of_a_run_gives_its_eight_ranks(data_dir: Path) -> None:
    traces = load_traces(data_dir / "traces/megatron-tp8")

    assert [trace.meta.rank for trace in traces] == list(range(8))
    assert {trace.meta.world_size for trace in traces} == {8}
    kernels = [int((trace.category == Category.KERNEL).sum()) for trace in traces]
    assert kernels == [690] * 8
    assert traces[0].meta.notes == ("beside the traces, not read: 8 execution trace files",)


def test_two_runs_of_one_rank_in_a_folder_are_refused(data_dir: Path) -> None:
    with pytest.raises(TraceError, match=r"two files are of rank 0: .*and .*worker0") as caught:
        load_traces(data_dir / "traces/v100-resnet50-dataloader")

    assert "1623143089861" in str(caught.value)
    assert "1623143566756" in str(caught.value)


def test_a_base_time_makes_timestamps_absolute(data_dir: Path) -> None:
    trace = read_trace(data_dir / "traces/a100-resnet-ddp2-rank0/nccl_data.json.gz")

    first = 1_711_964_646_000_000_000 + 4_458_676_388_068_751
    assert 0 < trace.start_ns[0] - first < 10**9
    assert trace.meta.timestamp_unit_ns == 1


def test_sync_events_keep_what_they_waited_for(data_dir: Path) -> None:
    folder = data_dir / "traces/cuda-sync-events/cuda_event_sync_multi_stream"
    (trace,) = load_traces(folder)

    kinds = [trace.strings[kind] for kind in trace.syncs.kind.tolist()]
    assert sorted(set(kinds)) == ["Context Sync", "Event Sync", "Stream Wait Event"]
    assert set(trace.category[trace.syncs.event].tolist()) == {Category.SYNC}
    waits = [row for row, kind in enumerate(kinds) if kind == "Stream Wait Event"]
    assert all(trace.syncs.wait_on_stream[row] >= 0 for row in waits)


def test_plain_text_and_tar_give_the_same_as_gzip(data_dir: Path, tmp_path: Path) -> None:
    packed = data_dir / "traces/odd-files/triton_example.json.gz"
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        archive.add(plain, "inner.json")
    with tarfile.open(tmp_path / "archive.tgz", "w:gz") as archive:
        archive.add(plain, "inner.json")

    expected = read_trace(packed)

    for path in (plain, tmp_path / "archive.tar", tmp_path / "archive.tgz"):
        assert_same(read_trace(path), expected)
