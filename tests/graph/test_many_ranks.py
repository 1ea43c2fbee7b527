"""Loading and breaking down many ranks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from foretrace.analyze import breakdown
from foretrace.graph import build_recording
from foretrace.trace import load_traces
from tests.growth import grows_in_proportion
from tests.truth import JobConfig, make_job, write_widened


def broken_down(folder: Path) -> None:
    breakdown(build_recording(load_traces(folder, workers=1)).measured)


def test_ranks_cost_in_proportion(tmp_path: Path) -> None:
    job = make_job(JobConfig(tp=2, dp=2, num_layers=1, num_steps=1))
    folders = [tmp_path / str(num_ranks) for num_ranks in (4, 16, 32, 64)]
    for folder in folders:
        write_widened(job, folder, num_ranks=int(folder.name))
    broken_down(folders[0])  # what is made once

    assert grows_in_proportion([partial(broken_down, folder) for folder in folders[1:]])


def test_groups_that_every_file_lists_are_held_once(tmp_path: Path) -> None:
    job = make_job(JobConfig(tp=2, dp=2, num_layers=1, num_steps=1))
    write_widened(job, tmp_path, num_ranks=8)

    held = {id(group) for one in load_traces(tmp_path) for group in one.meta.process_groups}

    assert len(held) == 1 + 4 + 2 * 2  # the world, tensor groups, two kinds of replicas' groups
