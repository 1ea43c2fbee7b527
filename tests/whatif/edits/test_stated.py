from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analyze import Selection
from foretrace.base import ScenarioError, WorkloadError
from foretrace.whatif import (
    Attention,
    Batch,
    CudaGraphs,
    DataLoading,
    Delay,
    Edit,
    Fuse,
    Lasts,
    Layers,
    MoveSync,
    Network,
    OnMachine,
    Parallelism,
    PlanKeys,
    RemoveSync,
    SetMachine,
    Sizes,
    Speed,
    UnevenDocuments,
    Widths,
    edit_keys,
    edits_of,
    pairs_of,
    stated_of,
)
from foretrace.whatif.edits.edit import duration_ns_of

GEMM = Selection(named="gemm")


@pytest.mark.parametrize(
    ("keys", "edit"),
    [
        ({"layers": 96}, Layers(96)),
        ({"hidden": 8, "ffn": 32}, Widths(hidden=8, feed_forward=32)),
        ({"kv_heads": 2, "heads": 4}, Widths(heads=4, key_value_heads=2)),
        ({"vocabulary": 9, "experts": 8, "head_width": 3}, Widths(
            vocabulary=9, experts=8, head_width=3)),
        ({"tp": 2, "pp": 4, "schedule": "1f1b"}, Parallelism(tp=2, pp=4, schedule="1f1b")),
        ({"cp": 2, "dp": 3, "ep": 4, "chunks": 5}, Parallelism(cp=2, dp=3, ep=4, chunks=5)),
        ({"sequence_parallel": False}, Parallelism(sequence_parallel=False)),
        ({"recompute": "full"}, PlanKeys({"memory.recompute": "full"})),
        ({"sharding": "zero1", "set": {"bucket_bytes": 9}}, PlanKeys(
            {"sharding.level": "zero1", "bucket_bytes": 9})),
        ({"microbatches": 8, "micro_batch": 2}, Batch(micro_batch=2, num_microbatches=8)),
        ({"global_batch": 64, "sequence": 99}, Batch(global_batch=64, sequence=99)),
        ({"set": {"network.pod.bandwidth": "400Gb/s"}}, SetMachine(
            {"network.pod.bandwidth": "400Gb/s"})),
        ({"speed": {"gemm": 1.25}}, Speed(1.25, GEMM)),
        ({"slow_rank": {"3": 2}}, Speed(0.5, Selection(ranks=(3,)))),
        ({"takes": {"gemm": "2 ms"}}, Lasts(2_000_000, GEMM)),
        ({"move_sync": "*Stream*"}, MoveSync(calls="*Stream*")),
        ({"delay": {"gemm": "2 ms"}}, Delay(2_000_000, GEMM)),
        ({"fuse": {"gemm": 0.5}}, Fuse(GEMM, 0.5)),
        ({"attention": "plain"}, Attention(flash=False)),
        ({"cuda_graphs": True}, CudaGraphs()),
        ({"cuda_graphs": "gemm"}, CudaGraphs(GEMM)),
        ({"remove_sync": True}, RemoveSync()),
        ({"remove_sync": "cudaDeviceSynchronize"}, RemoveSync("cudaDeviceSynchronize")),
        ({"data_loading": 0.5}, DataLoading(factor=0.5)),
        ({"data_loading": "5 ms"}, DataLoading(5_000_000)),
        ({"data_loading": "workers"}, DataLoading(by_workers=True)),
        ({"documents": "lognormal:8,1"}, UnevenDocuments("lognormal:8,1")),
        ({"transfers": {"dp": 2}}, Network(factor=2.0, groups=("dp",))),
        ({"transfers": {"all": 2}}, Network(factor=2.0)),
        ({"transfer_delay": {"all": "1ms"}}, Network(extra_ns=1_000_000)),
    ],
)  # fmt: skip
def test_a_key_becomes_its_edit(keys: dict[str, object], edit: Edit) -> None:
    assert edits_of(keys, "here") == (edit,)


def test_a_machine_is_looked_up_by_name(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('extends = "superpod-h100"\n', encoding="utf-8")

    (edit,) = edits_of({"on_machine": "own"}, "here", folders=(tmp_path,))

    assert isinstance(edit, OnMachine)
    assert edit.machine.chip.name == "h100-sxm"


def test_edits_come_in_one_order_whatever_was_written_first() -> None:
    keys: dict[str, object] = {
        "speed": {"gemm": 2.0},
        "set": {"overlap.gradients": False},
        "global_batch": 8,
        "dp": 2,
        "hidden": 64,
        "layers": 4,
    }
    backwards = dict(reversed(keys.items()))

    found = edits_of(keys, "here")

    assert found == edits_of(backwards, "here")
    kinds = [type(edit) for edit in found]
    assert kinds == [Layers, Widths, Parallelism, PlanKeys, Batch, Speed]


def test_nothing_stated_is_no_edit() -> None:
    assert edits_of(dict.fromkeys(edit_keys()), "here") == ()


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"layer": 4}, "did you mean 'layers'"),
        ({"layers": 0}, "'layers' of here is 0, where a whole number of at least 1 is expected"),
        ({"layers": 1.5}, "where a whole number"),
        ({"tp": "2"}, "'tp' of here is '2'"),
        ({"dp": True}, "'dp' of here is True"),
        ({"schedule": 3}, "the name of a schedule"),
        ({"sequence_parallel": "yes"}, "true or false"),
        ({"recompute": "all"}, "one of none, selective, full"),
        ({"sharding": "zero9"}, "zero3"),
        ({"set": {"overlap.gradient": False}}, "did you mean"),
        ({"set": 3}, "a table of keys"),
        ({"speed": {"gemm": 0}}, "how many times as fast"),
        ({"speed": {"gemm": "fast"}}, "how many times as fast"),
        ({"speed": 2}, "how many times as fast"),
        ({"speed": {"layers:x": 2}}, "here: 'x' are no numbers"),
        ({"slow_rank": {"one": 2}}, "'one' are no numbers"),
        ({"delay": {"all": 2}}, "write a number with its unit"),
        ({"data_loading": []}, "a time, as in '5 ms', a factor, or 'workers'"),
        ({"data_loading": "soon"}, "no time"),
        ({"cuda_graphs": 3}, "true, or the work"),
        ({"attention": "linear"}, "flash or plain"),
        ({"transfers": {"dp": -2}}, "how many times as long"),
        ({"takes": {"all": 3}}, "write a number with its unit"),
        ({"transfer_delay": {"dp": "soon"}}, "no time"),
        ({"on_machine": "nowhere"}, "no machine is called 'nowhere'"),
    ],
)
def test_what_a_key_cannot_hold_is_refused(keys: dict[str, object], told: str) -> None:
    with pytest.raises(ScenarioError, match="here") as refused:
        edits_of(keys, "here")

    assert told in str(refused.value)


def test_pairs_are_split_at_the_last_sign() -> None:
    assert pairs_of(["kernels:*a=b*=1.5", "all=2ms"], "--speed") == {
        "kernels:*a=b*": 1.5,
        "all": "2ms",
    }


@pytest.mark.parametrize("texts", [["gemm"], ["=2"], ["gemm="], ["gemm=1", "gemm=2"]])
def test_pairs_need_both_and_each_once(texts: list[str]) -> None:
    with pytest.raises(ScenarioError, match="--speed"):
        pairs_of(texts, "--speed")


def test_what_was_recorded_is_stated_by_key_and_size() -> None:
    draft, sizes = stated_of(["tp=2", "hidden=4096", "ffn=8", "batch.sequence=128"])

    assert sizes == Sizes(hidden=4096, feed_forward=8)
    assert draft is not None
    assert dict(draft.stated) == {"tensor": 2, "sequence": 128}
    assert stated_of([]) == (None, None)


def test_a_size_or_key_that_was_not_recorded_is_refused() -> None:
    with pytest.raises(ScenarioError, match="'hidden' of --stated is 'wide'"):
        stated_of(["hidden=wide"])
    with pytest.raises(WorkloadError, match="no key 'tpp'"):
        stated_of(["tpp=2"])


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("2ms", 2_000_000), ("1.5 us", 1_500), ("-300 ns", -300), (" 1 s ", 10**9), ("0ms", 0)],
)
def test_times_have_units(text: str, duration_ns: int) -> None:
    assert duration_ns_of(text) == duration_ns


@pytest.mark.parametrize("text", ["2", "ms", "2 m", "2,5 ms", 2, None])
def test_a_time_without_a_unit_is_refused(text: object) -> None:
    with pytest.raises(ScenarioError, match="write a number with its unit"):
        duration_ns_of(text)


@given(st.integers(-(10**15), 10**15))
def test_whole_nanoseconds_are_kept(duration_ns: int) -> None:
    assert duration_ns_of(f"{duration_ns} ns") == duration_ns
