from __future__ import annotations

from pathlib import Path

import pytest

from foretrace import api
from foretrace.base import TraceError
from tests.oracles import chakra as oracle


def files(folder: Path) -> Path:
    for rank in (0, 1):
        node = oracle.Node(id=1, name="work", type=4, duration_micros=10 + rank)
        content = oracle.framed([oracle.GlobalMetadata(version="1.0.0"), node])
        (folder / f"job.{rank}.et").write_bytes(content)
    return folder


def test_a_folder_of_chakra_files_is_a_job(tmp_path: Path) -> None:
    job = api.load(files(tmp_path))

    assert (job.ranks, job.steps) == ((0, 1), ("trace",))
    assert api.simulate(job).end_ns.max() == 11_000
    # Nothing was measured, so the replay stands in, and says so.
    assert not job.measured.is_measured
    assert any(finding.topic == "times" for finding in job.findings)


def test_ranks_are_chosen_and_missing_ones_named(tmp_path: Path) -> None:
    folder = files(tmp_path)

    assert api.load(folder, ranks=[1]).ranks == (1,)
    with pytest.raises(TraceError, match=r"no trace of rank 5: found 0, 1"):
        api.load(folder, ranks=[5])


@pytest.mark.large
@pytest.mark.parametrize("what", ["chakra.0.et.gz", "dlrm_linked_rank0.json.gz"])
def test_questions_are_answered_of_public_chakra_files(data_dir: Path, what: str) -> None:
    job = api.load(data_dir / "traces/chakra" / what)

    timeline = api.simulate(job)

    assert api.breakdown(timeline).to_polars().height >= 1
    assert api.critical_path(timeline).to_polars().height > 10


@pytest.mark.large
@pytest.mark.parametrize("rank", [0, 1])
def test_operators_of_a_host_beside_a_device_are_host_work(data_dir: Path, rank: int) -> None:
    """They call a device or wait for it: they neither compute, nor stall where they wait."""
    job = api.load(data_dir / f"traces/chakra/dlrm_linked_rank{rank}.json.gz")

    told = api.overview(job)

    assert f"rank {rank}'s host work" in str(told).lower()
    assert "idle: data loading" in str(told)
    assert "uneven compute" not in str(told)
    assert not api.stalls(job.measured).rows
