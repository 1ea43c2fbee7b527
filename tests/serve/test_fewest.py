"""The fewest GPUs that keep a promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.serve import (
    Deployment,
    Engine,
    ServiceTarget,
    fewest_gpus,
    requests_named,
)
from foretrace.workload import Transformer, load_model
from tests.serve.made import constant_step

REQUESTS = requests_named("poisson:rate=20,prompt=100,output=100,requests=2000", seed=1)


def deployed(tensor: int) -> Deployment:
    model = load_model("llama3.1-8b")
    assert isinstance(model, Transformer)
    if tensor > 2:
        raise WorkloadError("no more cards")
    engine = replace(Engine(max_num_seqs=8), tensor_parallel_size=tensor)
    times = constant_step(10_000_000 // tensor)
    return Deployment(model=model, engine=engine, times=times, gpu="card", num_blocks=10_000)


def test_one_gpu_less_does_not_keep_it() -> None:
    target = ServiceTarget(ttft_ms=500, tpot_ms=11)

    found = fewest_gpus(deployed, REQUESTS, target)

    assert found.best.kept_share >= 0.99
    # 20 requests/s of 101 steps of 10 ms hold 20.2 of eight places.
    assert 3 <= found.best.num_gpus <= 6
    fewer = [one for one in found.tried if one.num_gpus < found.best.num_gpus]
    assert all(one.kept_share < 0.99 for one in fewer)
    one_less = deployed(1).serve(REQUESTS.share(0, found.best.num_gpus - 1), target=target)
    assert one_less.met_share is not None
    assert one_less.met_share < 0.99
    assert str(found.best.num_gpus) in found.headline


def test_a_promise_that_nothing_keeps_is_a_sentence() -> None:
    with pytest.raises(WorkloadError, match=r"keeps tpot 2.00 ms: .* GPUs come nearest"):
        fewest_gpus(deployed, REQUESTS, ServiceTarget(tpot_ms=2), most_gpus=4)
