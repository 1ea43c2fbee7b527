"""What Perfetto's own trace processor reads in our files, in both formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.exchange import Flow, Slices, Track, write_trace
from foretrace.graph import Recording, Timeline, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.exchange.test_perfetto import simulated, two_ranks
from tests.exchange.test_tracks import ns, path_of
from tests.exchange.trace_processor import Rows, answers
from tests.graphs import timeline_of

ERRORS = (
    "select name, value from stats where value != 0 "
    "and (severity in ('error', 'data_loss') or name = 'misplaced_end_event')"
)
SLICES = "select name, ts, dur from slice order by ts, dur, name"
FLOWS = (
    "select origin.name, target.name from flow "
    "join slice origin on origin.id = slice_out join slice target on target.id = slice_in "
    "order by 1, 2"
)
COUNTERS = (
    "select track.name, count(), max(value) from counter "
    "join track on track.id = track_id group by 1 order by 1"
)
PROCESSES = "select name from process where pid > 0 order by pid"
# Perfetto's own format has tracks for them, which its interface shows in this order.
OUTER_TRACKS = (
    "select name from track where parent_id is null "
    "order by extract_arg(source_arg_set_id, 'sibling_order_rank')"
)
ARGUMENTS = (
    "select distinct replace(replace(key, 'args.', ''), 'debug.', '') as short, display_value "
    "from slice join args using (arg_set_id) where name = 'allreduce' order by 1, 2"
)


def nested() -> Slices:
    """A slice that holds another, and one without length where it ends."""
    return Slices(
        "made up", 0, ("outer", "inner", "mark"), ns(0, 1, 2), ns(0, 0, 90), ns(90, 90, 90)
    )


def written(folder: Path, suffix: str) -> Path:
    """Both timelines of two ranks with every kind of thing that can be drawn."""
    replayed = simulated(two_ranks())
    measured = timeline_of(replayed.graph, replayed.start_ns + 1)
    tracks: dict[str, list[Track]] = {"replayed": [path_of(replayed), nested()]}
    path = folder / f"t{suffix}"
    write_trace(
        path,
        {"measured": measured, "replayed": replayed},
        flows=tuple(Flow),
        tracks_by_title=tracks,
    )
    return path


def without_parts(flows: Rows) -> list[list[str]]:
    """The parts of a collective under its own name."""
    parts = {"wait": "allreduce", "transfer": "allreduce"}
    return sorted([parts.get(str(name), str(name)) for name in row] for row in flows)


def test_both_formats_say_the_same_to_it(tmp_path: Path) -> None:
    queries = (ERRORS, SLICES, FLOWS, ARGUMENTS)

    of_json = answers(written(tmp_path, ".json"), *queries, PROCESSES)
    of_protobuf = answers(written(tmp_path, ".pftrace.gz"), *queries, OUTER_TRACKS)

    assert of_protobuf[0] == of_json[0] == []
    assert of_protobuf[1] == of_json[1]
    assert ['gemm<"a\\b">', 1001, 6234] in of_json[1]
    assert of_protobuf[4] == of_json[4]
    assert of_json[4][:2] == [["critical path replayed"], ["rank 0 measured"]]
    assert of_protobuf[3] == of_json[3]
    assert ["wait_ns", "1234"] in of_json[3]
    # In JSON a flow starts at a moment, where the innermost slice is a part of a collective.
    assert without_parts(of_json[2]) == without_parts(of_protobuf[2])
    assert ["cudaLaunchKernel", 'gemm<"a\\b">'] in of_protobuf[2]
    assert ["allreduce", "transfer"] in of_protobuf[2]


def test_slices_nest_as_they_were_given(tmp_path: Path) -> None:
    (rows,) = answers(
        written(tmp_path, ".pftrace"),
        "select slice.name, depth, dur from slice join track on track.id = track_id "
        "where track.name = 'made up' order by slice.id",
    )

    assert rows == [["outer", 0, 90], ["inner", 1, 90], ["mark", 0, 0]]


def test_counters_keep_their_values_and_units(tmp_path: Path) -> None:
    (json_rows,) = answers(written(tmp_path, ".json"), COUNTERS)
    (rows,) = answers(written(tmp_path, ".perfetto-trace"), COUNTERS)

    assert [row[1:] for row in rows] == [row[1:] for row in json_rows]
    assert [row[0] for row in rows] == ["busy", "launch queue"]
    assert [row[0] for row in json_rows] == ["busy %", "launch queue launches"]


@pytest.fixture(scope="module")
def megatron(data_dir: Path) -> tuple[Recording, Timeline]:
    recording = build_recording(load_traces(data_dir / "traces" / "megatron-tp8"))
    return recording, simulate(recording.graph)


@pytest.mark.parametrize(("suffix", "query"), [(".json.gz", PROCESSES), (".pftrace", OUTER_TRACKS)])
def test_a_real_job_is_read_whole(
    megatron: tuple[Recording, Timeline], suffix: str, query: str, tmp_path: Path
) -> None:
    recording, replayed = megatron
    path = tmp_path / f"t{suffix}"

    num_slices = write_trace(path, {"measured": recording.measured, "replayed": replayed})

    errors, counts, times, processes = answers(
        path,
        ERRORS,
        "select count(), (select count() from flow) from slice",
        "select min(ts), max(ts + dur) from slice where ts >= 0",
        query,
    )
    end_ns = max(int(one.end_ns.max()) for one in (recording.measured, replayed))
    names: Rows = [
        [f"rank {rank} {title}"] for rank in range(8) for title in ("measured", "replayed")
    ]
    assert errors == []
    assert counts[0][0] == num_slices
    assert int(str(counts[0][1])) > 10_000
    assert times == [[0, end_ns]]
    assert processes == names
