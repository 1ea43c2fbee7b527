"""`serve`: what a deployment of a model makes of its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from foretrace.base import NoRoomError, WorkloadError
from foretrace.cost import rule_named
from foretrace.machine import Machine, load_machine
from foretrace.search import DEGREES, HOST_RANKS, FewestGpus, Limits, engines_of
from foretrace.search import fewest_gpus as searched_fewest
from foretrace.serve import (
    Deployment,
    Engine,
    Knee,
    LayerProfiles,
    Pools,
    Requests,
    ServiceTarget,
    Serving,
    StagedServing,
    StepCalibration,
    deployment,
    engine_named,
    engine_of,
    generator_ends,
    generator_stages,
    generator_work,
    knee_of,
    machine_of,
    recommender_stages,
    requests_named,
    staged_serving,
    write_engine_trace,
)
from foretrace.workload import (
    Model,
    Recommender,
    TableSharding,
    Transformer,
    model_called,
    read_torchrec_plan,
)


def serve(
    model: Model | str | Path = "",
    *,
    engine: Engine | Mapping[str, Any] | str | Path | None = None,
    requests: Requests | str | Path,
    profiles: str | Path | None = None,
    trace: str | Path | None = None,
    machine: Machine | str | Path | None = None,
    gpu: str = "",
    rate: float | None = None,
    prefix_hits: float | None = None,
    pools: Pools | tuple[int, int] | str | None = None,
    target: ServiceTarget | None = None,
    dollars_per_hour: float | None = None,
    seed: int = 0,
    substitutes: Sequence[str] = (),
    folders: Sequence[Path] = (),
) -> Serving:
    """Latencies, throughput and memory of a deployment under its requests.

    Args:
        model: a name, a file, or a hub's identifier; as the engine's settings say, if left out.
        engine: vLLM's settings: a file, the keywords themselves, or its command line as a text; if
            left out its defaults, on the fewest GPUs that hold the model.
        requests: a file of lengths and arrivals, or a law:
            `poisson:rate=10,prompt=1024,output=256`.
        profiles: folder of layer profiles that step times come from; kernel models, if left out.
        trace: vLLM's or SGLang's own profile of the engine, whose steps calibrate step times.
        machine: that it runs on: a host's or machine's name or file; by the GPU, if left out.
        gpu: its name, where nothing else says it.
        rate: requests in a second that come at random, in place of their own arrivals.
        prefix_hits: share of every prompt that the cache holds from others, in place of what the
            requests say.
        pools: copies of the engine for prompts and for replies, (1, 3) or "1:3", with what is kept
            of prompts sent between them; one engine for both, if left out.
        target: what requests are promised.
        dollars_per_hour: price of one GPU.
        seed: of what is drawn.
        substitutes: rules of substitution, as in "fp8", whose products take the place of the
            library's where they are faster.
        folders: of files that names are looked up in, before the presets.

    Raises:
        WorkloadError: if a description cannot be read, or a request can never be served.
        MachineError: if the machine cannot be costed.
    """
    found = _requests_of(requests, seed=seed, rate=rate, prefix_hits=prefix_hits)
    deployed = deployed_as(
        model,
        engine=engine,
        profiles=profiles,
        trace=trace,
        keys_each=found.keys_each,
        machine=machine,
        gpu=gpu,
        beside=[Path(requests)] if isinstance(requests, str | Path) else (),
        substitutes=substitutes,
        folders=folders,
    )
    if isinstance(pools, str):
        pools = Pools.stated(pools)
    elif pools is not None and not isinstance(pools, Pools):
        pools = Pools(*pools)
    return deployed.serve(found, target=target, dollars_per_hour=dollars_per_hour, pools=pools)


def write_serving_trace(path: str | Path, found: Serving) -> None:
    """Write what an engine did over time as a file that opens in Perfetto.

    Args:
        path: where to. Perfetto's own format if the name ends in `.pftrace`, else Chrome's JSON;
            compressed if `.gz` follows.
        found: what was served.
    """
    write_engine_trace(Path(path), found.run)


def serve_staged(
    model: Model | str | Path,
    *,
    requests: Requests | str | Path,
    machine: Machine | str | Path,
    batch: int = 8,
    tables: str | Path | None = None,
    table_format: str = "fp16",
    dense_format: str = "fp16",
    dense_cards: int | None = None,
    denoising_steps: int = 50,
    attention: str = "flash",
    rate: float | None = None,
    target: ServiceTarget | None = None,
    seed: int = 0,
    folders: Sequence[Path] = (),
) -> StagedServing:
    """Latencies and throughput of a model without tokens: a recommender, a generator of pictures.

    Args:
        model: a name or a file.
        requests: as in `serve`; their lengths count for nothing.
        machine: a host with its cards or GPUs: a name or a file.
        batch: requests of a batch at most.
        tables: where a recommender's tables stand: a sharding plan of TorchRec; dealt to cards by
            cost, if left out.
        table_format: of a recommender's tables: fp32, fp16, int8, int4.
        dense_format: of its networks' products.
        dense_cards: cards that run its networks; as many as give the highest throughput, if left
            out.
        denoising_steps: passes of a generator's network for one picture, each with the text and
            without.
        attention: of a generator: "flash", or "plain": scores are written to memory.
        rate: requests in a second that come at random, in place of their own arrivals.
        target: what requests are promised.
        seed: of what is drawn.
        folders: of files that names are looked up in, before the presets.

    Raises:
        WorkloadError: if the model makes tokens, or tables do not fit the cards.
        MachineError: if the machine cannot be costed.
    """
    if isinstance(model, str | Path):
        model = model_called(str(model), folders)
    if isinstance(machine, str | Path):
        machine = load_machine(str(machine), folders)
    found = _requests_of(requests, seed=seed, rate=rate)
    if isinstance(model, Recommender):
        cards = recommender_stages(
            model,
            machine,
            most_batch=batch,
            tables=None
            if tables is None
            else TableSharding(places=read_torchrec_plan(Path(tables), model)),
            table_format=table_format,
            dense_format=dense_format,
            dense_cards=dense_cards,
        )
        return staged_serving(
            found,
            cards.stages,
            model=model.name,
            machine=machine.name,
            most_batch=batch,
            target=target,
            memory=(
                ("tables", sum(cards.bytes_by_card)),
                ("fullest card", max(cards.bytes_by_card)),
            ),
            notes=("the host's own work on a request is not known and not counted",),
        )
    work = generator_work(model, machine, attention=attention)
    ends = generator_ends(model, machine, attention=attention)
    return staged_serving(
        found,
        generator_stages(
            model, machine, most_batch=batch, steps=denoising_steps, attention=attention
        ),
        model=model.name,
        machine=machine.name,
        most_batch=batch,
        target=target,
        work=work.shares,
        positions=work.positions,
        ends=ends,
        memory=(
            ("weights", 2 * (work.num_parameters + sum(one.parameters for one in ends))),
            ("largest scores, where they are written", work.scores_bytes),
        ),
        notes=(
            *(
                [f"a picture is {model.picture_tokens} passes, one for each of its tokens"]
                if isinstance(model, Transformer) and model.picture_tokens
                else []
            ),
            *([] if ends else ["encoding the text and decoding the latents are not counted"]),
        ),
    )


class DeploymentOptions(TypedDict, total=False):
    """What serves requests; `serve` says what each means."""

    engine: Engine | Mapping[str, Any] | str | Path | None
    profiles: str | Path | None
    trace: str | Path | None
    machine: Machine | str | Path | None
    gpu: str
    substitutes: Sequence[str]
    folders: Sequence[Path]


def knee(
    model: Model | str | Path = "",
    *,
    requests: Requests | str | Path,
    rates: Sequence[float],
    prefix_hits: float | None = None,
    target: ServiceTarget | None = None,
    seed: int = 0,
    **deployment: Unpack[DeploymentOptions],
) -> Knee:
    """Latencies and throughput of a deployment over the rate at which requests come.

    Args:
        model: as in `serve`, as all that is not said here.
        requests: so too; their lengths count.
        rates: in a second.
        prefix_hits: so too.
        target: so too.
        seed: so too.
        deployment: engine, profiles, trace, machine, gpu, substitutes and folders, so too.

    Raises:
        WorkloadError: as `serve`, or if there are no rates.
    """
    found = _requests_of(requests, seed=seed, prefix_hits=prefix_hits)
    beside = [Path(requests)] if isinstance(requests, str | Path) else ()
    deployed = deployed_as(model, keys_each=found.keys_each, beside=beside, **deployment)
    return knee_of(deployed, found, rates, target=target, seed=seed)


def fewest_gpus(
    model: Model | str | Path = "",
    *,
    engine: Engine | Mapping[str, Any] | str | Path | None = None,
    requests: Requests | str | Path,
    target: ServiceTarget,
    profiles: str | Path | None = None,
    trace: str | Path | None = None,
    machine: Machine | str | Path | None = None,
    gpu: str | Sequence[str] = "",
    rate: float | None = None,
    prefix_hits: float | None = None,
    vary: Sequence[str] = (),
    most_gpus: int = 64,
    time_s: float | None = 120.0,
    dollars_per_hour: float | None = None,
    seed: int = 0,
    substitutes: Sequence[str] = (),
    folders: Sequence[Path] = (),
) -> FewestGpus:
    """The fewest GPUs with which requests get what they are promised.

    Args:
        model: as in `serve`.
        engine: as there; how many GPUs it has is looked for.
        requests: as there, of all copies together.
        target: what they are promised.
        profiles: as there.
        trace: as there.
        machine: as there.
        gpu: as there; of several names the one that takes the fewest.
        rate: as there.
        prefix_hits: as there.
        vary: settings of the engine to look for too: `sequences`, `tokens`.
        most_gpus: to try.
        time_s: seconds to look at most.
        dollars_per_hour: price of one GPU.
        seed: as there.
        substitutes: as there.
        folders: as there.

    Raises:
        WorkloadError: if no number of GPUs keeps the promise.
    """
    beside = [Path(requests)] if isinstance(requests, str | Path) else []
    beside += _files_of(engine)
    settings = _engine_of(engine)
    known_model = _model_of(model, settings, folders)
    found = _requests_of(requests, seed=seed, rate=rate, prefix_hits=prefix_hits)

    def deploy(one: Engine, **more: Any) -> Deployment:
        return deployed_as(
            known_model,
            engine=one,
            profiles=profiles,
            keys_each=found.keys_each,
            beside=beside,
            folders=folders,
            **more,
        )

    taught = None
    if trace is not None:
        first = gpu if isinstance(gpu, str) else next(iter(gpu), "")
        taught = deploy(settings, trace=trace, machine=machine, gpu=first).times.calibration
    known: dict[tuple[str, int, int], LayerProfiles] = {}
    machines: dict[str, Machine | str | Path | None] = {}

    def deployed(one: Engine, name: str) -> Deployment:
        if name and machine is None and name not in machines:
            machines[name] = machine_of([name], folders, num_gpus=HOST_RANKS)
        made = deploy(
            one,
            trace=taught,
            machine=machines.get(name, machine),
            gpu=name,
            substitutes=substitutes,
            known=known,
        )
        machines[name] = made.machine
        return made

    if isinstance(machine, str | Path):
        machine = load_machine(str(machine), folders)
    return searched_fewest(
        deployed,
        engines_of(
            replace(settings, num_gpu_blocks=None),
            has_experts=known_model.experts is not None,
            vary=vary,
            most_ranks=HOST_RANKS if machine is None else machine.num_ranks,
        ),
        found,
        target=target,
        gpus=(gpu,) if isinstance(gpu, str) else tuple(gpu),
        most_gpus=most_gpus,
        limits=Limits(time_s=time_s),
        dollars_per_hour=dollars_per_hour,
    )


def makes_tokens(model: Model | str | Path, folders: Sequence[Path] = ()) -> bool:
    """Whether an engine serves it, token by token, and not stages."""
    found = model_called(str(model), folders) if isinstance(model, str | Path) else model
    return isinstance(found, Transformer) and not found.picture_tokens


def deployed_as(
    model: Model | str | Path = "",
    *,
    engine: Engine | Mapping[str, Any] | str | Path | None = None,
    profiles: str | Path | None = None,
    trace: str | Path | StepCalibration | None = None,
    keys_each: float = 1024.0,
    machine: Machine | str | Path | None = None,
    gpu: str = "",
    beside: Sequence[Path] = (),
    substitutes: Sequence[str] = (),
    folders: Sequence[Path] = (),
    known: dict[tuple[str, int, int], LayerProfiles] | None = None,
) -> Deployment:
    """A deployment, as `serve` takes it; `beside` are files whose folders may name the GPU."""
    near = [path for path in beside if path.is_file()]
    near = [*_files_of(engine), *near]
    settings = _engine_of(engine)
    found = _model_of(model, settings, folders)
    if not settings.model and isinstance(model, str | Path):
        settings = replace(settings, model=str(model))
    if isinstance(machine, str | Path):
        machine = load_machine(str(machine), folders)

    def deployed(one: Engine) -> Deployment:
        return deployment(
            found,
            one,
            profiles=Path(profiles) if profiles is not None else None,
            trace=Path(trace) if isinstance(trace, str | Path) else trace,
            keys_each=keys_each,
            machine=machine,
            gpu=gpu,
            beside=near,
            folders=folders,
            known=known,
            rules=tuple(map(rule_named, substitutes)),
        )

    return deployed(settings) if engine is not None else _on_fewest(deployed, settings)


def _on_fewest(deployed: Callable[[Engine], Deployment], settings: Engine) -> Deployment:
    """The deployment on as few GPUs of a host as hold the model, tensor parallel."""

    def with_degree(tensor: int) -> Deployment:
        made = deployed(replace(settings, tensor_parallel_size=tensor))
        said = f"no settings of an engine are stated: vLLM's own, tensor_parallel_size {tensor}"
        return replace(made, notes=(said, *made.notes))

    *few, most = DEGREES
    for tensor in few:
        with suppress(NoRoomError):
            return with_degree(tensor)
    return with_degree(most)


def _requests_of(
    stated: Requests | str | Path,
    *,
    seed: int,
    rate: float | None = None,
    prefix_hits: float | None = None,
) -> Requests:
    """Requests, or those of a file or law; at another rate, with other hits, if stated."""
    found = stated if isinstance(stated, Requests) else requests_named(str(stated), seed=seed)
    found = found if rate is None else found.at_rate(rate, seed=seed)
    return found if prefix_hits is None else found.with_hits(prefix_hits)


def _files_of(engine: object) -> list[Path]:
    """The file of an engine's settings, in whose folder more may be said of it."""
    path = Path(engine) if isinstance(engine, str | Path) else None
    return [path] if path is not None and path.is_file() else []


def _engine_of(stated: Engine | Mapping[str, Any] | str | Path | None) -> Engine:
    if isinstance(stated, Engine):
        return stated
    return engine_named(str(stated)) if isinstance(stated, str | Path) else engine_of(stated or {})


def _model_of(model: Model | str | Path, engine: Engine, folders: Sequence[Path]) -> Transformer:
    if isinstance(model, str | Path):
        name = str(model) or engine.model
        if not name:
            raise WorkloadError("neither the engine's settings nor --model say which model serves")
        model = model_called(name, folders)
    if not isinstance(model, Transformer):
        raise WorkloadError(f"{model.name} makes no tokens: transformers serve")
    return model
