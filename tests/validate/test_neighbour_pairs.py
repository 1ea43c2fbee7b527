"""Which runs count as neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.validate import neighbour_pairs, read_runs
from tests.validate.runs.sample import DESCRIPTION, write_table

OTHER = {"id": "made-up-2"}


def dimensions(folder: Path, *rows: dict[str, object]) -> set[tuple[str, str, str]]:
    """What every pair of a table differs in."""
    runs = read_runs(write_table(folder / "runs.csv", *rows), DESCRIPTION)
    return {(one.run.id, one.neighbour.id, one.dimension) for one in neighbour_pairs(runs)}


@pytest.mark.parametrize(
    ("change", "dimension"),
    [
        ({"layers": 16}, "layers"),
        ({"hidden": 8192, "heads": 64, "ffn": 28672}, "hidden"),
        ({"tp": 4, "num_gpus": 16}, "tp"),
        ({"pp": 4, "num_gpus": 16}, "pp"),
        ({"dp": 4, "num_gpus": 16}, "dp"),  # the batch of all ranks stays
        ({"dp": 4, "num_gpus": 16, "global_batch": 96}, "dp"),  # the batch of each rank stays
        ({"micro_batch": 2}, "microbatch"),
        ({"micro_batch": 2, "global_batch": 96}, "microbatch"),
        ({"global_batch": 96}, "microbatches"),
        ({"seq_len": 4096}, "sequence"),
        ({"recompute": "full"}, "recompute"),
        ({"tp": 1, "pp": 4}, "tp for pp"),
        ({"tp": 4, "dp": 1, "global_batch": 24}, "tp for dp"),
    ],
)
def test_one_thing_that_differs_is_named(
    tmp_path: Path, change: dict[str, object], dimension: str
) -> None:
    found = dimensions(tmp_path, {}, {**OTHER, **change})

    assert found == {
        ("made-up-1", "made-up-2", dimension),
        ("made-up-2", "made-up-1", dimension),
    }


@pytest.mark.parametrize(
    "change",
    [
        {},  # measured twice
        {"layers": 16, "hidden": 8192},
        {"layers": 16, "global_batch": 96},
        {"tp": 4, "pp": 4, "num_gpus": 32},  # two degrees, and more GPUs
        {"dp": 4, "num_gpus": 16, "global_batch": 24},  # neither batch stays
        {"layers": 16, "gpu": "H100"},
        {"layers": 16, "precision": "fp8"},
        {"layers": 16, "software": "mlperf"},
        {"layers": 16, "group": "elsewhere|one"},
        {"layers": 16, "step_time_s": "", "tokens_per_s_per_gpu": ""},
        {"layers": 16, "micro_batch": ""},
    ],
)
def test_other_runs_are_no_neighbours(tmp_path: Path, change: dict[str, object]) -> None:
    assert dimensions(tmp_path, {}, {**OTHER, **change}) == set()
