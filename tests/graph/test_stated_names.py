"""Kernels that a file of names states: what they become, and what a file may not say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.base import GraphError
from foretrace.graph import ExecutionGraph, NodeKind, read_names
from foretrace.operators import OperatorClass, kernel_family, operator_class, with_class
from foretrace.trace import is_communication

KERNEL = "void acme::exchange_tokens<4>(float*)"


def events(name: str, number: int) -> list[dict[str, object]]:
    at = 100 * number
    common = {"ph": "X", "pid": 1, "tid": 1, "args": {"correlation": number}}
    return [
        {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 10},
        {**common, "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at + 20, "dur": 50}
        | {"args": {"correlation": number, "stream": 7, "device": 0}},
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = [one for at, name in enumerate((KERNEL, "gelu", KERNEL), 1) for one in events(name, at)]
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1}
    made.append({**mark, "ts": 90, "dur": 400})
    path = tmp_path / "rank0.json.gz"
    facts = {"distributedInfo": {"rank": 0, "world_size": 2, "backend": "nccl"}}
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": made, **facts}).encode()))
    return path


def written(folder: Path, text: str) -> Path:
    path = folder / "names.toml"
    path.write_text(text)
    return path


def names_of(graph: ExecutionGraph, kind: NodeKind) -> set[str]:
    return {graph.names[at] for at in graph.name[graph.kind == kind].tolist()}


def test_a_stated_collective_meets_its_ranks(run: Path, tmp_path: Path) -> None:
    names = written(tmp_path, '[[rule]]\nname = "*acme::Exchange*"\nclass = "collective"\n')

    before = ft.load(run, cache=False).graph
    after = ft.load(run, cache=False, names=names).graph

    assert names_of(before, NodeKind.KERNEL) == {KERNEL, "gelu"}
    assert names_of(after, NodeKind.KERNEL) == {"gelu"}
    assert names_of(after, NodeKind.FINISH) == {with_class(KERNEL, OperatorClass.COLLECTIVE)}


def test_a_stated_class_is_that_of_every_answer(run: Path, tmp_path: Path) -> None:
    names = written(tmp_path, '[[rule]]\nname = "*acme*"\nclass = "gemm"\n')

    table = ft.operators(ft.load(run, cache=False, names=names))

    assert {row.kind for row in table.by("class")} == {"gemm", "elementwise"}
    told = with_class(KERNEL, OperatorClass.GEMM)
    assert kernel_family(told, "aten::add") == "gemm, as stated"


def test_the_first_rule_that_matches_wins(tmp_path: Path) -> None:
    text = "".join(
        f'[[rule]]\nname = "{name}"\nclass = "{kind}"\n'
        for name, kind in (("*tokens*", "indexing"), ("*acme*", "gemm"))
    )

    names = read_names(written(tmp_path, text))

    assert names.kind_of(KERNEL) is OperatorClass.INDEXING
    assert names.kind_of("acme::other") is OperatorClass.GEMM
    assert names.kind_of("gelu") is None


@pytest.mark.parametrize("kind", OperatorClass)
def test_only_a_stated_collective_communicates(kind: OperatorClass) -> None:
    told = with_class(KERNEL, kind)

    assert operator_class(told, "aten::mm") is kind
    assert is_communication(told) == (kind is OperatorClass.COLLECTIVE)


def test_what_is_stated_wins_over_what_a_name_says() -> None:
    assert not is_communication(with_class("ncclDevKernel_AllReduce", OperatorClass.OTHER))


@pytest.mark.parametrize(
    "name",
    [
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>(AllReduceParams)",
        "void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8>(AllReduceParams)",
        "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8>()",
        "void mori::moe::EpDispatchInterNodeKernel<__hip_bfloat16>(EpDispatchCombineArgs)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 8>(sglang::RankData*)",
        "nvshmemi_transfer_rma_nbi", "void mscclpp::allreduce7<int>(int*)",
        "rcclGenericKernel<2, false>(ncclDevKernelArgsStorage<4096ul>)",
        "void dpsk::ep::internode::combine<true>(int4*)",
    ],
)  # fmt: skip
def test_kernels_of_known_libraries_communicate(name: str) -> None:
    assert is_communication(name)
    assert operator_class(name) is OperatorClass.COLLECTIVE


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[rule]]\nname = "*absent*"\nclass = "gemm"\n', "no kernel is called '[*]absent[*]'"),
        ('[[rule]]\nname = "gelu"\nclass = "products"\n', "'class' of rule 1 of names file"),
        ('[[rule]]\nname = "gelu"\n', "rule 1 of names file .* lacks class"),
        ('[[rule]]\nkernel = "gelu"\nclass = "gemm"\n', "'kernel'"),
        ("rule = 3\n", "tables headed"),
    ],
)
def test_what_a_file_may_not_say_is_refused(
    run: Path, tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(GraphError, match=told):
        ft.load(run, cache=False, names=written(tmp_path, text))
