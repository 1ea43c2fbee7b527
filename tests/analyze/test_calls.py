"""How many calls are found, against the operators' own events, which a graph does not keep."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from foretrace.analyze.calls import calls_of
from foretrace.graph import NO_STEP, build_recording
from foretrace.graph.operations import operations_of
from foretrace.graph.operations.scopes import NO_SCOPE, scopes_of
from foretrace.operators import work_of
from foretrace.trace import Trace, load_traces

Key = tuple[str, str]  # operator, signature


def _true_calls(trace: Trace) -> Counter[Key]:
    """Events of operators that launched device work, by operator and signature."""
    operations = operations_of([trace])
    scopes = scopes_of(operations)
    ops, items = operations.ops, operations.items
    launch = ops.launch[(ops.launch >= 0) & ~ops.is_communication]
    middle_ns = (items.start_ns[launch] + items.end_ns[launch]) // 2
    innermost = scopes.innermost(items.lane[launch], middle_ns)
    speaker = np.append(scopes.speaker, np.int32(NO_SCOPE))[innermost]
    event = scopes.event[np.unique(speaker[speaker != NO_SCOPE])]
    texts = (*trace.strings, "")
    pairs = zip(trace.name[event].tolist(), trace.signature[event].tolist(), strict=True)
    return Counter((texts[name], texts[signature]) for name, signature in pairs)


def _found_calls(trace: Trace) -> Counter[Key]:
    calls = calls_of(build_recording([trace]).measured, NO_STEP)
    first = np.flatnonzero(np.append(True, calls.call[1:] != calls.call[:-1]))
    kinds = [calls.kinds[kind] for kind in calls.kind[first].tolist()]
    return Counter((kind.operator, kind.signature) for kind in kinds if kind.operator)


def _flops(calls: Counter[Key]) -> int:
    works = {key: work_of(*key) for key in calls}
    return sum(work.flops * calls[key] for key, work in works.items() if work is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "tolerance"),
    [
        ("megatron-tp8/kineto_rank0.json.gz", 0),
        ("h100-inference/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 0),
        ("mi300-inference/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 0),
        ("v100-resnet50-dataloader/worker0.1623143089861.pt.trace.json.gz", 0),
        ("a100-dlrm-rank3-of-8/control.json.gz", 0.02),
        ("v100-ddp2-rank1/df_index_resolver.json.gz", 0.001),
    ],
)
def test_calls_are_as_many_as_the_operators_events(
    data_dir: Path, file: str, tolerance: float
) -> None:
    (trace,) = load_traces([data_dir / "traces" / file])

    true, found = _true_calls(trace), _found_calls(trace)

    wrong = sum(abs(true[key] - found[key]) for key in true | found)
    assert wrong <= tolerance * true.total()
    assert true.total() > 500
    if tolerance == 0:
        assert _flops(found) == _flops(true)
    else:
        assert _flops(found) == pytest.approx(_flops(true), rel=0.001)
