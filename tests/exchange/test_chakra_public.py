"""Public recordings and Chakra files of real runs come back from a round trip as they were."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from foretrace.exchange import write_chakra
from foretrace.exchange.chakra.messages import copied_metadata, write_nodes
from foretrace.graph import build_recording, chakra_recording, verify
from foretrace.simulate import simulate
from foretrace.trace import load_traces, read_chakra
from tests.exchange.chakra_round_trip import again, described


def test_a_real_file_is_written_again_byte_by_byte(data_dir: Path) -> None:
    path = data_dir / "traces/chakra/chakra.0.et.gz"

    trace = read_chakra(path)
    out = io.BytesIO()
    out.write(copied_metadata(trace.metadata))
    write_nodes(out, trace.nodes)

    assert len(trace.nodes) == 3664
    assert out.getvalue() == gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("name", ["megatron-tp8", "a100-resnet-ddp2-rank0", "a100-dlrm-rank3-of-8"])
def test_public_recordings_replay_to_the_nanosecond_after_a_round_trip(
    data_dir: Path, tmp_path: Path, name: str
) -> None:
    recording = build_recording(load_traces(data_dir / "traces" / name))

    back = again(tmp_path, recording.graph, recording.measured)

    assert described(simulate(back.graph)) == described(simulate(recording.graph))


def test_a_chakra_file_of_a_real_run_comes_back_byte_by_byte(
    data_dir: Path, tmp_path: Path
) -> None:
    path = data_dir / "traces/chakra/feeder_tests_trace.tar.gz"
    trace = read_chakra(path)
    recording = chakra_recording([trace])

    write_chakra(tmp_path / "job", recording.graph, origin=recording.chakra)

    verify(recording.graph)
    assert int(np.diff(recording.graph.first_edge).sum()) > 180_000
    back = read_chakra(tmp_path / "job.0.et").nodes
    for name in ("node_id", "kind", "duration_micros", "control", "data", "values"):
        assert np.array_equal(getattr(back, name), getattr(trace.nodes, name))
    assert np.array_equal(back.attributes.value, trace.nodes.attributes.value)
    assert np.array_equal(back.attributes.field, trace.nodes.attributes.field)
