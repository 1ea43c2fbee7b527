"""Collectives of ranks that stand alone, held against real processes of gloo, one by one.

Every configuration runs twice: as so many processes that communicate, whose flight recorder says
what they did, and as each rank alone under `foretrace run`'s fake groups. Kind, members, numbers
in and out, and number format of every collective have to be equal, in order.

    python bench/world.py [--world 2 4 8] [--only ddp fsdp2] [--device fake]

With `--memory` what ranks hold is compared instead: the most that PyTorch's allocator has given a
real process at once, by its own events, and parameters, gradients and optimizer states there.

    python bench/world.py --memory --world 4  (not context parallelism: it has no attention here)

With `--live` steps of processes that communicate on this machine stand beside those predicted from
each rank alone (`foretrace run` on the device `cpu`), what collectives take between processes here,
and how many cores these share (`foretrace.validate.live`); and beside naive scaling: the same ranks
with collectives that take no time, and a core for each. It takes some five minutes.

    python bench/world.py --live [--only 'ddp 2' '1f1b 4'] [--seconds 60]
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.analyze import windows
from foretrace.base import number_format
from foretrace.capture import Device, IssuedExchange, ScriptRun, roles_of
from foretrace.capture.gloo import NAMES, flight_entries
from foretrace.capture.job import job_facts
from foretrace.capture.module.kernels import ON_FAKE_CPU, as_on_a_gpu
from foretrace.cost import graph_costs
from foretrace.graph import Timeline
from foretrace.simulate import simulate, simulate_shared
from foretrace.validate.live.costs import HostCosts
from foretrace.validate.live.host import LiveHost, described_host
from foretrace.workload import launch_named
from foretrace.world.graph import graph_of_roles

SCRIPTS = Path(__file__).parents[1] / "tests" / "capture" / "world" / "scripts"
CONFIGURATIONS = {
    "ddp": ("ddp.py", {}),
    "ddp unused": ("ddp.py", {"UNUSED": "1"}),
    "fsdp2": ("fsdp.py", {}),
    "hsdp": ("fsdp.py", {"REPLICAS": "2"}),
    "tp": ("fsdp.py", {"TP": "all"}),
    "tp x dp": ("fsdp.py", {"TP": "2"}),
    "gpipe": ("pipeline.py", {"SCHEDULE": "GPipe"}),
    "1f1b": ("pipeline.py", {"SCHEDULE": "1F1B"}),
    "interleaved": ("pipeline.py", {"SCHEDULE": "Interleaved1F1B"}),
    "experts": ("experts.py", {}),
    "cp": ("context.py", {}),
    "cp recomputed": ("context.py", {"RECOMPUTE": "1"}),
    "1f1b x dp": ("pipeline.py", {"SCHEDULE": "1F1B", "STAGES": "half"}),
}
# PyTorch's rings know no attention of a CPU, so real processes hold what a GPU's would not.
_WITHOUT_MEMORY = ("cp", "cp recomputed")
_STEPS = 3
_LARGE = {  # so that what is counted is no rounding
    "ddp.py": {"WIDTH": "512", "ROWS": "4096"},
    "fsdp.py": {"WIDTH": "256", "ROWS": "64"},
    "experts.py": {"WIDTH": "512", "ROWS": "4096"},
    "pipeline.py": {"WIDTH": "512", "ROWS": "1024"},
}
_DENSE = {"WIDTH": "1024", "ROWS": "512"}
_STAGES = {"WIDTH": "1024", "ROWS": "256", "STAGES": "all"}
LIVE: dict[str, tuple[str, int, dict[str, str]]] = {
    "ddp 2": ("ddp.py", 2, _DENSE),
    "ddp 4": ("ddp.py", 4, _DENSE),
    "ddp 2, rows x 2": ("ddp.py", 2, _DENSE | {"ROWS": "1024"}),
    "gpipe 2": ("pipeline.py", 2, _STAGES | {"SCHEDULE": "GPipe"}),
    "1f1b 2": ("pipeline.py", 2, _STAGES | {"SCHEDULE": "1F1B"}),
    "1f1b 4": ("pipeline.py", 4, _STAGES | {"SCHEDULE": "1F1B"}),
    "interleaved 2": ("pipeline.py", 2, _STAGES | {"SCHEDULE": "Interleaved1F1B"}),
    "1f1b 2 x dp 2": ("pipeline.py", 4, _STAGES | {"SCHEDULE": "1F1B", "STAGES": "2"}),
}
_LIVE_STEPS, _WARMUP = 12, 4
_THREAD_ENDS_SECONDS = 0.02
Line = tuple[str, tuple[int, ...], int, int, str, int]
_FLIGHT_NAMES = {own: flight for flight, own in NAMES.values()}


@contextmanager
def attention_of_a_gpu() -> Iterator[None]:
    """PyTorch's rings know no attention of a CPU: a GPU's has its shapes here, and no values."""
    import torch

    def forward(query: Any, *given: Any, **_more: Any) -> Any:
        rows = -(-query.shape[2] // 32) * 32
        seed = torch.zeros((), dtype=torch.int64)
        sums = query.new_zeros(*query.shape[:2], rows, dtype=torch.float32)
        return query.new_zeros(*query.shape[:3], given[1].shape[-1]), sums, seed, seed

    def backward(_gradient: Any, *given: Any, **_more: Any) -> Any:
        return (*map(torch.zeros_like, given[:3]), None)

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with as_on_a_gpu(ON_FAKE_CPU):
        for name, made in (("", forward), ("_backward", backward)):
            library.impl(f"_scaled_dot_product_efficient_attention{name}", made, "CPU")
        yield


def real_rank(script: str, out: str) -> None:
    """One process of a real run, which writes what its flight recorder saw."""
    import torch.distributed

    dist: Any = torch.distributed
    destroy = dist.destroy_process_group
    lines: list[tuple[int, tuple[object, ...]]] = []

    def noted(name: str) -> Callable[..., Any]:
        """A transfer, of which gloo's flight recorder knows nothing."""
        method = getattr(dist.ProcessGroup, name)

        def called(group: Any, tensors: list[Any], peer: int, tag: int) -> Any:
            ranks = dist.get_process_group_ranks(group)
            count, dtype = tensors[0].numel(), str(tensors[0].dtype).removeprefix("torch.")
            lines.append((time.time_ns(), (name, ranks, count, count, dtype, ranks[peer])))
            return method(group, tensors, peer, tag)

        return called

    for name in ("send", "recv"):
        setattr(dist.ProcessGroup, name, noted(name))

    def ended(*given: object) -> None:
        groups = {one.name: one.ranks for one in job_facts().process_groups}
        for one in flight_entries():
            numbers = (sum(map(prod, sizes)) for sizes in (one.input_sizes, one.output_sizes))
            dtype = next(iter((*one.input_dtypes, *one.output_dtypes)), "")
            row = (one.profiling_name, groups[one.process_group[0]], *numbers, dtype, -1)
            lines.append((one.time_created_ns, row))
        told = [row for _, row in sorted(lines, key=lambda line: line[0])]
        Path(out).write_text(json.dumps(told), encoding="utf-8")
        destroy(*given)

    dist.destroy_process_group = ended
    sys.argv = [script]
    with attention_of_a_gpu() if script.endswith("context.py") else nullcontext():
        runpy.run_path(script, run_name="__main__")


def _most_bytes(recorded: Any) -> int:
    """At once, of what the script's own thread took: gloo's threads make copies of their own."""
    found: list[Any] = []
    waiting = list(recorded.profiler.kineto_results.experimental_event_tree())
    while waiting:
        one = waiting.pop()
        waiting += one.children
        if one.name == "[memory]":
            found.append(one)
    found.sort(key=lambda one: one.start_time_ns)
    alive, total, most = dict[int, int](), 0, 0
    for one in found:
        fields = one.typed[1]
        if fields.alloc_size > 0 and one.start_tid == found[0].start_tid:
            alive[fields.ptr] = fields.alloc_size
            total += fields.alloc_size
            most = max(most, total)
        elif fields.alloc_size < 0:
            total -= alive.pop(fields.ptr, 0)
    return most


def _let_threads_end(waiting: Callable[..., Any]) -> Callable[..., Any]:
    """Gloo's thread lets go of tensors some time after who waits for them goes on: that is luck."""

    def waited(*given: Any, **more: Any) -> Any:
        result = waiting(*given, **more)
        time.sleep(_THREAD_ENDS_SECONDS)
        return result

    return waited


def real_memory(script: str, out: str) -> None:
    """One process of a real run, which writes what it held."""
    import torch.distributed
    from torch import Tensor
    from torch.distributed.tensor import DTensor
    from torch.optim import optimizer as optimizers
    from torch.profiler import ProfilerActivity, profile

    dist: Any = torch.distributed
    # Optimizers work tensor by tensor on a CPU, and on lists of them on a GPU, as the fake does.
    for name in ("fused", "foreach"):
        setattr(optimizers, f"_get_{name}_kernels_supported_devices", lambda: ["cpu"])
    held: dict[str, int] = {}

    def num_bytes(tensors: Iterable[object]) -> int:
        own = [one.to_local() if isinstance(one, DTensor) else one for one in tensors]
        return sum(one.numel() * one.element_size() for one in own if isinstance(one, Tensor))

    def updated(optimizer: Any, *_given: object) -> None:
        owned = [one for group in optimizer.param_groups for one in group["params"]]
        states = [one for each in optimizer.state.values() for one in each.values()]
        held.update(
            parameters=num_bytes(owned),
            gradients=num_bytes(one.grad for one in owned),
            optimizer=num_bytes(states),
        )

    optimizers.register_optimizer_step_post_hook(updated)
    sys.argv = [script]
    kept: list[object] = []
    made = dist.init_process_group

    def init_process_group(*given: Any, **more: Any) -> None:
        made(*given, **more)
        kept.append(dist.distributed_c10d._get_default_group())  # noqa: SLF001

    # A reducer that ends with the script's names would end its group, which waits for gloo's
    # thread, which waits for the interpreter that the first holds.
    dist.init_process_group = init_process_group
    for owner, name in ((dist.Work, "wait"), (dist._functional_collectives, "wait_tensor")):  # noqa: SLF001
        setattr(owner, name, _let_threads_end(getattr(owner, name)))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        runpy.run_path(script, run_name="__main__")
    held["peak"] = _most_bytes(recorded)
    Path(out).write_text(json.dumps(held), encoding="utf-8")
    os._exit(0)


def real(
    script: Path, world: int, settings: dict[str, str], ranks: list[int]
) -> dict[int, list[Line]]:
    """What each of some ranks did in a real run."""
    return {
        rank: [_line(*row[:4], dtype=row[4], peer=row[5]) for row in rows]
        for rank, rows in processes("--real", script, world, settings, ranks).items()
    }


def processes(
    mode: str, script: Path, world: int, settings: dict[str, str], ranks: list[int]
) -> dict[int, Any]:
    """What some ranks of a real run wrote."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
        free.close()
        started = [
            subprocess.Popen(
                [sys.executable, __file__, mode, str(script), f"{folder}/{rank}.json"],
                env=os.environ | settings | {
                    "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                    "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                },
            )
            for rank in range(world)
        ]  # fmt: skip
        codes = [one.wait() for one in started]
        if any(codes):
            raise SystemExit(f"{script} failed with {world} processes: exit codes {codes}")
        return {rank: json.loads(Path(folder, f"{rank}.json").read_text("utf-8")) for rank in ranks}


def _line(kind: str, members: list[int], *numbers: int, dtype: str, peer: int) -> Line:
    known = number_format(dtype)
    went_in, came_out = numbers
    if "all_gather" in kind and came_out == went_in:
        came_out *= len(members)  # of functional all-gathers gloo states one member's part
    return kind, tuple(members), went_in, came_out, dtype if known is None else known.name, peer


def alone(
    script: Path, world: int, settings: dict[str, str], ranks: list[int], *, device: str
) -> dict[int, list[Line]]:
    """What each of some ranks does alone."""
    os.environ.update(settings)
    run = ScriptRun(script, (), world, device=device, steps=2 * _STEPS, warmup=0)
    return {
        rank: [
            _line(
                _FLIGHT_NAMES.get(one.name, one.name), list(role.groups[one.group]),
                one.in_elements, _out_of_gloo(one), dtype=one.dtype, peer=one.peer,
            )
            for one in role.exchanges
        ]
        for rank, role in roles_of(run, ranks).by_rank.items()
    }  # fmt: skip


def _out_of_gloo(one: IssuedExchange) -> int:
    """Of gloo, which reduces everything and keeps a part, what it states: all that it reduced."""
    return one.in_elements if "reduce_scatter" in one.name else one.out_elements


def real_times(script: str, out: str) -> None:
    """One process of a real run, which writes when its optimizer's steps ended, in ns."""
    from torch.optim import optimizer as optimizers

    ended: list[int] = []
    optimizers.register_optimizer_step_post_hook(lambda *_: ended.append(time.perf_counter_ns()))
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")
    Path(out).write_text(json.dumps(ended), encoding="utf-8")


def measured_ns(name: str) -> float:
    """Median of a real run's steps, of the mean rank."""
    file, world, settings = LIVE[name]
    stated = settings | {"STEPS": str(_LIVE_STEPS), "STAGES": _stages(settings, world)}
    found = processes("--real-times", SCRIPTS / file, world, stated, list(range(world)))
    return float(np.mean([np.median(np.diff(ends)[_WARMUP - 1 :]) for ends in found.values()]))


def predicted_ns(name: str, host: LiveHost) -> tuple[float, float]:
    """A step of the ranks that ran alone, on shared cores; and naively."""
    file, world, settings = LIVE[name]
    os.environ.update(settings | {"STEPS": str(_LIVE_STEPS), "STAGES": _stages(settings, world)})
    run = ScriptRun(SCRIPTS / file, (), world, device="cpu", steps=_LIVE_STEPS, warmup=_WARMUP)
    roles = list(roles_of(run, range(world)).by_rank.values())
    graph = graph_of_roles(roles, launch=launch_named("eager"), on_device=False, warmup=_WARMUP)
    costs = graph_costs(graph, HostCosts(host.collectives, cores=host.cores))
    on_cores = simulate_shared(graph, costs.duration_ns, host.cores)
    return _median(on_cores), _median(simulate(graph, graph.measured_ns))


def _stages(settings: dict[str, str], world: int) -> str:
    given = settings.get("STAGES", "all")
    return str(world) if given == "all" else given


def _median(timeline: Timeline) -> float:
    return float(np.median(windows(timeline).duration_ns.mean(axis=0)))


def live(names: Iterable[str], *, seconds: float) -> None:
    """Describe this machine, and print a line for each configuration."""
    os.environ["OMP_NUM_THREADS"] = "1"
    host = described_host(Device("cpu", "CPU", ("fp32",)), (2, 4), seconds=seconds)
    apart = ", ".join(f"{one:.1%}" for one in host.speed.spread)
    sys.stdout.write(
        f"speeds of 1, 2, ... processes were {apart} apart"
        + (": this machine was busy, so what follows is no measure\n" if host.is_busy else "\n")
    )
    sys.stdout.flush()
    errors: list[tuple[float, float]] = []
    for name in names:
        # Before and after the prediction: what else runs here changes by the minute.
        before = measured_ns(name)
        shared, naive = predicted_ns(name, host)
        taken = (before + measured_ns(name)) / 2
        errors.append((shared / taken - 1, naive / taken - 1))
        sys.stdout.write(
            f"{name}: measured {taken / 1e6:.1f} ms, predicted {shared / 1e6:.1f} "
            f"({errors[-1][0]:+.1%}), naive {naive / 1e6:.1f} ({errors[-1][1]:+.1%})\n"
        )
        sys.stdout.flush()
    off, naive_off = np.abs(np.array(errors)).mean(axis=0)
    sys.stdout.write(f"mean of errors: {off:.1%}, naive {naive_off:.1%}\n")


def main() -> None:
    """Compare, and print a line for each configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", nargs=2)
    parser.add_argument("--real-memory", nargs=2)
    parser.add_argument("--real-times", nargs=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--world", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--device", default="fake")
    given = parser.parse_args()
    if given.real:
        real_rank(*given.real)
        return
    if given.real_memory:
        real_memory(*given.real_memory)
        return
    if given.real_times:
        real_times(*given.real_times)
        return
    if given.live:
        live(given.only or LIVE, seconds=given.seconds)
        return
    for world in given.world:
        without = _WITHOUT_MEMORY if given.memory else ()
        for name in given.only or [one for one in CONFIGURATIONS if one not in without]:
            file, settings = CONFIGURATIONS[name]
            stated = {"TP": "1", "REPLICAS": "1", "STAGES": "all", "STEPS": str(_STEPS)} | settings
            size = {"all": str(world), "half": str(world // 2)}
            stated = {key: size.get(value, value) for key, value in stated.items()}
            ranks = [0, world - 1]
            if given.memory:
                _compare_memory(
                    name, SCRIPTS / file, world, stated | _LARGE.get(file, {}), device=given.device
                )
                continue
            expected = real(SCRIPTS / file, world, stated, ranks)
            found = alone(SCRIPTS / file, world, stated, ranks, device=given.device)
            for rank in ranks:
                _say(name, world, rank, expected[rank], found[rank])


def _compare_memory(
    name: str, script: Path, world: int, settings: dict[str, str], *, device: str
) -> None:
    ranks = [0, world - 1]
    expected = processes("--real-memory", script, world, settings, ranks)
    os.environ.update(settings)
    run = ScriptRun(script, (), world, device=device, steps=2 * _STEPS, warmup=0)
    for rank, role in roles_of(run, ranks).by_rank.items():
        real_, found = expected[rank], role.memory
        real_["activations"] = real_["peak"] - sum(
            real_[part] for part in ("parameters", "gradients", "optimizer")
        )
        told = "; ".join(
            f"{part} {getattr(found, part):,} for {real_[part]:,}"
            + (f" ({getattr(found, part) / real_[part] - 1:+.1%})" if real_[part] else "")
            for part in ("parameters", "gradients", "optimizer", "activations", "peak")
        )
        sys.stdout.write(f"{name}, {world} ranks, rank {rank}: {told}\n")
        sys.stdout.flush()


def _say(name: str, world: int, rank: int, expected: list[Line], found: list[Line]) -> None:
    first = next(
        (at for at, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other),
        min(len(expected), len(found)),
    )
    said = "equal" if expected == found else (
        f"DIFFERENT at {first}: real {expected[first:first + 3]}, alone {found[first:first + 3]}"
    )  # fmt: skip
    sys.stdout.write(f"{name}, {world} ranks, rank {rank}: {len(expected)} collectives, {said}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
