"""Latencies over rates."""

from __future__ import annotations

import pytest

from foretrace.base import WorkloadError
from foretrace.serve import Deployment, Engine, ServiceTarget, knee_of, requests_named
from tests.models import transformer
from tests.serve.made import constant_step


def test_latencies_rise_where_an_engine_cannot_keep_up() -> None:
    model = transformer("llama3.1-8b")
    engine = Engine(max_num_seqs=4)
    times = constant_step(10_000_000)  # 4 sequences of 10 steps: 40 requests/s at most
    one = Deployment(model=model, engine=engine, times=times, gpu="card", num_blocks=10_000)
    requests = requests_named("constant:rate=1,prompt=10,output=10,requests=400")

    found = knee_of(one, requests, [60, 1, 8], target=ServiceTarget(ttft_ms=50))

    assert [point.rate for point in found.points] == [1, 8, 60]
    assert found.knee.rate == 8
    assert found.points[2].ttft_ms > 10 * found.points[0].ttft_ms
    assert found.points[2].output_tokens_per_s == pytest.approx(400, rel=0.1)
    shares = [point.met_share for point in found.points]
    assert shares == sorted(shares, key=lambda share: -(share or 0))
    assert "up to 8" in found.headline
    with pytest.raises(WorkloadError, match="no rates to serve at"):
        knee_of(one, requests, [])
