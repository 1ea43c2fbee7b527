"""`serve`: what a deployment of a model makes of its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretrace.base import WorkloadError
from foretrace.machine import Machine, load_machine
from foretrace.serve import (
    Deployment,
    Engine,
    Requests,
    ServiceTarget,
    Serving,
    deployment,
    engine_of,
    read_engine,
    requests_named,
)
from foretrace.workload import Model, Transformer, model_called


def serve(
    model: Model | str | Path = "",
    *,
    engine: Engine | Mapping[str, Any] | str | Path,
    requests: Requests | str | Path,
    profiles: str | Path | None = None,
    machine: Machine | str | Path | None = None,
    gpu: str = "",
    rate: float | None = None,
    target: ServiceTarget | None = None,
    dollars_per_hour: float | None = None,
    seed: int = 0,
    folders: Sequence[Path] = (),
) -> Serving:
    """Latencies, throughput and memory of a deployment under its requests.

    Args:
        model: a name, a file, or a hub's identifier; as the engine's settings say, if left out.
        engine: vLLM's settings: a file, or the keywords themselves.
        requests: a file of lengths and arrivals, or a law:
            `poisson:rate=10,prompt=1024,output=256`.
        profiles: folder of layer profiles that step times come from; kernel models, if left out.
        machine: that it runs on: a host's or machine's name or file; by the GPU, if left out.
        gpu: its name, where nothing else says it.
        rate: requests in a second that come at random, in place of their own arrivals.
        target: what requests are promised.
        dollars_per_hour: price of one GPU.
        seed: of what is drawn.
        folders: of files that names are looked up in, before the presets.

    Raises:
        WorkloadError: if a description cannot be read, or a request can never be served.
        MachineError: if the machine cannot be costed.
    """
    deployed = deployed_as(
        model,
        engine=engine,
        profiles=profiles,
        machine=machine,
        gpu=gpu,
        beside=[Path(requests)] if isinstance(requests, str | Path) else (),
        folders=folders,
    )
    found = requests
    if not isinstance(found, Requests):
        found = requests_named(str(found), seed=seed)
    if rate is not None:
        found = found.at_rate(rate, seed=seed)
    return deployed.serve(found, target=target, dollars_per_hour=dollars_per_hour)


def deployed_as(
    model: Model | str | Path = "",
    *,
    engine: Engine | Mapping[str, Any] | str | Path,
    profiles: str | Path | None = None,
    machine: Machine | str | Path | None = None,
    gpu: str = "",
    beside: Sequence[Path] = (),
    folders: Sequence[Path] = (),
) -> Deployment:
    """A deployment, as `serve` takes it; `beside` are files whose folders may name the GPU."""
    near = [path for path in beside if path.is_file()]
    if isinstance(engine, str | Path):
        near = [Path(engine), *near]
        engine = read_engine(Path(engine))
    elif not isinstance(engine, Engine):
        engine = engine_of(engine)
    known = model
    if isinstance(known, str | Path):
        name = str(known) or engine.model
        if not name:
            raise WorkloadError("neither the engine's settings nor --model say which model serves")
        known = model_called(name, folders)
    if not isinstance(known, Transformer):
        raise WorkloadError(f"{known.name} makes no tokens: transformers serve")
    if not engine.model and isinstance(model, str | Path):
        engine = replace(engine, model=str(model))
    if isinstance(machine, str | Path):
        machine = load_machine(str(machine), folders)
    return deployment(
        known,
        engine,
        profiles=Path(profiles) if profiles is not None else None,
        machine=machine,
        gpu=gpu,
        beside=near,
        folders=folders,
    )
