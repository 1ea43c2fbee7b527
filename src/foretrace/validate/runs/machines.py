"""`machine_of`: the machine that a published run ran on, from its GPU and its number of hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.base import MachineError
from foretrace.machine import Machine, Tier, TierKind, load_chip, load_host
from foretrace.validate.runs.table import PublishedRun


@dataclass(frozen=True)
class _Kind:
    """A host of that GPU; cloud providers' are taken to be as NVIDIA's reference design."""

    host: str
    chip: str | None = None  # if another than the host's


_KIND_BY_GPU = {
    "A100": _Kind("dgx-a100"),
    "A100-40GB": _Kind("dgx-a100-40gb"),
    "A100-80GB": _Kind("dgx-a100"),
    "B200": _Kind("dgx-b200"),
    "B300": _Kind("hgx-b300"),
    "GB200": _Kind("gb200-tray"),
    "GB300": _Kind("gb300-tray"),
    "H100": _Kind("dgx-h100"),
    "H100-96GB-HBM2e-500W": _Kind("grand-teton-h100", "h100-96gb-hbm2e"),
    "H200": _Kind("dgx-h200"),
    "H800": _Kind("hgx-h800"),
}
_LATENCY_NS = {
    # One step of NCCL's own model inside a host (src/graph/tuning.cc, hwLat); between hosts 64
    # bytes over InfiniBand across leaf switches: Zhao et al., "Insights into DeepSeek-V3", 2025.
    TierKind.SCALE_UP: 600.0,
    TierKind.POD: 3_700.0,
}


def machine_of(run: PublishedRun) -> Machine:
    """A machine of as many chips as the run used, at full bandwidth between its hosts.

    Raises:
        MachineError: for a GPU without a description.
    """
    kind = _KIND_BY_GPU.get(run.gpu)
    if kind is None:
        raise MachineError(
            f"run {run.id!r} ran on {run.gpu!r}, of which no host is described: "
            f"known are {', '.join(sorted(_KIND_BY_GPU))}."
        )
    host = load_host(kind.host)
    if kind.chip is not None:
        host = replace(host, chip=load_chip(kind.chip))
    per_host = min(run.gpus_per_node or host.num_chips, run.num_gpus)
    domain = _domain(run, per_host)
    tiers = [_tier("domain", TierKind.SCALE_UP, domain, host.scale_up_bytes_per_ns)]
    if run.num_gpus > domain:
        tiers.append(_tier("network", TierKind.POD, run.num_gpus, host.network_bytes_per_ns))
    return Machine(
        name=f"{run.num_gpus} x {run.gpu}",
        title=f"{run.num_gpus} x {run.gpu}",
        host=replace(host, num_chips=per_host),
        tiers=tuple(tiers),
        figures=(),
        parent="",
        path=host.path,
    )


def _domain(run: PublishedRun, per_host: int) -> int:
    """GPUs of one scale-up domain: the most that divide the run's, as jobs take even shares."""
    most = min(max(run.nvlink_domain or per_host, per_host), run.num_gpus)
    even = (size for size in range(most, per_host, -per_host) if run.num_gpus % size == 0)
    return next(even, per_host)


def _tier(name: str, kind: TierKind, num_ranks: int, bytes_per_ns: float | None) -> Tier:
    if bytes_per_ns is None:
        raise MachineError(f"the host's description gives no bandwidth of its {name}: add it.")
    return Tier(
        name=name,
        kind=kind,
        technology="",
        num_ranks=num_ranks,
        bytes_per_ns=bytes_per_ns,
        oversubscription=1.0,
        latency_ns=_LATENCY_NS[kind],
        num_rails=None,
    )
