"""Collectives of every kind, from a trace written by hand, run among two processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foretrace.bench import generate
from tests.bench.traces import RELU, Seen, Written

GROUP = "__torch__.torch.classes.c10d.ProcessGroup process_group"
WHOLE, HALF, OTHER = Seen(10, 11, (8,), (1,)), Seen(12, 13, (4,), (1,)), Seen(14, 15, (8,), (1,))
SCHEMAS = {
    "allreduce_": "Tensor[] tensors",
    "broadcast_": f"Tensor[] tensors, {GROUP}, int root_rank",
    "reduce_": f"Tensor[] tensors, {GROUP}, int reduce_op, int root_rank",
    "_allgather_base_": f"Tensor output_tensor, Tensor input_tensor, {GROUP}",
    "_reduce_scatter_base_": f"Tensor output_tensor, Tensor input_tensor, {GROUP}",
    "alltoall_base_": f"Tensor output, Tensor input, {GROUP}, int[] out_splits, int[] in_splits",
    "barrier": f"Tensor tensor, {GROUP}",
}
READS: dict[str, list[object]] = {
    "allreduce_": [[WHOLE]],
    "broadcast_": [[WHOLE], 0, 1],
    "reduce_": [[WHOLE], 0, 0, 1],
    "_allgather_base_": [WHOLE, HALF, 0],
    "_reduce_scatter_base_": [HALF, WHOLE, 0],
    "alltoall_base_": [WHOLE, OTHER, 0, [], []],
    "barrier": [HALF, 0],
}
CALLS = {
    "allreduce_": "comm.all_reduce([x.a0]",
    "broadcast_": "comm.broadcast([x.a0], 1",
    "reduce_": "comm.reduce([x.a0], 1",
    "_allgather_base_": "comm.all_gather_into(x.a0, x.a1",
    "_reduce_scatter_base_": "comm.reduce_scatter_into(x.a1, x.a0",
    "alltoall_base_": "comm.all_to_all_into(x.a0, x.a2, [], []",
    "barrier": "comm.barrier(",
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A step with every kind of collective, and an operator that needs their result."""
    trace = Written()
    for at, name in enumerate(READS):
        trace.add(20 + at, f"c10d::{name}({SCHEMAS[name]}) -> ()", READS[name])
    trace.add(90, RELU, [WHOLE], makes=[Seen(91, 92, (8,), (1,))])
    path = tmp_path / "bench.py"
    generate(trace.write(tmp_path)).write(path)
    return path


def test_each_is_a_call_that_is_awaited_before_its_tensor_is_used(program: Path) -> None:
    text = program.read_text(encoding="utf-8")

    assert [call for call in CALLS.values() if call not in text] == []
    before, _, _ = text.partition("aten.relu.default(x.a0)")
    assert "w20.wait()" in before
    assert "w25.wait()" in before


@pytest.mark.slow
def test_all_of_them_run_among_two_ranks(program: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    url = (tmp_path / "rendezvous").as_uri()
    command = [sys.executable, str(program), "--warmup", "1", "--iterations", "1", "--json"]
    command += ["--ranks", "2", "--rendezvous", url]

    started = [
        subprocess.Popen(
            [*command, "--rank", str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for rank in range(2)
    ]
    said = [one.communicate(timeout=100) for one in started]

    assert [one.returncode for one in started] == [0, 0], said[0][1][-1500:].decode()
    assert b'"backend": "gloo"' in said[0][0]
