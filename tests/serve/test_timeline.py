"""An engine's timeline as Perfetto reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretrace.serve import Engine, EngineRun, PipelineStages, engine_run, write_engine_trace
from tests.exchange.trace_processor import answers
from tests.serve.made import grown_times, requests_of

STEPS = (
    "select slice.name, ts, dur from slice join thread_track on thread_track.id = track_id "
    "join thread using (utid) where thread.name like 'steps%' order by ts"
)
REQUESTS = "select name, ts, dur from slice where name like 'request%' order by ts, name"
NESTED = (
    "select count() from slice where parent_id is not null and name in ('to the first','reply')"
)
COUNTERS = (
    "select track.name, max(value), min(value) from counter join track on track.id = track_id "
    "group by 1 order by 1"
)
PROMPTS = (
    "select sum(cast(display_value as int)) from slice join args using (arg_set_id) "
    "where key like '%tokens of prompts'"
)
ERRORS = (
    "select name, value from stats where value != 0 "
    "and (severity in ('error', 'data_loss') or name = 'misplaced_end_event')"
)


@pytest.fixture(scope="module")
def run() -> EngineRun:
    """Six requests through two stages, and one that comes when all are done."""
    times = grown_times()
    zeros = np.zeros(len(times.token_ns))
    staged = replace(times, pipeline=PipelineStages(np.full((2, 2), 0.5), zeros, zeros))
    requests = requests_of([0, 0, 10, 20, 30, 900, 9_000_000], [30] * 7, [5] * 7)
    engine = Engine(max_num_batched_tokens=40, max_num_seqs=4)
    return engine_run(requests, engine, staged, blocks=99)


def test_perfetto_reads_steps_requests_and_counters(run: EngineRun, tmp_path: Path) -> None:
    path = tmp_path / "engine.json.gz"
    [steps] = run.steps

    written = write_engine_trace(path, run)

    errors, told, requests, nested, counters, prompts = answers(
        path, ERRORS, STEPS, REQUESTS, NESTED, COUNTERS, PROMPTS
    )
    assert errors == []
    assert written == len(steps) + 3 * len(run.requests)
    assert [row[1:] for row in told] == np.stack([steps.start_ns, steps.duration_ns], 1).tolist()
    assert {row[0] for row in told} <= {"prefill", "decode", "prefill and decode"}
    spent = (run.last_ns - run.scheduled_ns).tolist()
    assert sorted(str(row[0]) for row in requests) == [f"request {at}" for at in range(7)]
    assert sum(int(str(row[2])) for row in requests) == sum(spent)
    assert nested == [[2 * len(run.requests)]]
    found = {str(row[0]): row[1:] for row in counters}
    assert found["waiting requests"] == [steps.num_waiting.max(), 0]
    assert found["cache in use blocks"] == [steps.used_blocks.max(), 0]
    assert found["running requests"] == [steps.num_running.max(), 0]
    assert prompts == [[int(run.requests.prompt_tokens.sum())]]


def test_both_formats_hold_as_much(run: EngineRun, tmp_path: Path) -> None:
    counted = [write_engine_trace(tmp_path / name, run) for name in ("e.pftrace", "e.json")]

    assert counted[0] == counted[1]
    queries = (ERRORS, REQUESTS, NESTED)
    assert answers(tmp_path / "e.pftrace", *queries) == answers(tmp_path / "e.json", *queries)
