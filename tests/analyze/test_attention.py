from __future__ import annotations

import json
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import attention
from foretrace.graph import NodeKind
from foretrace.simulate import simulate
from tests.graphs import GraphBuilder

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>"


def _shapes(length: int, *, backward: bool = False) -> str:
    tensors = [[2, length, 4, 64]] * (4 if backward else 3)
    return json.dumps({"dims": tensors, "types": ["c10::Half"] * len(tensors)})


def _add(build: GraphBuilder, name: str, operator: str, shapes: str, takes_ns: int) -> int:
    after = [len(build) - 1] if len(build) else []
    return build.add(
        NodeKind.KERNEL,
        lane="stream 7",
        name=name,
        operator=operator,
        shapes=shapes,
        takes_ns=takes_ns,
        after=after,
    )


def test_lengths_are_listed_call_by_call_in_order() -> None:
    build = GraphBuilder()
    for length in (4096, 1024, 256, 1024, 4096):
        _add(build, FLASH, "aten::_flash_attention_forward", _shapes(length), length)

    profile = attention(simulate(build.graph()))

    assert profile.query_length.tolist() == [4096, 1024, 256, 1024, 4096]
    assert profile.time_ns.tolist() == [4096, 1024, 256, 1024, 4096]
    assert profile.start_ns.tolist() == [0, 4096, 5120, 5376, 6400]
    assert profile.share == 1
    assert profile.by_length().to_polars()["num_calls"].to_list() == [2, 2, 1]


def test_kernels_of_one_backward_call_are_one_row() -> None:
    build = GraphBuilder()
    names = ("flash_bwd_dot_do_o_kernel", "flash_bwd_dq_dk_dv_loop", "flash_bwd_convert_dq_kernel")
    for name in names * 2:
        operator, shapes = "aten::_flash_attention_backward", _shapes(512, backward=True)
        _add(build, name, operator, shapes, 10)

    profile = attention(simulate(build.graph()))

    assert profile.time_ns.tolist() == [30, 30]
    assert profile.is_backward.tolist() == [True, True]
    assert profile.kv_heads.tolist() == [4, 4]


def test_unfused_attention_shows_by_its_scores_and_a_classifier_does_not() -> None:
    build = GraphBuilder()
    softmax = "void at::native::cunn_SoftMaxForward<4, float, float>"
    scores = '{"dims":[[2,8,128,256],[],[]],"types":["float","Scalar","Scalar"]}'
    classes = '{"dims":[[32,1000],[],[]],"types":["float","Scalar","Scalar"]}'
    _add(build, softmax, "aten::_softmax", scores, 10)
    _add(build, softmax, "aten::_softmax", classes, 10)

    profile = attention(simulate(build.graph()))

    assert (profile.query_length.tolist(), profile.kv_length.tolist()) == ([128], [256])
    assert profile.is_fused.tolist() == [False]
    assert profile.share == 0.5


def test_graph_without_attention_has_an_empty_profile() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=10)

    profile = attention(simulate(build.graph()))

    assert len(profile) == 0
    assert profile.share == 0
    assert json.loads(json.dumps(profile.as_json()))["calls"] == []


@pytest.mark.slow
def test_traces_attention_has_the_models_lengths(data_dir: Path) -> None:
    megatron = attention(ft.load(data_dir / "traces" / "megatron-tp8").measured)
    path = data_dir / "traces" / "h100-inference" / "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    qwen = attention(ft.load(path).measured)

    assert len(megatron) == 8 * 40
    assert set(megatron.query_length.tolist()) == {2048}
    assert len(qwen) == 24
    assert set(qwen.query_length.tolist()) == {559}
    assert set(qwen.heads.tolist()) == {16}
