"""The execution trace that the installed PyTorch writes is read and joined with its Kineto."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.graph import LinkMethod, link
from foretrace.trace import load_traces, read_execution_trace

torch = pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore")  # of PyTorch about itself
@pytest.mark.slow
def test_all_operators_of_the_installed_pytorch_are_linked(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "et_rank0.json"))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], execution_trace_observer=observer
    ) as profiler:
        model(torch.randn(4, 8)).sum().backward()
    profiler.export_chrome_trace(str(tmp_path / "kineto_rank0.json"))
    observer.unregister_callback()

    trace = read_execution_trace(tmp_path / "et_rank0.json")
    (kineto,) = load_traces(tmp_path / "kineto_rank0.json")
    found = link(kineto, trace)

    assert found.method == LinkMethod.RECORD_FUNCTION
    assert found.num_linked == found.num_operators >= 30
    # The process and its thread stand for no call.
    assert trace.num_nodes - found.num_operators <= 3
