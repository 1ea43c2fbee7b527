from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrace.base import TraceError
from foretrace.exchange import Anonymised, anonymise, write_chakra
from foretrace.graph import build_recording, chakra_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces, read_chakra, read_execution_nodes
from tests.truth import JobConfig, make_job, write

SECRETS = (
    "acme-gpu-17.acme.com", "jane", "/home/jane/secret_project/train.py(12): train_titan",
    "## titan mixer ##", "void acme::titan_mixer<float>(float*)", "TitanMixer",
    "TitanMixerBackward", "acme::mix", "titan-experts", "acme_job_42", "/home/jane/run.log",
)  # fmt: skip


def event(name: str, category: str, at: float, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": at, "dur": 3.5,
        "args": more,
    }  # fmt: skip


def secretive(folder: Path) -> Path:
    """A small trace full of names that are nobody else's business."""
    first = 1_700_000_000_000.125
    events = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": SECRETS[1]}},
        event("ProfilerStep#3", "user_annotation", first) | {"dur": 400},
        event(SECRETS[2], "python_function", first + 1),
        event(SECRETS[3], "user_annotation", first + 2, **{"Call stack": SECRETS[2]}),
        event("aten::mm", "cpu_op", first + 10, **{"Input Dims": [[8, 4096], [4096, 16384]]}),
        event(SECRETS[5], "cpu_op", first + 20, **{"External id": 4}),
        event(SECRETS[6], "cpu_op", first + 30),
        event(f"autograd::engine::evaluate_function: {SECRETS[6]}", "cpu_op", first + 29),
        event(SECRETS[7], "cpu_op", first + 40, **{"Concrete Inputs": ["", "1.5", SECRETS[9]]}),
        event("cudaLaunchKernel", "cuda_runtime", first + 50, correlation=9, secret=SECRETS[0]),
        event(SECRETS[4], "kernel", first + 60, correlation=9, stream=7, device=0)
        | {"pid": 0, "tid": 7},
    ]
    content = {
        "schemaVersion": 1,
        "host_name": SECRETS[0],
        "traceName": SECRETS[10],
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "uuid": SECRETS[9]}],
        "distributedInfo": {
            "rank": 0, "world_size": 1, "backend": "nccl",
            "pg_config": [{"pg_name": "0", "pg_desc": SECRETS[8], "ranks": [0]}],
        },
        "traceEvents": events,
    }  # fmt: skip
    path = folder / f"{SECRETS[9]}-rank0.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def written(done: Anonymised) -> list[dict[str, Any]]:
    return [json.loads(gzip.decompress(path.read_bytes())) for path in done.paths]


def names_in(content: dict[str, Any]) -> list[str]:
    return [one["name"] for one in content["traceEvents"]]


def test_no_secret_is_left_in_any_file_or_its_name(tmp_path: Path) -> None:
    done = anonymise(secretive(tmp_path), tmp_path / "out")

    raw = gzip.decompress(done.paths[0].read_bytes()).decode()
    assert [secret for secret in SECRETS if secret in raw] == []
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rank0.kineto.json.gz"]
    assert done.found_again == ()
    assert set(SECRETS) <= {*done.replaced, *done.removed}


def test_public_names_stay_and_others_become_neutral_ones_of_their_kind(tmp_path: Path) -> None:
    done = anonymise(secretive(tmp_path), tmp_path / "out")

    assert names_in(written(done)[0])[1:] == [
        "ProfilerStep#3", "python_1", "name_1", "aten::mm", "name_2", "name_2Backward",
        "autograd::engine::evaluate_function: name_2Backward", "own::name_1", "cudaLaunchKernel",
        "kernel_1",
    ]  # fmt: skip


def test_times_move_together_and_keep_their_decimals(tmp_path: Path) -> None:
    done = anonymise(secretive(tmp_path), tmp_path / "out")

    spans = [(one["ts"], one["dur"]) for one in written(done)[0]["traceEvents"][1:]]
    assert spans[:3] == [(1_000_000.125, 400), (1_000_001.125, 3.5), (1_000_002.125, 3.5)]


def test_keep_and_drop_patterns_overrule_what_is_known(tmp_path: Path) -> None:
    done = anonymise(
        secretive(tmp_path),
        tmp_path / "out",
        keep=["acme::*", "Titan*"],
        drop=["NVIDIA*", "*Back*"],
    )

    [content] = written(done)
    assert "acme::mix" in names_in(content)
    assert "TitanMixer" in names_in(content)
    assert "TitanMixerBackward" not in names_in(content)
    assert content["deviceProperties"] == [{"id": 0, "name": "device_1"}]
    kept = [hint for hint in done.hints if hint.topic == "kept names"]
    assert "acme::mix" in kept[0].text


def test_names_of_an_earlier_run_are_given_again(tmp_path: Path) -> None:
    first = anonymise(secretive(tmp_path), tmp_path / "one", keep=["## titan*"])

    second = anonymise(secretive(tmp_path), tmp_path / "two", known_names=first.neutral)

    assert second.replaced["TitanMixer"] == first.replaced["TitanMixer"] == "name_1"
    assert second.replaced["## titan mixer ##"] == "name_2"


def test_scaled_shapes_keep_equal_dimensions_equal(tmp_path: Path) -> None:
    done = anonymise(secretive(tmp_path), tmp_path / "out", scale_shapes=0.5)

    dims = [one["args"].get("Input Dims") for one in written(done)[0]["traceEvents"]]
    assert [[4, 2048], [2048, 8192]] in dims


def test_the_check_names_a_published_model_by_its_dimensions(tmp_path: Path) -> None:
    path = secretive(tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    shapes = [[1, 4096], [4096, 14336], [14336, 4096], [4096, 128256]]  # Llama 3 8B
    content["traceEvents"][4]["args"]["Input Dims"] = shapes
    path.write_text(json.dumps(content), encoding="utf-8")

    plain = anonymise(path, tmp_path / "plain")
    scaled = anonymise(path, tmp_path / "scaled", scale_shapes=0.9)

    assert "llama3-8b" in next(hint.text for hint in plain.hints if hint.topic == "model")
    assert [hint for hint in scaled.hints if hint.topic == "model"] == []


def test_a_whole_job_replays_alike_node_by_node(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write(make_job(JobConfig(tp=2, dp=1, num_layers=2, num_steps=1)), source)

    anonymise(source, tmp_path / "out")

    before = build_recording(load_traces(source))
    after = build_recording(load_traces(tmp_path / "out"))
    assert simulate(after.graph).end_ns.tolist() == simulate(before.graph).end_ns.tolist()
    assert after.measured.end_ns.tolist() == before.measured.end_ns.tolist()


def test_chakra_files_keep_their_structure_and_lose_their_names(tmp_path: Path) -> None:
    path = secretive(tmp_path)
    recording = build_recording(load_traces(path))
    write_chakra(tmp_path / "chakra" / "job", recording.graph, timeline=recording.measured)

    done = anonymise(tmp_path / "chakra", tmp_path / "out")

    raw = done.paths[0].read_bytes().decode("latin-1")
    assert [secret for secret in SECRETS if secret in raw] == []
    assert "cudaLaunchKernel" in raw
    assert json.loads((tmp_path / "out" / "trace.groups.json").read_text("utf-8")) == {}
    again = chakra_recording([read_chakra(done.paths[0])])
    assert simulate(again.graph).end_ns.tolist() == simulate(recording.graph).end_ns.tolist()


def test_a_feeder_s_json_becomes_a_file_that_readers_take(tmp_path: Path) -> None:
    nodes = [
        {"Id": 5, "Name": "acme::mix(0)", "NodeType": 4, "runtime": 7, "is_cpu_op": True},
        {"Id": 6, "Name": "aten::mm(1)", "NodeType": 4, "runtime": 9, "data_deps": [5]},
    ]
    path = tmp_path / "acme.json"
    path.write_text(json.dumps({"workload_graph": nodes}), encoding="utf-8")

    done = anonymise(path, tmp_path / "out")

    made = read_chakra(done.paths[0]).nodes
    assert [made.texts[int(name)] for name in made.name] == [
        "own::name_1(0)",
        "aten::mm(1)",
    ]
    assert (made.node_id.tolist(), made.data.tolist()) == ([5, 6], [5])
    assert made.duration_micros.tolist() == [7, 9]


def execution_trace(folder: Path) -> Path:
    """Two operators of schema 1.1.1, one of them somebody's."""
    tensor = [5, 6, 0, 32768, 4, "cuda:0"]

    def node(number: int, name: str, schema: str, values: list[Any]) -> dict[str, Any]:
        side = {"values": values, "shapes": [[8, 4096], []], "types": ["Tensor(float)", "String"]}
        attributes = [
            ("rf_id", "uint64", number), ("op_schema", "string", schema),
            ("kernel_file", "string", "/home/jane/titan.py"), ("mood", "string", "jane's"),
        ]  # fmt: skip
        return {
            "id": number, "name": name, "ctrl_deps": 1, "inputs": side,
            "outputs": {"values": [], "shapes": [], "types": []},
            "attrs": [dict(zip(("name", "type", "value"), one, strict=True)) for one in attributes],
        }  # fmt: skip

    mine = "acme::mix(Tensor titan_weight, str jane) -> Tensor"
    content = {
        "schema": "1.1.1-chakra.0.0.4", "pid": 4711, "time": "2026-01-02 03:04:05", "start_ts": 1,
        "nodes": [
            node(2, "acme::mix", mine, [tensor, "titan-experts"]),
            node(3, "aten::relu", "aten::relu(Tensor self) -> Tensor", [tensor, "cuda"]),
        ],
        "finish_ts": 2,
    }  # fmt: skip
    path = folder / "et_rank0.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_execution_traces_lose_names_and_argument_names_only(tmp_path: Path) -> None:
    path = execution_trace(tmp_path)

    done = anonymise(path, tmp_path / "out")

    raw = gzip.decompress(done.paths[0].read_bytes()).decode()
    assert [word for word in ("jane", "titan", "acme", "4711", "2026") if word in raw] == []
    own, public = read_execution_nodes(done.paths[0])
    assert own.schema == "own::name_1(Tensor argument_0, str argument_1) -> Tensor"
    assert public.schema == "aten::relu(Tensor self) -> Tensor"
    assert own.inputs[0].value == public.inputs[0].value == [5, 6, 0, 32768, 4, "cuda:0"]


def test_scaled_tensors_hold_as_many_elements_as_their_shape(tmp_path: Path) -> None:
    done = anonymise(execution_trace(tmp_path), tmp_path / "out", scale_shapes=0.5)

    argument = read_execution_nodes(done.paths[0])[0].inputs[0]
    assert argument.shape == [4, 2048]
    assert argument.value == [5, 6, 0, 4 * 2048, 4, "cuda:0"]


def test_a_file_that_is_cut_off_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = secretive(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])

    with pytest.raises(TraceError, match="cut off or damaged"):
        anonymise(path, tmp_path / "out")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}', encoding="utf-8")

    with pytest.raises(TraceError, match="no Kineto trace, no execution trace"):
        anonymise(other, tmp_path / "out")


CORPUS = [
    pytest.param("a100-dlrm-rank3-of-8", 60, marks=pytest.mark.slow),
    pytest.param("v100-ddp2-rank1", 2, marks=pytest.mark.slow),
    pytest.param("megatron-tp8", 10, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "least"), CORPUS)
def test_public_traces_replay_to_the_nanosecond_without_their_names(
    data_dir: Path, tmp_path: Path, name: str, least: int
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    files = data_dir / "traces" / name
    for path in [*files.glob("*rank[01].json.gz")] or [*files.iterdir()]:  # two ranks that meet
        (source / path.name).symlink_to(path)

    done = anonymise(source, tmp_path / "out")

    before = simulate(build_recording(load_traces(source)).graph)
    after = simulate(build_recording(load_traces(tmp_path / "out")).graph)
    assert np.array_equal(after.start_ns, before.start_ns)
    assert np.array_equal(after.end_ns, before.end_ns)
    assert len(done.replaced) >= least
    raw = b"".join(gzip.decompress(path.read_bytes()) for path in done.paths)
    kept = b"Trace PyTorch Profiler (0)"
    gone = [text for text in (*done.replaced, *done.removed) if len(text) > 3]
    assert [text for text in gone if text.encode() in raw and text.encode() not in kept] == []


def test_our_own_example_replays_to_the_nanosecond(repository: Path, tmp_path: Path) -> None:
    source = repository / "examples" / "planted" / "nothing"

    done = anonymise(source, tmp_path / "out")

    before = simulate(build_recording(load_traces(source)).graph)
    after = simulate(build_recording(load_traces(tmp_path / "out")).graph)
    assert np.array_equal(after.end_ns, before.end_ns)
    assert done.found_again == ()
