"""Transfers between pipeline stages whose trace does not name the peer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretrace.graph import Recording, build_recording, verify
from foretrace.trace import load_traces
from foretrace.validate import replay_report
from tests.truth import Job, JobConfig, make_job, text

PEERS = re.compile(r', "(?:Src|Dst) Rank": -?\d+')
MEMBERS = re.compile(r', "Process Group Ranks": "[^"]*"')


@pytest.fixture(scope="module", params=[(2, 2, 2), (1, 2, 4), (1, 1, 4)], ids=str)
def job(request: pytest.FixtureRequest) -> Job:
    tp, dp, pp = request.param
    config = JobConfig(
        tp=tp, dp=dp, pp=pp, num_microbatches=4, num_layers=2, num_steps=2, global_norm=tp > 1
    )
    return make_job(config)


def recorded(job: Job, folder: Path, *dropped: re.Pattern[str]) -> Recording:
    for rank in range(job.num_ranks):
        written = text(job, rank)
        for pattern in dropped:
            written = pattern.sub("", written)
        (folder / f"rank{rank}.json").write_text(written, encoding="utf-8")
    recording = build_recording(load_traces(folder))
    verify(recording.graph)
    return recording


@pytest.mark.parametrize("dropped", [(PEERS,), (PEERS, MEMBERS)], ids=["peers", "members too"])
def test_stages_still_meet_when_their_transfers_name_no_peer(
    job: Job, tmp_path: Path, dropped: tuple[re.Pattern[str], ...]
) -> None:
    (tmp_path / "named").mkdir()
    (tmp_path / "unnamed").mkdir()

    named = recorded(job, tmp_path / "named")
    unnamed = recorded(job, tmp_path / "unnamed", *dropped)

    def meetings(recording: Recording) -> list[tuple[tuple[int, ...], int]]:
        return sorted(
            (each.recorded_ranks, each.num_bytes)
            for each in recording.graph.collectives
            if each.name == "sendrecv"
        )

    assert meetings(unnamed) == meetings(named)
    assert {len(ranks) for ranks, _ in meetings(unnamed)} == {2}
    summary = replay_report(unnamed, null_models=()).summary
    assert summary.worst_step_error_percent < 0.05
