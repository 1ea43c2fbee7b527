"""`foretrace serve`: what a deployment of a model makes of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from foretrace import api
from foretrace.answer import Answer, Table
from foretrace.base import WorkloadError
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.settings import machine_folders, model_folders
from foretrace.report import MOST_NAMED, table_plot, write_answer_page
from foretrace.search import VARIED
from foretrace.serve import ServiceTarget

_MS_OF = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}


def serve(
    *,
    requests: Annotated[
        str,
        option(
            "FILE|LAW",
            "Lengths and arrivals (.jsonl, .json, .csv), or a law: "
            "poisson:rate=10,prompt=1024,output=256 (bursts, constant).",
        ),
    ],
    engine: Annotated[
        str | None,
        option(
            "META.json|FLAGS",
            "vLLM's settings: a file of its engine's keywords, alone or under engine_kwargs, or "
            'its command line: "--tensor-parallel-size 4". Default: its defaults; models without '
            "tokens (recommenders, generators of pictures) have none.",
        ),
    ] = None,
    model: Annotated[
        str,
        option(
            "NAME",
            "A model, a TOML file, a config.json, or a hub's identifier. Default: the one "
            "that the engine's settings name.",
        ),
    ] = "",
    profiles: Annotated[
        Path | None,
        option(
            "FOLDER",
            "Layer profiles of the GPU. Default: kernel models and its data sheet.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        option(
            "PATH",
            "vLLM's or SGLang's own profile of the engine, whose marked steps calibrate the times "
            "that profiles or kernel models say, from one step on.",
            exists=True,
        ),
    ] = None,
    machine: Annotated[
        str | None,
        option("NAME", "A machine or a TOML file. Default: a host of the GPU that serves."),
    ] = None,
    costs: options.Costs = None,
    gpu: Annotated[
        str,
        option(
            "NAME",
            "The GPU, or several to choose from. Default: as the engine's settings, their folder "
            "or a file beside say.",
        ),
    ] = "",
    rate: Annotated[
        float | None,
        option("N", "Requests in a second, coming at random, not as they came.", min=0.0),
    ] = None,
    rates: Annotated[
        str,
        option("N,M,...", "Rates to serve at one after the other: where latencies begin to rise."),
    ] = "",
    prefix_hits: Annotated[
        float | None,
        option(
            "SHARE",
            "Share of every prompt that the cache holds from others. Default: as requests say.",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    pools: Annotated[
        str | None,
        option(
            "N:M",
            "Copies of the engine for prompts, and for replies. Default: one engine for both.",
        ),
    ] = None,
    slo: Annotated[
        str | None, option("ttft=2s,tpot=50ms", "What requests are promised; latency=30s too.")
    ] = None,
    fewest: Annotated[
        bool | None,
        typer.Option(
            "--fewest/--as-stated",
            help="Find the fewest GPUs that keep --slo for 99 % of requests. Default: where --slo "
            "and --rate are given.",
            show_default=False,
        ),
    ] = None,
    vary: Annotated[
        str,
        option("NAMES", "Settings to look for too: " + ", ".join(VARIED) + ". Default: degrees."),
    ] = "",
    most_gpus: Annotated[int, option("N", "GPUs to try at most.", min=1)] = 64,
    time: Annotated[float, option("SECONDS", "Stop with the best so far.", min=0.1)] = 120.0,
    batch: Annotated[
        int, option("N", "Without tokens: requests of a batch at most.", min=1, max=65536)
    ] = 8,
    tables: Annotated[
        Path | None,
        option(
            "PLAN.json",
            "Where a recommender's tables stand: a sharding plan of TorchRec. Default: dealt by "
            "cost.",
        ),
    ] = None,
    table_format: Annotated[
        str, option("NAME", "Of a recommender's tables: fp32, fp16, int8, int4.")
    ] = "fp16",
    dense_format: Annotated[str, option("NAME", "Of a recommender's products.")] = "fp16",
    dense_cards: Annotated[
        int | None,
        option(
            "N",
            "Cards that run a recommender's networks. Default: as many as give the highest "
            "throughput.",
            min=1,
        ),
    ] = None,
    denoising_steps: Annotated[
        int, option("N", "Passes of a generator's network for a picture.", min=1)
    ] = 50,
    attention: Annotated[
        str, option("flash|plain", "Of a generator; plain writes scores to memory.")
    ] = "flash",
    timeline: Annotated[
        Path | None,
        option(
            "FILE",
            "Write steps, batches, queue, cache and requests over time for Perfetto: .pftrace, or "
            "Chrome's .json; .gz compresses.",
            dir_okay=False,
        ),
    ] = None,
    price: options.Price = None,
    substitute: options.Substitutes = None,
    seed: options.Seed = 0,
    report: options.Page = None,
    outputs: Outputs,
) -> None:
    """Tell latencies, throughput and memory of a model that serves requests."""
    with activity() as doing:
        doing.now("serving requests")
        target = target_of(slo) if slo else None
        is_search = bool(rate and slo) if fewest is None else fewest
        if engine is None and not (model and api.makes_tokens(model, model_folders())):
            of_engines = {
                "--profiles": profiles,
                "--trace": trace,
                "--gpu": gpu,
                "--rates": rates,
                "--prefix-hits": prefix_hits,
                "--pools": pools,
                "--fewest": fewest,
                "--vary": vary,
                "--timeline": timeline,
                "--price": price,
                "--substitute": substitute,
            }
            _tell(
                _staged(
                    model,
                    machine,
                    of_engines=[name for name, value in of_engines.items() if value],
                    batch=batch,
                    requests=requests,
                    tables=tables,
                    table_format=table_format,
                    dense_format=dense_format,
                    dense_cards=dense_cards,
                    denoising_steps=denoising_steps,
                    attention=attention,
                    rate=rate,
                    target=target,
                    seed=seed,
                ),
                report,
                outputs,
            )
            return
        if timeline is not None and (rates or is_search):
            raise WorkloadError(
                "--timeline shows one engine that serves, not a search or several rates: leave "
                "--rates out, or take --as-stated"
            )
        if pools and (rates or is_search):
            raise WorkloadError(
                "--pools are of one deployment, and neither --rates nor the search for the fewest "
                "GPUs tries any: leave them out, or take --as-stated"
            )
        if price is not None and rates:
            raise WorkloadError(
                "--price is of one rate or of the fewest GPUs, and --rates says nothing of it: "
                "leave one of them out"
            )
        if len(_names(gpu)) > 1 and (rates or not is_search):
            raise WorkloadError(
                f"--gpu names several ({gpu}), of which only a search for the fewest chooses: name "
                "one, or state --slo and --rate"
            )
        if is_search and target is None:
            raise WorkloadError("the fewest GPUs that keep which promise? state it with --slo")
        asked: dict[str, Any] = {
            "engine": engine,
            "requests": requests,
            "profiles": profiles,
            "trace": trace,
            "machine": machine,
            "prefix_hits": prefix_hits,
            "seed": seed,
            "substitutes": substitute or (),
            "folders": (*machine_folders(costs), *model_folders()),
        }
        found: Answer
        if rates:
            found = api.knee(model, target=target, gpu=gpu, rates=rates_of(rates), **asked)
        elif is_search and target is not None:
            doing.now("looking for the fewest GPUs")
            found = api.fewest_gpus(
                model,
                target=target,
                gpu=_names(gpu) or "",
                vary=_names(vary),
                most_gpus=most_gpus,
                time_s=time,
                dollars_per_hour=price,
                rate=rate,
                **asked,
            )
        else:
            served = api.serve(
                model,
                target=target,
                dollars_per_hour=price,
                gpu=gpu,
                rate=rate,
                pools=pools or None,
                **asked,
            )
            if timeline is not None:
                doing.now("writing the timeline")
                api.write_serving_trace(timeline, served)
            found = served
    _tell(found, report, outputs)


def _tell(found: Answer, report: Path | None, outputs: Outputs) -> None:
    """Print it; write its page if asked, tables that are curves as curves."""
    if report is not None:
        told = found.parts()
        drawn = {part: table_plot(part) for part in told if isinstance(part, Table)}
        moments = tuple(part for part, plot in drawn.items() if plot and len(part) > MOST_NAMED)
        write_answer_page(
            report,
            "Serving",
            found,
            parts=[part for part in told if part not in moments],
            drawings=[(part.title, plot) for part, plot in drawn.items() if plot],
            drawn=moments,
        )
    outputs.tell(found, wrote=(report,))


def _staged(model: str, machine: str | None, *, of_engines: Sequence[str], **asked: Any) -> Answer:
    """What is served without an engine.

    Raises:
        WorkloadError: if the model or the machine is not named, or an option is about engines.
    """
    if not model or machine is None:
        raise WorkloadError(
            "nothing says what serves: name a model (--model), or an engine's settings that name "
            "one (--engine); a model without tokens needs a --machine too"
        )
    if of_engines:
        raise WorkloadError(
            f"{', '.join(of_engines)} cannot be told of a model that is served in stages: name an "
            "engine's settings (--engine), or leave it out"
        )
    return api.serve_staged(model, machine=machine, **asked)


def rates_of(text: str) -> tuple[float, ...]:
    """The rates that a command line states.

    Raises:
        WorkloadError: if they cannot be read.
    """
    try:
        return tuple(map(float, _names(text)))
    except ValueError as err:
        raise WorkloadError(
            f"cannot read the rates {text!r}: expected requests in a second, as in 1,2,5,10"
        ) from err


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def target_of(text: str) -> ServiceTarget:
    """The promise that a command line states.

    Raises:
        WorkloadError: if it cannot be read.
    """
    known = ("ttft", "tpot", "latency")
    limits = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        number = value.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = value[len(number) :]
        try:
            limits[name] = float(number) * _MS_OF[unit]
        except (KeyError, ValueError):
            limits[name] = -1.0
    if not limits or not set(limits) <= set(known) or min(limits.values()) <= 0:
        raise WorkloadError(
            f"cannot read the promise {text!r}: expected ttft, tpot or latency with times, such as "
            "ttft=2s,tpot=50ms"
        )
    return ServiceTarget(**{f"{name}_ms": value for name, value in limits.items()})
